"""Signals on their way into a network: some of them, and a batch made ready."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

# Fewer channels than oneDNN's kernels take at once (8 with AVX2, 16 with AVX-512).
FEW_CHANNELS = 16


class Part(Dataset):
    """Some signals of a Dataset, by their numbers."""

    def __init__(self, whole: Any, index: np.ndarray):
        self.whole = whole
        self.index = index
        self.shape = (len(index), *whole.shape[1:])

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, number: int) -> Tensor:
        return self.whole[int(self.index[number])]


class Prepare:
    """From raw signals to what the module sees: zero mean, unit deviation, augmented in training.

    Parameters
    ----------
    mean, std : array of shape (n_channels,)
        What is subtracted, and then divided by; of integers it is taken 255 times.
    dtype : torch.dtype, default=torch.float32
        Type of the result.
    augment : callable or None, default=None
        Applied to a normalised batch, in training only.
    channels_last : bool, default=False
        Whether channels lie next to each other in memory, which convolutions may like better.

    Examples
    --------
    >>> import torch
    >>> Prepare([0.5], [0.25])(torch.full((1, 1, 1, 2), 255, dtype=torch.uint8), False)
    tensor([[[[2., 2.]]]])
    """

    def __init__(self, mean, std, dtype=torch.float32, augment=None, channels_last=False):
        # Arrays and text, which skops can save; tensors and their types it cannot.
        self.mean = np.asarray(mean, dtype=np.float64).reshape(-1, 1, 1)
        self.std = np.asarray(std, dtype=np.float64).reshape(-1, 1, 1)
        self.dtype = str(dtype).removeprefix("torch.")
        self.augment = augment
        self.channels_last = channels_last

    def __call__(self, X: Tensor, training: bool) -> Tensor:
        """Prepare a batch."""
        unit, dtype = 1 if X.is_floating_point() else 255, getattr(torch, self.dtype)
        mean, std = (
            torch.from_numpy(unit * value).to(X.device, dtype) for value in (self.mean, self.std)
        )
        X = (X.to(dtype) - mean) / std
        # Said in both cases: images may come in either order.
        order = torch.channels_last if self.channels_last else torch.contiguous_format
        X = X.contiguous(memory_format=order)
        if not training or self.augment is None:
            return X
        changed = self.augment(X)
        if not isinstance(changed, Tensor):
            raise TypeError(
                f"Got {type(changed).__name__} from augment, but expected a tensor of shape "
                f"{tuple(X.shape)}, the shape of what it was given."
            )
        if changed.shape != X.shape:
            raise ValueError(
                f"Got a batch of shape {tuple(changed.shape)} from augment, but expected "
                f"{tuple(X.shape)}, the shape of what it was given."
            )
        return changed


def is_unsafe_last(module: nn.Module) -> bool:
    """Whether a CPU may damage its memory in training with channels next to each other.

    The gradient of a 1 x 1 convolution with a stride and few channels is written beyond its
    place in that order (oneDNN issue 6035, seen with torch 2.13; to be tried anew with later ones).

    Examples
    --------
    >>> is_unsafe_last(nn.Conv2d(4, 8, kernel_size=1, stride=2))
    True
    >>> is_unsafe_last(nn.Conv2d(16, 32, kernel_size=1, stride=2))
    False
    """
    return any(
        part.in_channels // part.groups < FEW_CHANNELS
        and max(part.stride) > 1
        and max(part.kernel_size) == 1
        for part in module.modules()
        if isinstance(part, nn.Conv2d)
    )
