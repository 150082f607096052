"""Axes and colours that all pictures share."""

from typing import Any

import numpy as np

# Told apart by people who see few colours too (Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
FAINT = "#b0b0b0"


def new_axes(ax: Any, n_panels: int = 1) -> Any:
    """The axes to draw on: those given, or new ones; several panels come as an array."""
    if ax is not None:
        given = np.atleast_1d(ax)
        if len(given) != n_panels:
            wanted = "one" if n_panels == 1 else f"{n_panels} of them"
            raise ValueError(f"Got ax with {len(given)} axes, but expected {wanted}.")
        return given
    try:
        import matplotlib.pyplot as plt  # an extra
    except ModuleNotFoundError as error:
        raise ImportError("Pictures need matplotlib: pip install mixupe-sklearn[plots].") from error
    _, axes = plt.subplots(1, n_panels, figsize=(5.2 * n_panels, 3.8), layout="constrained")
    return np.atleast_1d(axes)


def tidy(ax: Any, *, x: str, y: str) -> None:
    """Axes as all of ours look: named, with a faint grid and no frame on the right and above."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(True, color="#e6e6e6", linewidth=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def next_colour(ax: Any) -> str:
    """The next colour of these axes that has not been drawn with."""
    used = {line.get_color() for line in ax.get_lines()}
    return next((colour for colour in COLOURS if colour not in used), COLOURS[0])
