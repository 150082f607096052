"""The input transform of a network."""

import numpy as np
import torch
from torch import Tensor, nn

# The block size of oneDNN's kernels (8 with AVX2, 16 with AVX-512).
FEW_CHANNELS = 16


class Prepare:
    """Normalise a batch to zero mean and unit deviation, and augment it in training.

    ``mean`` and ``std`` have a value for each channel. For integers, both are multiplied by 255.
    """

    def __init__(self, mean, std, dtype=torch.float32, augment=None, channels_last=False):
        # Arrays and text, because skops cannot save tensors and their types.
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
        # Set in both cases, because images may have either format.
        order = torch.channels_last if self.channels_last else torch.contiguous_format
        X = X.contiguous(memory_format=order)
        if not training or self.augment is None:
            return X
        changed = self.augment(X)
        shape = tuple(changed.shape) if isinstance(changed, Tensor) else None
        if shape != X.shape:
            raise ValueError(
                f"Got a batch of shape {shape} from augment, but expected a tensor of shape "
                f"{tuple(X.shape)}, the shape of its input."
            )
        return changed


def is_unsafe_last(module: nn.Module) -> bool:
    """Whether training with channels last may corrupt memory on a CPU.

    The gradient of a strided 1 x 1 convolution with few channels is written out of bounds in that
    format (oneDNN issue 6035, seen with torch 2.13; test again with later versions).
    """
    return any(
        part.in_channels // part.groups < FEW_CHANNELS
        and max(part.stride) > 1
        and max(part.kernel_size) == 1
        for part in module.modules()
        if isinstance(part, nn.Conv2d)
    )
