"""A fitted estimator as one torch module: centring, members, heads and target scale."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from mixupe_sklearn._method.formulas import HEADS
from mixupe_sklearn._method.forward import as_logits
from mixupe_sklearn._net.net import float_type


def has_single_logit(estimator: Any) -> bool:
    """Whether one logit stands for two classes; multi-label targets have one logit per label."""
    return (
        hasattr(estimator, "classes_")
        and estimator.net_.criterion_.head == "sigmoid"
        and not estimator._labels.are_several
        and len(estimator.classes_) == 2
    )


class PlainModel(nn.Module):
    """Maps samples to probabilities, or to predictions on the scale of the targets.

    Its parts are copies: further training of the estimator does not change them.
    """

    centre: Tensor
    width: Tensor | None
    scale: Tensor | None
    offset: Tensor

    def __init__(self, estimator: Any):
        super().__init__()
        modules = [copy.deepcopy(net.module_) for net in estimator.nets_]
        self.members = nn.ModuleList(modules).cpu().eval().requires_grad_(False)
        self.heads = [net.criterion_.head for net in estimator.nets_]
        self.member_type = float_type(estimator.net_)
        self.weights = [float(weight) for weight in estimator.member_weights_]
        self.is_single = has_single_logit(estimator)
        inputs = (("centre", "X_mean_"), ("width", "X_scale_"))
        for name, own in (*inputs, ("scale", "y_scale_"), ("offset", "y_mean_")):
            values = getattr(estimator, own, None)
            tensor = None if values is None else torch.tensor(values, dtype=torch.float64)
            self.register_buffer(name, tensor)
        self.eval()

    def forward(self, X: Tensor) -> Tensor:
        """Return what the estimator predicts, in double precision."""
        n_features = self.centre.shape[0]
        if X.ndim != 2 or X.shape[1] != n_features:  # one column would broadcast silently
            raise ValueError(
                f"Got X of shape {tuple(X.shape)}, but expected (n_samples, {n_features})."
            )
        rows = X.double() - self.centre
        if self.width is not None:
            rows = rows / self.width
        rows = rows.to(self.member_type)
        mean = torch.zeros((), dtype=torch.float64)
        for weight, head, member in zip(self.weights, self.heads, self.members, strict=True):
            mean = mean + weight * HEADS[head].mean(as_logits(member(rows)).double())
        if self.is_single:
            mean = torch.cat([1 - mean, mean], dim=1)
        return mean if self.scale is None else mean * self.scale + self.offset
