"""What all displays share: their axes, their names, and figures of several of them."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from mixupe_sklearn._utils.plotting import new_axes


class Display:
    """Curves of one training or classifier, in the style of scikit-learn's displays."""

    # Number of axes that a figure has.
    _n_axes: ClassVar[int] = 1
    name: str | None = None

    @classmethod
    def _of_all(cls, estimators: Any, *data: Any, ax: Any, **how: Any) -> dict[str, Self]:
        """Plot estimators by name, or a single one without, on the same axes."""
        axes = new_axes(ax, cls._n_axes)
        by_name = estimators if isinstance(estimators, Mapping) else {"": estimators}
        return {
            name: cls.from_estimator(one, *data, name=name or None, ax=axes, **how)  # type: ignore[attr-defined]
            for name, one in by_name.items()
        }

    def plot(self, ax: Any = None, *, name: str | None = None, **line_kw: Any) -> Self:
        """Plot the curves.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on, a pair if the display has two; None creates new ones.
        name : str or None, default=None
            Label in the legend; None means the name of the display.
        **line_kw : dict
            Passed on to matplotlib's ``plot``.
        """
        axes = new_axes(ax, self._n_axes)
        self.ax_ = axes if self._n_axes > 1 else axes[0]
        self.figure_ = axes[0].figure
        self._draw(self.ax_, name or self.name, line_kw)
        return self

    def _draw(self, ax: Any, label: str | None, line_kw: dict[str, Any]) -> None:
        raise NotImplementedError
