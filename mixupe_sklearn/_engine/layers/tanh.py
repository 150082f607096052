"""The hyperbolic tangent."""

import torch
from torch import nn

from mixupe_sklearn._engine.layers import Elementwise

LAYER = Elementwise(
    nn.Tanh,
    forward=torch.tanh,
    backward=torch.ops.aten.tanh_backward.grad_input,
    function=torch.tanh,
)
