"""What the families with attention share: heads, dense layers, and their first weights."""

import torch
from torch import Tensor, nn


def small_normal(module: nn.Module) -> None:
    """Draw the weights of all dense layers from a truncated normal distribution, deviation 0.02.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(200, 200)
    >>> small_normal(layer)
    >>> round(layer.weight.std().item(), 2), layer.bias.abs().max().item()
    (0.02, 0.0)
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)


class SelfAttention(nn.Module):
    """Every token looks at every other, by several heads, and by their places where these count.

    Written out, since the kernels that do it in one have no second derivative, which the
    directional penalty asks for.

    Parameters
    ----------
    d_in, d_out : int
        Widths of a token before and after.
    n_heads : int
        How many heads share the width.
    places : torch.nn.Module or None, default=None
        Gives what is added to the scores, of shape (n_heads, n_tokens, n_tokens).

    Examples
    --------
    >>> import torch
    >>> SelfAttention(8, 16, n_heads=2)(torch.zeros(5, 9, 8)).shape
    torch.Size([5, 9, 16])
    """

    def __init__(self, d_in: int, d_out: int, n_heads: int, places: nn.Module | None = None):
        super().__init__()
        self.n_heads = n_heads
        self.places = places
        self.query_key_value = nn.Linear(d_in, 3 * d_out)
        self.out = nn.Linear(d_out, d_out)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens, each with what it found in the others."""
        parts = self.query_key_value(tokens).unflatten(2, (3, self.n_heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (n, n_heads, n_tokens, d_head)
        scores = query * query.shape[-1] ** -0.5 @ key.mT
        if self.places is not None:
            scores = scores + self.places()
        found = scores.softmax(dim=-1) @ value
        return self.out(found.transpose(1, 2).flatten(2))


def feed_forward(d_model: int, d_hidden: int) -> nn.Sequential:
    """The part of a transformer block that looks at one token at a time, its norm included.

    Examples
    --------
    >>> import torch
    >>> feed_forward(8, 32)(torch.zeros(5, 9, 8)).shape
    torch.Size([5, 9, 8])
    """
    return nn.Sequential(
        nn.LayerNorm(d_model, eps=1e-6),
        nn.Linear(d_model, d_hidden),
        nn.GELU(),
        nn.Linear(d_hidden, d_model),
    )


def relative_places(height: int, width: int) -> Tensor:
    """Number of the offset from each place of a map to each other one, of shape (n, n).

    Examples
    --------
    >>> relative_places(1, 3).tolist()
    [[2, 1, 0], [3, 2, 1], [4, 3, 2]]
    """
    rows = torch.arange(height).repeat_interleave(width)
    columns = torch.arange(width).repeat(height)
    down = rows[:, None] - rows + height - 1
    right = columns[:, None] - columns + width - 1
    return down * (2 * width - 1) + right
