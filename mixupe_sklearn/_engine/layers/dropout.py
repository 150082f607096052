"""Dropout, from the generator of each member."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

# Probabilities are multiples of one in this many: a random number has 16 bits.
STEPS = 2**16
# Values times mask times scale, in one pass over memory.
scaled_product = torch.ops.aten.native_dropout_backward.out


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
        """Draw a mask, and write the output."""
        n_each = state[0].numel()
        masks = np.empty((len(state), n_each), dtype=bool)
        for mask, rng in zip(masks, self.rngs, strict=True):
            raw = rng.bit_generator.random_raw(-(-n_each // 4)).view(np.uint16)[:n_each]
            np.greater_equal(raw, round(self.p * STEPS), out=mask)
        self.mask = torch.from_numpy(masks).view(state.shape)
        scaled_product(state, self.mask, self.scale, out=out)

    def backward(self, grad: Tensor, state: Tensor, grad_input: Tensor) -> None:
        """Write the gradient of the input."""
        scaled_product(grad, self.mask, self.scale, out=grad_input)

    def function(self, state: Tensor) -> Tensor:
        """Return the input."""
        return state


LAYER = Dropout
