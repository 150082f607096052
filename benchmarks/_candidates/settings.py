"""The candidates for the defaults, and the defaults with one ingredient taken away each time.

A candidate is what it sets in the classifier and in the preprocessor, on top of the paper's
settings, and a line that says why it is tried. Add a line here, run ``python -m
benchmarks.candidates``, and its rows are added; a line that is changed is run again.
"""

from typing import Any

from benchmarks._tabular.own import Settings, paper_settings

Params = dict[str, Any]

# Parts that many candidates share. The exploration before (see docs/tables.md) had found that rates
# above the paper's pay with a schedule, and that rows set aside must end the training.
FOLDS: Params = {
    "n_members": 8,
    "early_stopping": True,
    "validation_fraction": 0.125,
    "lr_schedule": "cosine",
    "lr": 0.003,
    "max_epochs": 50,
    "min_steps": 500,
}
TEAMS = FOLDS | {"alpha": (0.02, 0.2), "lr": 0.005}
QUARTER = TEAMS | {"validation_fraction": 0.25}
GELU = QUARTER | {"module": "mlp-gelu"}
ROBUST: Params = {"scaling": "robust"}

CANDIDATES: dict[str, tuple[Params, Params, str]] = {
    "paper": ({}, {}, "the paper's network and training, our earlier defaults"),
    "no-stopping": (FOLDS | {"early_stopping": False}, {}, "members, schedule and length alone"),
    "folds": (FOLDS, {}, "where long training hurts, rows set aside end it"),
    "folds-faster": (FOLDS | {"lr": 0.005}, {}, "a higher rate"),
    "four-teams": (FOLDS | {"alpha": (0.01, 0.05, 0.2, 0.5)}, {}, "from hardly any to much mixing"),
    "two-teams": (TEAMS, {}, "weak and strong mixing, weighed by rows set aside"),
    "weak-penalty": (TEAMS | {"eta": 0.1}, {}, "a smaller penalty"),
    "wide": (TEAMS | {"module_params": {"d_hidden": (256, 256)}}, {}, "twice the width"),
    "small-batches": (TEAMS | {"batch_size": 64}, {}, "more steps an epoch"),
    "long": (TEAMS | {"max_epochs": 100, "n_iter_no_change": 20}, {}, "twice the length"),
    "onecycle": (TEAMS | {"lr_schedule": "onecycle"}, {}, "a rate that rises first"),
    "quarter": (QUARTER, {}, "each row is set aside once by a member of each team"),
    "quarter-gelu": (GELU, {}, "a smooth network"),
    "quarter-gelu-robust": (GELU, ROBUST, "outliers do not squeeze the other rows"),
    "quarter-robust": (QUARTER, ROBUST, "the same with ReLU"),
    "quarter-gelu-quantile": (GELU, {"scaling": "quantile"}, "every column is a normal one"),
    "quarter-gelu-splines": (
        GELU,
        {"scaling": "splines"},
        "steps within a column are easy to learn",
    ),
}


def candidate_settings() -> dict[str, Settings]:
    """Everything that each candidate sets, the paper's settings included."""
    return {name: on_paper(params, inputs) for name, (params, inputs, _) in CANDIDATES.items()}


def on_paper(params: Params, inputs: Params) -> Settings:
    """Settings on top of the paper's.

    Examples
    --------
    >>> on_paper({"module": "mlp-gelu"}, {}).effective().classifier["module_params"]["activation"]
    'gelu'
    """
    paper = paper_settings()
    return Settings(paper.classifier | params, paper.preprocessor | inputs)


# What is set back to the paper's value for an ingredient to be taken away.
INGREDIENTS: dict[str, tuple[str, ...]] = {
    "members": ("n_members",),
    "schedule": ("lr_schedule",),
    "length": ("max_epochs", "min_steps"),
    "early stopping": ("early_stopping", "validation_fraction", "n_iter_no_change", "tol"),
    "own alpha and eta": ("alpha", "eta", "beta"),
    "own optimizer": ("optimizer", "optimizer_params", "lr", "weight_decay", "batch_size"),
    "own network": ("module", "module_params"),
}
# Where the ingredient is the method itself.
METHODS = {"mixing": "erm+penalty", "penalty": "mixup", "mixing and penalty": "erm"}


def ablation_settings() -> dict[str, Settings]:
    """The defaults of today, the same without one ingredient each, and the paper's preset.

    An ingredient that the defaults do not have cannot be taken away, and is not there.
    """
    default, paper = Settings({}, {}), paper_settings()
    values = paper.effective().classifier
    less = {
        name: Settings({param: values[param] for param in params}, {})
        for name, params in INGREDIENTS.items()
    }
    less["inputs"] = Settings({}, paper.preprocessor)
    less |= {name: Settings({"method": method}, {}) for name, method in METHODS.items()}
    found = {f"without {name}": settings for name, settings in less.items()}
    text = default.unlike_paper()
    found = {name: one for name, one in found.items() if one.unlike_paper() != text}
    return {"default": default, **found, "paper": paper}
