"""The classifier as the paper trains it: one network, whose every step a test can follow."""

from mixupe_sklearn import MixupEClassifier, preset


def paper_classifier(**params):
    """The paper's settings, and what a test changes of them."""
    return MixupEClassifier(**preset("paper") | params)
