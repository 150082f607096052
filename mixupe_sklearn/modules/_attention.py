"""Shared parts of the networks with attention: attention, dense layers, initialization."""

from torch import Tensor, nn


def small_normal(module: nn.Module) -> None:
    """Initialize all dense layers from a truncated normal distribution with deviation 0.02."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)


class SelfAttention(nn.Module):
    """Multi-head self-attention, optionally with a position bias.

    ``places`` returns the bias of the scores, of shape (n_heads, n_tokens, n_tokens). Fused kernels
    lack the second derivative that the directional penalty needs.
    """

    def __init__(self, d_in: int, d_out: int, n_heads: int, places: nn.Module | None = None):
        super().__init__()
        self.n_heads = n_heads
        self.places = places
        self.query_key_value = nn.Linear(d_in, 3 * d_out)
        self.out = nn.Linear(d_out, d_out)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the attended tokens."""
        parts = self.query_key_value(tokens).unflatten(2, (3, self.n_heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each (n, n_heads, n_tokens, d_head)
        scores = query * query.shape[-1] ** -0.5 @ key.mT
        if self.places is not None:
            scores = scores + self.places()
        found = scores.softmax(dim=-1) @ value
        return self.out(found.transpose(1, 2).flatten(2))


def feed_forward(d_model: int, d_hidden: int) -> nn.Sequential:
    """The feed-forward part of a transformer block, including its norm."""
    return nn.Sequential(
        nn.LayerNorm(d_model, eps=1e-6),
        nn.Linear(d_model, d_hidden),
        nn.GELU(),
        nn.Linear(d_hidden, d_model),
    )
