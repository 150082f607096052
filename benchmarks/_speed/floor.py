"""The arithmetic floor: the matrix products of a training step alone, into memory at hand.

A step of a network needs, for each layer, one product forward, one for the gradient of the
weights, and one for the gradient of the layer's input (not for the first layer). Nothing else is
run: no activation, no loss, no optimizer, no mixing, and no allocation.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks._speed.sizes import Size


class Product(NamedTuple):
    """A matrix product ``left @ right`` that is written to ``out``."""

    left: Tensor
    right: Tensor
    out: Tensor

    @property
    def n_multiplications(self) -> int:
        """Multiplications (and as many additions) in it."""
        return self.left.shape[0] * self.left.shape[1] * self.right.shape[1]


def products_of(size: Size, n_rows: int, n_first: int | None = None) -> list[Product]:
    """The products of a step, in their order.

    Parameters
    ----------
    size : Size
        Gives the network.
    n_rows : int
        Rows that go through it: the batch for ERM and Mixup, twice as many for MixupE.
    n_first : int or None, default=None
        Rows in the first layer, where they differ. Mixing and a linear map can change places, so
        that MixupE could do with the clean rows there.

    Returns
    -------
    products : list of Product
        Forward, then backward.

    Examples
    --------
    >>> size = Size(rows=10, features=4, classes=3, width=8, batch=5)
    >>> [tuple(product.out.shape) for product in products_of(size, 5)]
    [(5, 8), (5, 8), (5, 3), (3, 8), (5, 8), (8, 8), (5, 8), (8, 4)]
    """
    forward, backward = [], []
    for place, (n_in, n_out) in enumerate(size.layers()):
        n_here = n_first if place == 0 and n_first is not None else n_rows
        weight = torch.randn(n_out, n_in) / n_in**0.5
        rows, slopes = torch.randn(n_here, n_in), torch.randn(n_here, n_out)
        forward.append(Product(rows, weight.T, torch.empty(n_here, n_out)))
        pair = [Product(slopes.T, rows, torch.empty(n_out, n_in))]
        if place:
            pair.append(Product(slopes, weight, torch.empty(n_here, n_in)))
        backward.append(pair)
    return forward + [product for pair in reversed(backward) for product in pair]


def floors_of(size: Size) -> dict[str, list[Product]]:
    """The products of each kind of step, by name."""
    n_rows = size.batch
    return {
        "floor": products_of(size, n_rows),
        "floor-quarter": products_of(size, n_rows + max(1, n_rows // 4)),
        "floor-shared": products_of(size, 2 * n_rows, n_first=n_rows),
        "floor-twice": products_of(size, 2 * n_rows),
    }


def run_products(products: list[Product], n_steps: int) -> None:
    """Run the products so many times."""
    multiply = torch.mm
    with torch.no_grad():
        for _ in range(n_steps):
            for left, right, out in products:
                multiply(left, right, out=out)
