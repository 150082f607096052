"""A linear layer with or without bias."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Linear:
    """``state @ weight.T + bias`` of each member.

    A layer with one output multiplies and adds entry by entry: a matrix product with one column
    would round differently for one member than for several.
    """

    kind: type[nn.Module] = nn.Linear
    saves = "input"
    has_weights = True

    def __init__(self, module: nn.Linear, weights: Sequence[Tensor], grads: Sequence[Tensor]):
        self.weight, self.weight_grad = weights[0], grads[0]
        self.bias = self.bias_grad = None
        if module.bias is not None:
            self.bias, self.bias_grad = weights[1][:, None], grads[1]
        self.transposed = self.weight.mT
        self.is_single = self.weight.shape[1] == 1

    def forward(self, state: Tensor, out: Tensor) -> None:
        """Write the output."""
        if self.is_single:
            torch.sum(state * self.weight, dim=-1, keepdim=True, out=out)
            if self.bias is not None:
                out += self.bias
        elif self.bias is None:
            torch.bmm(state, self.transposed, out=out)
        else:
            torch.baddbmm(self.bias, state, self.transposed, out=out)

    def backward(self, grad: Tensor, state: Tensor, grad_input: Tensor | None) -> None:
        """Write the gradients of weight and bias, and of the input."""
        if self.is_single:
            torch.sum(grad * state, dim=1, keepdim=True, out=self.weight_grad)
        else:
            torch.bmm(grad.mT, state, out=self.weight_grad)
        if self.bias_grad is not None:
            torch.sum(grad, dim=1, out=self.bias_grad)
        if grad_input is not None and self.is_single:
            torch.mul(grad, self.weight, out=grad_input)
        elif grad_input is not None:
            torch.bmm(grad, self.weight, out=grad_input)

    def function(self, state: Tensor) -> Tensor:
        """Return the output."""
        if self.is_single:
            product = (state * self.weight).sum(dim=-1, keepdim=True)
            return product if self.bias is None else product + self.bias
        if self.bias is None:
            return torch.bmm(state, self.transposed)
        return torch.baddbmm(self.bias, state, self.transposed)


LAYER = Linear
