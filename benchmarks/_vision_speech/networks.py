"""Networks as the command line writes them: a name, with arguments in brackets."""

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from mixupe_sklearn.modules import NAMED
from mixupe_sklearn.recipes import RECIPES, Recipe, recipe

SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "small-preactresnet": ("preactresnet18", {"width": 16, "blocks": (1, 1, 1, 1)}),
    "small-wideresnet": ("wideresnet28-10", {"depth": 10, "widening": 1}),
}
# What a recipe sets of a training; its alpha and eta are defaults of the command line.
OF_RECIPE = (
    *("optimizer", "optimizer_params", "lr", "lr_schedule", "weight_decay"),
    *("max_epochs", "batch_size", "callbacks", "augment", "image_size"),
)


@dataclass(frozen=True)
class Network:
    """A module by name, its parameters, and the training of its recipe if it has one."""

    name: str
    module: str
    module_params: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    recipe: Recipe | None = None


def network_of(text: str) -> Network:
    """Read a network such as ``"vgg11(width=8)"``."""
    found = re.fullmatch(r"\s*([\w.-]+)\s*(?:\((.*)\))?\s*", text)
    name, arguments = found.groups() if found else (text, None)
    module, params = SMALL.get(name, (name, {}))
    if module not in NAMED and name not in RECIPES:
        raise ValueError(
            f"Got network {text!r}, but expected one of {', '.join([*SMALL, *NAMED])}, with "
            f"optional arguments in brackets: 'vgg11(width=8)'; or a recipe, such as "
            f"'cifar10-preactresnet50(scale=0.1)'."
        )
    given = _arguments(text, arguments or "")
    inside = ", ".join(f"{key}={value!r}" for key, value in given.items())
    shown = f"{name}({inside})" if inside else name
    if name in RECIPES:
        scale, own = given.pop("scale", 1.0), recipe(name)  # scale makes a recipe smaller
        made = own.make_estimator(scale=scale, module_params=given).get_params(deep=False)
        training = {key: made[key] for key in OF_RECIPE if key in made}
        return Network(shown, made["module"], made["module_params"] or {}, training, own)
    return Network(shown, module, params | given)


def _arguments(text: str, arguments: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("each argument needs a name")
        return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"Got network {text!r}, but expected arguments such as 'vgg11(width=8)' "
            f"({' '.join(str(error).split())})."
        ) from error
