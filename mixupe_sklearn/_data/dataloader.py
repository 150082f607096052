"""Reading in worker processes, whose errors are told as if there were none."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

# What a sentence of ours begins with, wherever it was raised.
OURS = "Got "


class Loader(DataLoader):
    """A DataLoader that tells what is wrong with a sample in one sentence, workers or not.

    torch puts the whole traceback of a worker into the message of its error. Where that ends with
    a sentence of ours, an error of the same type is raised with this sentence alone. Other errors,
    such as those of a user's own Dataset, keep their text: who looks for the fault needs the
    traceback. The workers end in both cases.

    Examples
    --------
    >>> import torch
    >>> [batch.tolist() for batch in Loader(torch.arange(5), batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Batches, one by one."""
        failure: Exception | None = None
        try:
            yield from super().__iter__()
        except Exception as error:
            if not _is_of_worker(error):
                raise
            sentence = sentence_of_worker(error)
            failure = error if sentence is None else type(error)(sentence)
            # Its frames, all of torch, hold what holds the workers, which end when nobody does.
            error.__traceback__ = None
        # Not in the handler: the long error would come along as the context of the short one.
        if failure is not None:
            self._iterator = None  # where torch keeps workers that are to stay
            raise failure


def sentence_of_worker(error: Exception) -> str | None:
    """The sentence of ours that an error of a worker ends with; None for all other errors.

    Examples
    --------
    >>> text = '''Caught ValueError in DataLoader worker process 0.
    ... Original Traceback (most recent call last):
    ...   File "a.py", line 1, in read
    ... ValueError: Got X[3] with a pixel of nan, but expected finite numbers.
    ... '''
    >>> sentence_of_worker(ValueError(text))
    'Got X[3] with a pixel of nan, but expected finite numbers.'
    >>> sentence_of_worker(ValueError("Got X[3] with a pixel of nan.")) is None
    True
    """
    if not _is_of_worker(error):
        return None
    text, name = str(error), type(error).__name__
    _, found, rest = text.rpartition(f"\n{name}: {OURS}")
    # What led to the error is told before it: a sentence of ours there is not the last word.
    is_last = bool(found) and "\nTraceback (most recent call last):\n" not in rest
    return OURS + rest.strip() if is_last else None


def _is_of_worker(error: Exception) -> bool:
    # A KeyError shows its message in quotes. torch raises some as a RuntimeError instead.
    return str(error).lstrip("'\"").startswith("Caught ") and "in DataLoader worker" in str(error)
