"""Diagnostics of Mixup training: directional derivatives, a monitor, and figures.

Nothing is trained here. Figures need matplotlib (the extra ``plots``).
"""

from mixupe_sklearn._diagnostics.complexity import GLMComplexity, glm_complexity
from mixupe_sklearn._diagnostics.derivatives import DirectionalDerivatives, directional_derivatives
from mixupe_sklearn._diagnostics.monitor import DerivativeMonitor
from mixupe_sklearn._diagnostics.plot_predictions import (
    ReliabilityDisplay,
    plot_decision_boundary,
    plot_reliability,
)
from mixupe_sklearn._diagnostics.plot_training import (
    AlphaMinDisplay,
    LossCurvesDisplay,
    PenaltyDisplay,
    plot_alpha_min,
    plot_loss_curves,
    plot_penalty,
)

__all__ = [
    "AlphaMinDisplay",
    "DerivativeMonitor",
    "DirectionalDerivatives",
    "GLMComplexity",
    "LossCurvesDisplay",
    "PenaltyDisplay",
    "ReliabilityDisplay",
    "directional_derivatives",
    "glm_complexity",
    "plot_alpha_min",
    "plot_decision_boundary",
    "plot_loss_curves",
    "plot_penalty",
    "plot_reliability",
]
