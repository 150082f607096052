"""A DataLoader whose workers raise the same short errors as the main process."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

# The start of the error messages of this package.
OURS = "Got "


class Loader(DataLoader):
    """A DataLoader that raises one sentence about a wrong sample, with or without workers.

    torch puts the whole traceback of a worker into the message of its error. If that ends with a
    sentence of this package, an error of the same type is raised with this sentence alone. Other
    errors, such as those of a user's Dataset, keep their text, since the traceback helps to find
    the fault. The workers end in both cases.

    Examples
    --------
    >>> import torch
    >>> [batch.tolist() for batch in Loader(torch.arange(5), batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Yield batches."""
        failure: Exception | None = None
        try:
            yield from super().__iter__()
        except Exception as error:
            if not _is_of_worker(error):
                raise
            sentence = sentence_of_worker(error)
            failure = error if sentence is None else type(error)(sentence)
            # The frames of torch keep the workers alive.
            error.__traceback__ = None
        # Outside the handler: the long error would become the context of the short one.
        if failure is not None:
            self._iterator = None  # where torch keeps persistent workers
            raise failure


def sentence_of_worker(error: Exception) -> str | None:
    """Return the sentence of this package at the end of a worker's error, else None.

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
    # Causes come first: a sentence there is not the error itself.
    is_last = bool(found) and "\nTraceback (most recent call last):\n" not in rest
    return OURS + rest.strip() if is_last else None


def _is_of_worker(error: Exception) -> bool:
    # A KeyError shows its message in quotes. torch raises some as a RuntimeError instead.
    return str(error).lstrip("'\"").startswith("Caught ") and "in DataLoader worker" in str(error)
