"""The multi-layer perceptron of the paper's tabular experiments."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}
RATE = 6.0  # ratio of the learning rate of an input factor to that of the weights


class ScaledLinear(nn.Linear):
    """A linear layer that learns a factor for each input feature, at a higher learning rate.

    The factor of a feature is ``RATE * scale``, and starts at 1. The steps of Adam do not depend on
    the size of a gradient. A parameter that is multiplied by ``RATE`` therefore learns as with
    ``RATE`` times the learning rate, and needs no parameter group.

    Examples
    --------
    >>> import torch
    >>> layer = ScaledLinear(4, 3)
    >>> layer.scale.shape, torch.equal(layer.scaled_weight(), layer.weight)
    (torch.Size([4]), True)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__(in_features, out_features, bias=bias)
        self.scale = nn.Parameter(torch.full((in_features,), 1 / RATE))

    def scaled_weight(self) -> Tensor:
        """Return the weight of the plain linear layer with the same output."""
        return self.weight * (RATE * self.scale)

    def forward(self, X: Tensor) -> Tensor:
        """Return the output of a batch."""
        return nn.functional.linear(X, self.scaled_weight(), self.bias)


class MLP(nn.Module):
    """Fully connected network. The defaults are the paper's: two hidden layers of 128, ReLU.

    Parameters
    ----------
    n_features : int
        Width of the input.
    n_outputs : int
        Width of the output (logits).
    d_hidden : sequence of int, default=(128, 128)
        Width of each hidden layer. Empty for a linear model.
    activation : {"relu", "gelu", "silu", "tanh", "identity"}, default="relu"
        Non-linearity after each hidden layer.
    dropout : float, default=0.0
        Fraction of hidden units dropped in training.
    batch_norm : bool, default=False
        Whether BatchNorm comes before each activation.
    bias : bool, default=True
        Whether the linear layers have a bias. Without it, and with ReLU and centred inputs,
        the two penalties of MixupE are equal.
    input_scale : bool, default=False
        Whether the first layer learns a factor for each input feature, with six times the learning
        rate.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        The hidden layers and the output layer. ``forward`` runs them in sequence, and Manifold
        Mixup mixes after a hidden layer.

    Notes
    -----
    Shapes: ``(n_samples, n_features)`` in, ``(n_samples, n_outputs)`` out.

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn.modules import MLP
    >>> MLP(n_features=4, n_outputs=3)(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        d_hidden: Sequence[int] = (128, 128),
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        bias: bool = True,
        input_scale: bool = False,
    ):
        super().__init__()
        if activation not in ACTIVATIONS:
            known = ", ".join(repr(name) for name in ACTIVATIONS)
            raise ValueError(f"Got activation={activation!r}, but expected one of {known}.")
        stages: list[nn.Module] = []
        width = n_features
        linear = ScaledLinear if input_scale else nn.Linear  # of the next layer
        for d_layer in _check_widths(d_hidden):
            layers: list[nn.Module] = [linear(width, d_layer, bias=bias)]
            if batch_norm:
                layers.append(nn.BatchNorm1d(d_layer))
            layers.append(ACTIVATIONS[activation]())
            if dropout:
                layers.append(nn.Dropout(dropout))
            stages.append(nn.Sequential(*layers))
            width, linear = d_layer, nn.Linear
        self.stages = nn.ModuleList([*stages, linear(width, n_outputs, bias=bias)])

    def forward(self, X: Tensor) -> Tensor:
        """Return the logits of a batch."""
        for stage in self.stages:
            X = stage(X)
        return X


def _check_widths(d_hidden: Any) -> tuple[int, ...]:
    widths = tuple(d_hidden) if isinstance(d_hidden, Iterable) else (None,)
    for width in widths:
        if not isinstance(width, Integral) or isinstance(width, bool) or int(width) < 1:
            raise ValueError(
                f"Got d_hidden={d_hidden!r}, but expected a sequence of integers >= 1."
            )
    return widths
