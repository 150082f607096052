"""The rectified linear unit."""

from functools import partial

import torch
from torch import nn

from mixupe_sklearn._engine.layers import Elementwise

LAYER = Elementwise(
    nn.ReLU,
    forward=partial(torch.clamp_min, min=0),
    backward=partial(torch.ops.aten.threshold_backward.grad_input, threshold=0),
    function=torch.relu,
)
