"""What a penalty on a share of the rows costs in error: ``python -m benchmarks.penalty_fraction``.

MixupE with ``penalty_fraction`` of 1, 0.5, 0.25 and 0.1, and Mixup, which has no penalty, as the
reference: once with ``preset("paper")``, and once with a strong penalty, since the preset weighs it
lightly and could not show what a share keeps of it. Time is measured by ``benchmarks.speed``, not
here. How candidates are compared is told in ``benchmarks/_paired.py``.
"""

import sys

from benchmarks._paired import AGAIN, Study

STUDY = Study(
    name="penalty_fraction",
    # Nothing is changed, or the weight of the penalty: E[1-lam] is 1/3 in the second, seven times
    # that of the preset.
    settings={"default": {}, "strong": {"alpha": 1.0, "eta": 1.0}},
    candidates={
        "full penalty": {"penalty_fraction": 1.0},
        "fraction 0.5": {"penalty_fraction": 0.5},
        "fraction 0.25": {"penalty_fraction": 0.25},
        "fraction 0.1": {"penalty_fraction": 0.1},
        "Mixup": {"method": "mixup"},
        AGAIN: {"penalty_fraction": 1.0},
    },
    told=("method", "alpha", "eta", "penalty_fraction", "lr", "max_epochs", "batch_size"),
    description="What a penalty on a share of the rows costs in error.",
)

if __name__ == "__main__":
    sys.exit(STUDY.main())
