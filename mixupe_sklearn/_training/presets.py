"""Settings by name: those of the paper, beside the defaults of the estimators."""

from typing import Any

from mixupe_sklearn._utils.parameter_rules import Choice, check_rules

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "method": "mixupe",
        "penalty": "logit",
        "penalty_order": 1,
        "alpha": 0.05,
        "beta": None,
        "eta": 1.0,
        "penalty_fraction": 1.0,
        "lam_per": "batch",
        "mix_at": "input",
        "n_members": 1,
        "module": "mlp",
        "module_params": None,  # two hidden layers of 128 with ReLU
        "optimizer": "adam",
        "lr": 0.001,
        "lr_schedule": "constant",
        "weight_decay": 0.0,
        "max_epochs": 25,
        "min_steps": 0,
        "batch_size": 100,
        "early_stopping": False,
        "validation_fraction": 0.1,
        "n_iter_no_change": 10,
        "tol": 1e-4,
    },
}


def preset(name: str) -> dict[str, Any]:
    """Return settings by name, as parameters of :class:`MixupEClassifier`.

    Parameters
    ----------
    name : {"paper"}
        ``"paper"`` is the network and the training of the paper's tabular experiments: one network
        of 128-128, Adam with 0.001, batches of 100, 25 epochs. The paper searches ``alpha`` and
        ``eta`` for each table; here they are the pair of its grid that did best on validation
        rows of its data sets. Its inputs are those of ``make_preprocessor(scaling="standard")``.

    Returns
    -------
    params : dict
        A new one, to be changed at will.

    Examples
    --------
    >>> from mixupe_sklearn import MixupEClassifier, preset
    >>> MixupEClassifier(**preset("paper") | {"alpha": 0.2}).max_epochs
    25
    """
    check_rules({"name": name}, {"name": Choice(tuple(PRESETS))})
    return dict(PRESETS[name])
