"""Figures of the MixupE paper on images and speech, for the order of its methods.

Most are in the package's recipes. Here are those of no single training: Y. Zou, V. Verma,
S. Mittal, W. H. Tang, H. Pham, J. Kannala, Y. Bengio, A. Solin and K. Kawaguchi, "MixupE:
Understanding and Improving Mixup from Directional Derivative Perspective", UAI 2023, "Ablation
Experiments" and "Sensitivity to hyperparameter eta". Our runs are of subsets, small networks and
few epochs: it is the order of the methods that can be compared, not the values.
"""

from benchmarks._signals.deforming import COLUMNS, DEFORMATIONS
from mixupe_sklearn.recipes import RECIPES

METHODS = ("erm", "mixup", "mixupe")
# CIFAR-100, PreActResNet-50: test error (%), means of five runs.
ABLATION = {"erm": 24.68, "mixup": 23.03, "erm+penalty": 22.42, "mixupe": 20.23}
BY_ETA = {1e-4: 20.23, 1e-3: 20.84, 1e-2: 21.01, 1e-1: 20.87}

# CIFAR-100, PreActResNet-18: accuracy (%) on deformed test pictures, by column of our rows.
_DEFORMED = RECIPES["cifar100-preactresnet18"].figures
DEFORMED = {
    column: {name: mean for name, (mean, _) in _DEFORMED[f"accuracy, {how.head}"].items()}
    for column, how in zip(COLUMNS, DEFORMATIONS.values(), strict=True)
}


def errors_on(dataset: str) -> dict[str, dict[str, tuple[float, float | None]]]:
    """The paper's test errors (%), mean and deviation, by network and method; none if it has none.

    Parameters
    ----------
    dataset : str
        A name of ours, which begins with that of the data set it was taken from.

    Examples
    --------
    >>> errors_on("cifar10_subset")["wideresnet28-10"]["mixupe"]
    (2.94, 0.048)
    >>> errors_on("digits")
    {}
    """
    # A name goes on with something else than a digit: cifar100 is not taken from cifar10.
    begins = dataset.replace("_", "-") + "-"
    return {
        recipe.module: dict(recipe.figures["error"])
        for recipe in RECIPES.values()
        if "error" in recipe.figures and begins.startswith(recipe.name.split("-")[0] + "-")
    }
