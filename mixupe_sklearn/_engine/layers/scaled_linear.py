"""A linear layer with a learned factor for each input feature."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mixupe_sklearn._engine.layers.linear import Linear
from mixupe_sklearn._method.formulas import State
from mixupe_sklearn.modules.mlp import RATE, ScaledLinear


class ScaledLinearLayer(Linear):
    """A linear layer whose weight is multiplied by ``RATE * scale``.

    The factors are folded into the weight, so that no product over the samples is added.
    """

    kind = ScaledLinear

    def __init__(self, module: ScaledLinear, weights: Sequence[Tensor], grads: Sequence[Tensor]):
        self.plain, self.plain_grad = weights[0], grads[0]
        self.scale, self.scale_grad = weights[-1][:, None], grads[-1]
        folded, grad = (State.new(self.plain, *self.plain.shape[1:]).values for _ in range(2))
        super().__init__(module, [folded, *weights[1:]], [grad, *grads[1:]])

    def forward(self, state: Tensor, out: Tensor) -> None:
        """Write the output."""
        self._fold()
        super().forward(state, out)

    def backward(self, grad: Tensor, state: Tensor, grad_input: Tensor | None) -> None:
        """Write the gradients of weight, scale and bias, and of the input."""
        super().backward(grad, state, grad_input)
        torch.mul(self.weight_grad, RATE * self.scale, out=self.plain_grad)
        torch.sum(self.weight_grad.mul_(self.plain), dim=1, out=self.scale_grad).mul_(RATE)

    def function(self, state: Tensor) -> Tensor:
        """Return the output."""
        self._fold()
        return super().function(state)

    def _fold(self) -> None:
        torch.mul(self.plain, RATE * self.scale, out=self.weight)


LAYER = ScaledLinearLayer
