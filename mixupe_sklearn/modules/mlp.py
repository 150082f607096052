"""The multi-layer perceptron of the paper's tabular experiments."""

from collections.abc import Sequence

from torch import nn

from mixupe_sklearn.modules._layers import Staged, check_sequence

ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}


class MLP(Staged):
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
    ):
        if activation not in ACTIVATIONS:
            known = ", ".join(repr(name) for name in ACTIVATIONS)
            raise ValueError(f"Got activation={activation!r}, but expected one of {known}.")
        stages: list[nn.Module] = []
        width = n_features
        for d_layer in check_sequence("d_hidden", d_hidden, n_least=0):
            layers: list[nn.Module] = [nn.Linear(width, d_layer, bias=bias)]
            if batch_norm:
                layers.append(nn.BatchNorm1d(d_layer))
            layers.append(ACTIVATIONS[activation]())
            if dropout:
                layers.append(nn.Dropout(dropout))
            stages.append(nn.Sequential(*layers))
            width = d_layer
        super().__init__([*stages, nn.Linear(width, n_outputs, bias=bias)])
