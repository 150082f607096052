"""What the parameters of the method may be."""

import math

import numpy as np

from mixupe_sklearn._method.penalties import HEADS
from mixupe_sklearn._utils.parameter_rules import FLAG, Choice, Kind, Number, Rule

# The rules of the method's parameters; the estimators check the same ones in ``fit``.
METHOD_RULES: dict[str, Rule] = {
    "method": Choice(("mixupe", "mixup", "erm", "erm+penalty")),
    "penalty": Choice(("logit", "directional")),
    "penalty_order": Number("1 or 2", low=1, high=3, integer=True),
    "alpha": Number("a number >= 0"),
    "beta": Number("a number >= 0, or None for alpha", or_none=True),
    "eta": Number("a number >= 0"),
    "penalty_fraction": Number(
        "a number above 0 and up to 1", high=math.nextafter(1.0, 2.0), open_low=True
    ),
    "lam_per": Choice(("batch", "sample")),
    "mix_at": Choice(("input", "hidden")),
    "single_pass": FLAG,
}
LOSS_RULES: dict[str, Rule] = {
    "head": Choice(tuple(HEADS)),
    "random_state": Kind(
        "a whole number, a numpy Generator or None", (int, np.integer, np.random.Generator), True
    ),
}
