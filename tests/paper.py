"""The estimators with the settings of the paper: one network."""

from mixupe_sklearn import (
    MixupEClassifier,
    MixupERegressor,
    make_mixupe_pipeline,
    make_preprocessor,
    preset,
)


def paper_classifier(**params):
    """The classifier of the paper, with changes of a test."""
    return MixupEClassifier(**preset("paper") | params)


def paper_regressor(**params):
    """The regressor with the network and the training of the paper, with changes of a test."""
    return MixupERegressor(**preset("paper") | params)


def paper_pipeline(**params):
    """The same after the preprocessing of the paper."""
    inputs = make_preprocessor(scaling="standard", n_bins=0)
    return make_mixupe_pipeline(preprocessor=inputs, **preset("paper") | params)
