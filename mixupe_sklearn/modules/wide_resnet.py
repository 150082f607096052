"""Wide residual networks: few layers, many channels."""

from functools import partial

from torch import nn

from mixupe_sklearn.modules._layers import (
    ImageCheck,
    Staged,
    block_group,
    check_counts,
    check_image_size,
    conv,
    he_fan_out,
    pooled_head,
)
from mixupe_sklearn.modules.preact_resnet import PreActBlock

LEAST = 4  # two groups halve the picture


class WideResNet(Staged):
    """Three groups of pre-activation blocks of two convolutions; WRN-28-10 by default.

    Parameters
    ----------
    n_outputs : int
        Width of the output (logits).
    n_channels : int, default=3
        How many channels a picture has.
    image_size : pair of int, default=(32, 32)
        Height and width of a picture; larger ones run, too.
    depth : int, default=28
        Number of layers: four, and six for each block that a group has.
    widening : int, default=10
        How many times wider than the stem the first group is; the others are twice the one before.
    width : int, default=16
        Width of the stem.
    dropout : float, default=0.0
        Share of the units dropped in training, between the convolutions of a block.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        The stem, each group of blocks, and the head.

    Notes
    -----
    Shapes: ``(n_samples, n_channels, height, width)`` in, ``(n_samples, n_outputs)`` out.

    References
    ----------
    Zagoruyko and Komodakis, "Wide Residual Networks", BMVC 2016.

    Examples
    --------
    A small one, for a processor:

    >>> import torch
    >>> from mixupe_sklearn.modules import WideResNet
    >>> WideResNet(10, depth=10, widening=2)(torch.zeros(5, 3, 32, 32)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        n_outputs: int,
        *,
        n_channels: int = 3,
        image_size: tuple[int, int] = (32, 32),
        depth: int = 28,
        widening: int = 10,
        width: int = 16,
        dropout: float = 0.0,
    ):
        check_counts(n_outputs=n_outputs, n_channels=n_channels, depth=depth)
        check_counts(widening=widening, width=width)
        n_blocks, rest = divmod(depth - 4, 6)
        if rest or n_blocks < 1:
            raise ValueError(
                f"Got depth={depth!r}, but WideResNet expected 4 and a multiple of 6, such as 10, "
                f"16, 22, 28 or 40."
            )
        reason = "two of its groups halve the picture"
        check_image_size("WideResNet", image_size, LEAST, reason)
        make = partial(PreActBlock, dropout=dropout)
        check = ImageCheck("WideResNet", n_channels, (LEAST, LEAST), exact=False)
        stages = [nn.Sequential(check, conv(n_channels, width, 3))]
        d_in = width
        for i in range(3):
            d_out = width * widening * 2**i
            stages.append(block_group(make, n_blocks, d_in, d_out, stride=2 if i else 1))
            d_in = d_out
        head = pooled_head(d_in, n_outputs, nn.BatchNorm2d(d_in), nn.ReLU())
        super().__init__([*stages, head])
        he_fan_out(self)
