"""Torch modules, one file per family. They do not depend on the rest of the package."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from torch import nn

from mixupe_sklearn.modules.coatnet import CoAtNet
from mixupe_sklearn.modules.lenet import LeNet
from mixupe_sklearn.modules.mlp import MLP
from mixupe_sklearn.modules.preact_resnet import PreActResNet, WideResNet
from mixupe_sklearn.modules.resnet import ResNet
from mixupe_sklearn.modules.vgg import VGG
from mixupe_sklearn.modules.vit import ViT

# The paper's networks for images and spectrograms, by name.
NAMED: dict[str, Callable[..., nn.Module]] = {
    "lenet": LeNet,
    "vgg11": partial(VGG, depth=11),
    "vgg13": partial(VGG, depth=13),
    "preactresnet18": partial(PreActResNet, depth=18),
    "preactresnet34": partial(PreActResNet, depth=34),
    "preactresnet50": partial(PreActResNet, depth=50),
    "preactresnet101": partial(PreActResNet, depth=101),
    "wideresnet28-10": partial(WideResNet, depth=28, widening=10),
    "resnet50": partial(ResNet, depth=50),
    "vit-b16": ViT,
    "coatnet0": CoAtNet,
}

__all__ = [
    "GIN",
    "MLP",
    "NAMED",
    "VGG",
    "CoAtNet",
    "LeNet",
    "PreActResNet",
    "ResNet",
    "ViT",
    "WideResNet",
]


def __getattr__(name: str) -> Any:
    """Import the graph network on first access, because it needs an extra."""
    if name != "GIN":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = import_module("mixupe_sklearn.modules.gin").GIN
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
