"""Dropout, from the generator of each member."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

# Probabilities are multiples of one in this many: a random number has 16 bits.
STEPS = 2**16


class Dropout:
    """Sets random entries to zero in training and enlarges the others.

    ``rngs`` holds a generator for each member. The masks of a member therefore do not depend on the
    others, nor on the threads of a fit.
    """

    kind = nn.Dropout
    saves = "input"
    has_weights = False

    def __init__(self, module: nn.Dropout, weights: Sequence[Tensor], grads: Sequence[Tensor]):
        self.p = module.p
        self.scale = 1 / (1 - self.p) if self.p < 1 else 0.0
        self.rngs: Sequence[np.random.Generator] = ()

    def forward(self, state: Tensor, out: Tensor) -> None:
        """Draw a factor for each entry, and write the output."""
        n_each = state[0].numel()
        kept = np.empty(n_each, dtype=bool)
        self.factors = torch.empty(state.shape, dtype=state.dtype)
        rows = self.factors.view(len(state), n_each).numpy()
        for row, rng in zip(rows, self.rngs, strict=True):
            raw = rng.bit_generator.random_raw(-(-n_each // 4)).view(np.uint16)[:n_each]
            np.greater_equal(raw, round(self.p * STEPS), out=kept)
            # numpy is faster at this product than torch, which multiplies by booleans one by one.
            np.multiply(kept, rows.dtype.type(self.scale), out=row)
        torch.mul(state, self.factors, out=out)

    def backward(self, grad: Tensor, state: Tensor, grad_input: Tensor) -> None:
        """Write the gradient of the input."""
        torch.mul(grad, self.factors, out=grad_input)

    def function(self, state: Tensor) -> Tensor:
        """Return the input."""
        return state


LAYER = Dropout
