"""The sigmoid linear unit."""

import torch
from torch import nn

from mixupe_sklearn._engine.layers import Elementwise

LAYER = Elementwise(
    nn.SiLU,
    forward=torch.ops.aten.silu.out,
    backward=torch.ops.aten.silu_backward.grad_input,
    function=nn.functional.silu,
    saves="input",
)
