"""Axes, colours and labels that all figures share."""

from typing import Any

import numpy as np

# Distinguishable with colour blindness (Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
FAINT = "#b0b0b0"
# Lines with up to this many points get markers. A single point would be invisible without one.
FEW_POINTS = 15


def new_axes(ax: Any, n_panels: int = 1) -> Any:
    """The axes to draw on, as an array: the given ones, or new ones."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise ImportError("Figures need matplotlib: pip install mixupe-sklearn[plots].") from error
    if ax is None:
        _, axes = plt.subplots(1, n_panels, figsize=(5.2 * n_panels, 3.8), layout="constrained")
        return np.atleast_1d(axes)
    given = np.ravel(ax)
    wanted = "matplotlib Axes" if n_panels == 1 else f"{n_panels} matplotlib Axes"
    if not all(isinstance(one, plt.Axes) for one in given):
        raise TypeError(f"Got ax={ax!r}, but expected {wanted}, or None for new ones.")
    if len(given) != n_panels:
        raise ValueError(f"Got ax with {len(given)} axes, but expected {wanted}.")
    return given


def line_style(ax: Any, line_kw: dict[str, Any], n_points: int, **ours: Any) -> dict[str, Any]:
    """Line properties: our defaults, overridden by the user's; few points get markers."""
    from matplotlib.cbook import normalize_kwargs
    from matplotlib.lines import Line2D

    used = {line.get_color() for line in ax.get_lines()}
    colour = next((colour for colour in COLOURS if colour not in used), COLOURS[0])
    marker = "o" if n_points <= FEW_POINTS else ""
    how = {"color": colour, "linewidth": 1.8, "marker": marker, "markersize": 4, **ours}
    return how | normalize_kwargs(line_kw, Line2D)


def tidy(ax: Any, *, x: str, y: str) -> None:
    """Format axes as all our figures: labels, a faint grid, no frame on the right and on top."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(True, color="#e6e6e6", linewidth=0.8)
    ax.set_axisbelow(True)
    if x == "epoch":
        ax.xaxis.get_major_locator().set_params(integer=True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def plain_label(name: Any) -> str:
    """Escape a name so that matplotlib shows it as it is.

    matplotlib parses text between two dollar signs as a formula and may fail. It leaves labels
    with a leading underscore out of legends. No font has control characters.
    """
    text = "".join(char if char.isprintable() else " " for char in str(name))
    text = text.strip().replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
