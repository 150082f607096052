"""scikit-learn's checks that need no data. Its other checks fit arrays of two dimensions."""

import inspect

import pytest
from sklearn.utils import estimator_checks, get_tags

from mixupe_sklearn import (
    MixupEGraphClassifier,
    MixupEImageClassifier,
    MixupESpeechClassifier,
    Spectrogram,
)

CHECKS = [
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
]


@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings on purpose
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "kind",
    [MixupEImageClassifier, MixupESpeechClassifier, Spectrogram, MixupEGraphClassifier],
    ids=lambda k: k.__name__,
)
def test_scikit_learns_checks_without_data_pass(kind, check):
    getattr(estimator_checks, check)(kind.__name__, kind())


CLASSIFIERS = [MixupEImageClassifier, MixupESpeechClassifier, MixupEGraphClassifier]


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_the_constructor_stores_every_parameter(kind):
    values = {name: object() for name in inspect.signature(kind).parameters}
    assert kind(**values).get_params(deep=False) == values


def test_shared_parameters_have_the_same_order():
    names = [list(inspect.signature(kind).parameters) for kind in CLASSIFIERS]
    for own in names[1:]:
        assert [name for name in own if name in names[0]] == [n for n in names[0] if n in own]


def test_tags_describe_the_input():
    tags = get_tags(MixupEImageClassifier())
    assert tags.estimator_type == "classifier"
    assert tags.classifier_tags.multi_label
    assert not tags.input_tags.two_d_array
