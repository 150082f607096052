"""Rotated, sheared and zoomed test images as in the paper, the same for every training."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._images.augment import rotation, shear, warp, zoom
from mixupe_sklearn._images.read import read_images

SEED = 0
BLOCK = 1_000  # images that are deformed at a time


class Deformation(NamedTuple):
    """A transformation, and the range of its amount: degrees, or a fraction of the image."""

    head: str
    make: Callable[[Tensor], Tensor]
    low: float
    high: float


# A zoom of 60 % shows the inner 60 % of an image's width and height.
DEFORMATIONS = {
    "rotation_20": Deformation("rotation U(-20, 20)", rotation, -20, 20),
    "rotation_40": Deformation("rotation U(-40, 40)", rotation, -40, 40),
    "shear_28.6": Deformation("shear U(-28.6, 28.6)", shear, -28.6, 28.6),
    "shear_57.3": Deformation("shear U(-57.3, 57.3)", shear, -57.3, 57.3),
    "zoom_60": Deformation("zoom 60 %", zoom, 0.6, 0.6),
    "zoom_80": Deformation("zoom 80 %", zoom, 0.8, 0.8),
    "zoom_120": Deformation("zoom 120 %", zoom, 1.2, 1.2),
    "zoom_140": Deformation("zoom 140 %", zoom, 1.4, 1.4),
}
COLUMNS = tuple(f"accuracy_{name}" for name in DEFORMATIONS)


def deform(X: Tensor, name: str) -> Tensor:
    """Deform images of bytes (n, n_channels, height, width); the area outside of them is black."""
    how = DEFORMATIONS[name]
    drawn = np.random.default_rng(SEED).uniform(how.low, how.high, size=len(X))
    amounts = torch.as_tensor(drawn, dtype=torch.float32)
    parts = [
        warp(some.float(), how.make(amount)).round().clamp(0, 255).byte()
        for some, amount in zip(X.split(BLOCK), amounts.split(BLOCK), strict=True)
    ]
    return torch.cat(parts)


def as_bytes(X: Any, model: Any) -> Tensor | None:
    """Images as a fitted model reads them, in bytes; None for files that exceed memory."""
    read = read_images(X, image_size=model.image_size, n_channels=model.shape_in_[0]).data
    if not isinstance(read, Tensor):
        return None
    return (255 * read).round().byte() if read.is_floating_point() else read


def accuracies(model: Any, X: Any, y: np.ndarray) -> dict[str, float]:
    """Accuracy (%) of a fitted model on each deformation of images, by column of the rows."""
    pixels = as_bytes(X, model)
    if pixels is None:
        return {}
    return {
        column: 100.0 * float(np.mean(model.predict(deform(pixels, name)) == y))
        for column, name in zip(COLUMNS, DEFORMATIONS, strict=True)
    }
