"""Vision Transformer: an image as a sequence of patches."""

import math

import torch
from torch import Tensor, nn

from mixupe_sklearn.modules._attention import SelfAttention, feed_forward, small_normal
from mixupe_sklearn.modules._layers import ImageCheck, Staged, check_counts


class PatchTokens(nn.Module):
    """The first stage of :class:`ViT`: patch tokens, a class token, and position embeddings."""

    def __init__(self, n_channels: int, image_size: tuple[int, int], patch_size: int, d_model: int):
        super().__init__()
        reason = "a patch has that size"
        self.check = ImageCheck("ViT", n_channels, image_size, patch_size, reason)
        height, width = self.check.image_size
        if height % patch_size or width % patch_size:
            raise ValueError(
                f"Got image_size={image_size!r}, but ViT expected multiples of "
                f"patch_size={patch_size}."
            )
        self.patches = nn.Conv2d(n_channels, d_model, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(torch.empty(1, 1, d_model))
        n_patches = (height // patch_size) * (width // patch_size)
        self.places = nn.Parameter(torch.empty(1, 1 + n_patches, d_model))
        nn.init.trunc_normal_(self.class_token, std=0.02)
        nn.init.trunc_normal_(self.places, std=0.02)
        # A dense layer of a patch: a deviation of 0.02 would be too small for small patches.
        nn.init.trunc_normal_(self.patches.weight, std=math.sqrt(1 / (n_channels * patch_size**2)))
        nn.init.zeros_(self.patches.bias)  # type: ignore[arg-type]

    def forward(self, X: Tensor) -> Tensor:
        """Return the tokens, of shape (n_samples, 1 + n_patches, d_model)."""
        tokens = self.patches(self.check(X)).flatten(2).mT
        return torch.cat([self.class_token.expand(len(X), -1, -1), tokens], dim=1) + self.places


class TransformerBlock(nn.Module):
    """A pre-norm transformer block: attention, then a feed-forward layer."""

    def __init__(self, d_model: int, n_heads: int, d_hidden: int):
        super().__init__()
        norm = nn.LayerNorm(d_model, eps=1e-6)
        self.attention = nn.Sequential(norm, SelfAttention(d_model, d_model, n_heads))
        self.feed = feed_forward(d_model, d_hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the output tokens."""
        tokens = tokens + self.attention(tokens)
        return tokens + self.feed(tokens)


class ClassHead(nn.Sequential):
    """The last stage of :class:`ViT`: a norm, and logits from the class token."""

    def __init__(self, d_model: int, n_outputs: int):
        super().__init__(nn.LayerNorm(d_model, eps=1e-6), nn.Linear(d_model, n_outputs))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        return super().forward(tokens[:, 0])


class ViT(Staged):
    """Vision Transformer. The default is ViT-B/16.

    Parameters
    ----------
    n_outputs : int
        Width of the output (logits).
    n_channels : int, default=3
        Number of channels of an image.
    image_size : pair of int, default=(224, 224)
        Height and width of an image, multiples of ``patch_size``.
    patch_size : int, default=16
        Height and width of a patch.
    d_model : int, default=768
        Width of a token.
    depth : int, default=12
        Number of transformer blocks.
    n_heads : int, default=12
        Number of attention heads. It divides ``d_model``.
    d_hidden : int or None, default=None
        Width of the hidden layer of a block. None means four times ``d_model``.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        The tokens with position embeddings, each block, and the head.

    Notes
    -----
    Shapes: ``(n_samples, n_channels, height, width)`` in, ``(n_samples, n_outputs)`` out. There is
    no dropout. Weights are initialized from a truncated normal distribution with deviation 0.02, or
    one over the root of the fan-in for the patches.

    References
    ----------
    Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at
    Scale", ICLR 2021.

    Examples
    --------
    A small network, for a CPU:

    >>> import torch
    >>> from mixupe_sklearn.modules import ViT
    >>> module = ViT(10, image_size=(32, 32), patch_size=8, d_model=32, depth=2, n_heads=4)
    >>> module(torch.zeros(5, 3, 32, 32)).shape, len(module.stages)
    (torch.Size([5, 10]), 4)
    """

    def __init__(
        self,
        n_outputs: int,
        *,
        n_channels: int = 3,
        image_size: tuple[int, int] = (224, 224),
        patch_size: int = 16,
        d_model: int = 768,
        depth: int = 12,
        n_heads: int = 12,
        d_hidden: int | None = None,
    ):
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        check_counts(n_outputs=n_outputs, n_channels=n_channels, patch_size=patch_size)
        check_counts(d_model=d_model, depth=depth, n_heads=n_heads, d_hidden=d_hidden)
        if d_model % n_heads:
            raise ValueError(
                f"Got d_model={d_model!r}, but ViT expected a multiple of n_heads={n_heads}."
            )
        blocks = [TransformerBlock(d_model, n_heads, d_hidden) for _ in range(depth)]
        head = ClassHead(d_model, n_outputs)
        super().__init__([PatchTokens(n_channels, image_size, patch_size, d_model), *blocks, head])
        small_normal(self)
