"""The tabular table of the MixupE paper, as data.

Source: Y. Zou, V. Verma, S. Mittal, W. H. Tang, H. Pham, J. Kannala, Y. Bengio, A. Solin and
K. Kawaguchi, "MixupE: Understanding and Improving Mixup from Directional Derivative Perspective",
UAI 2023, section "Tabular Datasets": test error in percent, mean and deviation over five trials.
"""

from typing import NamedTuple

from benchmarks._tabular.protocol import PAPER_METHODS as METHODS


class Figure(NamedTuple):
    """A mean and its standard deviation, as printed in the paper."""

    mean: float
    deviation: float


# By OpenML's name and id of the dataset, in the order of the paper: ERM, Mixup, MixupE.
_TABLE = {
    ("arrhythmia", 5): ((34.60, 3.10), (35.49, 3.88), (34.85, 3.99)),
    ("letter", 6): ((4.56, 0.27), (3.71, 0.18), (4.04, 0.20)),
    ("balance-scale", 11): ((3.87, 1.03), (3.70, 1.00), (3.68, 0.97)),
    ("mfeat-factors", 12): ((2.74, 0.81), (2.44, 0.42), (2.56, 0.64)),
    ("mfeat-fourier", 14): ((17.69, 1.76), (17.80, 1.56), (17.57, 1.60)),
    ("mfeat-karhunen", 16): ((3.74, 0.58), (3.06, 0.29), (2.47, 0.32)),
    ("mfeat-morphological", 18): ((25.00, 2.10), (24.62, 1.83), (24.66, 1.30)),
    ("mfeat-zernike", 22): ((17.58, 1.72), (15.19, 1.73), (15.55, 0.62)),
    ("cmc", 23): ((45.77, 1.49), (46.67, 1.83), (45.42, 2.05)),
    ("optdigits", 28): ((1.48, 0.19), (1.15, 0.21), (1.33, 0.14)),
    ("pendigits", 32): ((1.03, 0.25), (0.76, 0.19), (0.72, 0.16)),
    ("iris", 61): ((9.06, 7.01), (8.14, 6.48), (7.29, 6.95)),
    ("mnist_784", 554): ((2.83, 0.11), (2.57, 0.05), (2.56, 0.14)),
    ("abalone", 1557): ((35.05, 0.61), (35.07, 0.69), (34.91, 0.70)),
    ("volkert", 41166): ((33.26, 0.62), (32.74, 0.76), (32.54, 0.61)),
}
FIGURES = {
    name: dict(zip(METHODS, (Figure(*cell) for cell in cells), strict=True))
    for (name, _), cells in _TABLE.items()
}

DATA_IDS = dict(list(_TABLE))  # OpenML has other datasets of the same names
EMBEDDED = ("iris", "balance-scale")  # datasets of the paper that come with the package


def name_of(source: str, name: str, data_id: float) -> str:
    """Return the paper's name of a dataset; blank if the paper does not have it."""
    if source == "embedded":
        return name if name in EMBEDDED else ""
    return next((n for n, i in DATA_IDS.items() if source == "openml" and i == data_id), "")


def place_of(name: str) -> int:
    """Return the row of a dataset in the paper's table; those that it lacks come last."""
    names = list(FIGURES)
    return names.index(name) if name in names else len(names)
