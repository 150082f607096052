"""The Gaussian error linear unit, in its exact form."""

import torch
from torch import nn

from mixupe_sklearn._engine.layers import Elementwise

LAYER = Elementwise(
    nn.GELU,
    forward=torch.ops.aten.gelu.out,
    backward=torch.ops.aten.gelu_backward.grad_input,
    function=nn.functional.gelu,
    saves="input",
    expected={"approximate": "none"},
)
