"""LeNet: the smallest network of the speech experiments."""

from collections.abc import Sequence

from torch import nn

from mixupe_sklearn.modules._layers import ImageCheck, Staged, check_counts, check_sequence


class LeNet(Staged):
    """Convolutions of 5 x 5 with max pooling, then dense layers.

    The defaults are the network of Mixup's speech experiments. LeNet-5 itself, with ReLU and max
    pooling, is ``LeNet(10, image_size=(32, 32), channels=(6, 16), d_hidden=(120, 84))``.

    Parameters
    ----------
    n_outputs : int
        Width of the output (logits).
    n_channels : int, default=1
        Number of channels of an image.
    image_size : pair of int, default=(160, 101)
        Height and width of an image.
    channels : sequence of int, default=(20, 20)
        Width of each convolution.
    d_hidden : sequence of int, default=(1000,)
        Width of each hidden dense layer.
    dropout : float, default=0.0
        Fraction of the hidden dense units dropped in training.

    Attributes
    ----------
    stages : torch.nn.ModuleList
        Each convolution with its pooling, each hidden dense layer, and the output layer.

    Notes
    -----
    Shapes: ``(n_samples, n_channels, height, width)`` in, ``(n_samples, n_outputs)`` out. The
    initialization is torch's default: uniform, scaled by one over the root of the fan-in.

    References
    ----------
    LeCun et al., "Gradient-based learning applied to document recognition", Proc. IEEE 1998.
    Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, section 3.3.

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn.modules import LeNet
    >>> LeNet(30, channels=(4, 4), d_hidden=(16,))(torch.zeros(5, 1, 160, 101)).shape
    torch.Size([5, 30])
    """

    def __init__(
        self,
        n_outputs: int,
        *,
        n_channels: int = 1,
        image_size: tuple[int, int] = (160, 101),
        channels: Sequence[int] = (20, 20),
        d_hidden: Sequence[int] = (1000,),
        dropout: float = 0.0,
    ):
        check_counts(n_outputs=n_outputs, n_channels=n_channels)
        channels = check_sequence("channels", channels)
        d_hidden = check_sequence("d_hidden", d_hidden, n_least=0)
        least = 1
        for _ in channels:
            least = 2 * least + 4
        reason = f"its {len(channels)} convolutions of 5 x 5 cut 4 each, and are halved"
        check = ImageCheck("LeNet", n_channels, image_size, least, reason)
        height, width = check.image_size
        stages: list[nn.Sequential] = []
        d_in = n_channels
        for d_out in channels:
            stages.append(nn.Sequential(nn.Conv2d(d_in, d_out, 5), nn.ReLU(), nn.MaxPool2d(2)))
            height, width, d_in = (height - 4) // 2, (width - 4) // 2, d_out
        stages[0] = nn.Sequential(check, *stages[0])
        d_in *= height * width
        for d_out in d_hidden:
            stages.append(nn.Sequential(nn.Flatten(), nn.Linear(d_in, d_out), nn.ReLU()))
            d_in = d_out
        stages.append(nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(d_in, n_outputs)))
        super().__init__(stages)
