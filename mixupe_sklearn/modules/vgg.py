"""VGG with BatchNorm, as in the speech experiments."""

from collections.abc import Sequence

from torch import nn

from mixupe_sklearn.modules._layers import (
    ImageCheck,
    Staged,
    blocks_of,
    check_counts,
    conv,
    he_fan_out,
)

# Number of convolutions before each pooling.
BLOCKS = {11: (1, 1, 2, 2, 2), 13: (2,) * 5, 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(Staged):
    """Groups of 3 x 3 convolutions with a max pooling after each, then one hidden dense layer.

    Parameters
    ----------
    n_outputs : int
        Width of the output (logits).
    n_channels : int, default=1
        Number of channels of an image.
    image_size : pair of int, default=(160, 101)
        Height and width of an image.
    depth : {11, 13, 16, 19}, default=11
        Number of layers of the published network.
    width : int, default=64
        Width of the first group. Each further group is twice as wide, up to eight times.
    blocks : sequence of int or None, default=None
        Number of convolutions of each group. None means those of ``depth``.
    d_hidden : int, default=512
        Width of the hidden dense layer, whose input is the flattened maps.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        Each group with its pooling, the hidden dense layer, and the output layer.

    Notes
    -----
    Shapes: ``(n_samples, n_channels, height, width)`` in, ``(n_samples, n_outputs)`` out. The
    convolutions have a bias, as in the published network, although BatchNorm follows them.

    References
    ----------
    Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
    ICLR 2015.

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn.modules import VGG
    >>> VGG(30, width=4, d_hidden=16)(torch.zeros(5, 1, 160, 101)).shape
    torch.Size([5, 30])
    """

    def __init__(
        self,
        n_outputs: int,
        *,
        n_channels: int = 1,
        image_size: tuple[int, int] = (160, 101),
        depth: int = 11,
        width: int = 64,
        blocks: Sequence[int] | None = None,
        d_hidden: int = 512,
    ):
        check_counts(n_outputs=n_outputs, n_channels=n_channels, width=width, d_hidden=d_hidden)
        blocks = blocks_of("VGG", depth, BLOCKS, blocks)
        shrink = 2 ** len(blocks)
        reason = f"its {len(blocks)} poolings halve the image each"
        check = ImageCheck("VGG", n_channels, image_size, shrink, reason)
        widths = [width * min(2**i, 8) for i in range(len(blocks))]
        stages = [
            _group(d_in, d_out, n)
            for d_in, d_out, n in zip([n_channels, *widths], widths, blocks, strict=False)
        ]
        stages[0] = nn.Sequential(check, *stages[0])
        height, width = check.image_size
        d_maps = widths[-1] * (height // shrink) * (width // shrink)
        stages.append(nn.Sequential(nn.Flatten(), nn.Linear(d_maps, d_hidden), nn.ReLU()))
        super().__init__([*stages, nn.Linear(d_hidden, n_outputs)])
        he_fan_out(self)


def _group(d_in: int, d_out: int, n_convolutions: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(n_convolutions):
        layers += [conv(d_in, d_out, 3, bias=True), nn.BatchNorm2d(d_out), nn.ReLU()]
        d_in = d_out
    return nn.Sequential(*layers, nn.MaxPool2d(2))
