"""The classifier as the paper trains it: one network, whose every step a test can follow."""

from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline, make_preprocessor, preset


def paper_classifier(**params):
    """The paper's settings, and what a test changes of them."""
    return MixupEClassifier(**preset("paper") | params)


def paper_pipeline(**params):
    """The same behind the paper's inputs."""
    inputs = make_preprocessor(scaling="standard")
    return make_mixupe_pipeline(preprocessor=inputs, **preset("paper") | params)
