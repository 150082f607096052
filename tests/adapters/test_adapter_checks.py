"""Those of scikit-learn's checks that ask for no table: its others feed rows of two dimensions."""

import inspect

import pytest
from sklearn.utils import estimator_checks, get_tags

from mixupe_sklearn import (
    MixupEGraphClassifier,
    MixupEImageClassifier,
    MixupESpeechClassifier,
    Spectrogram,
)
from mixupe_sklearn.adapters._parameters import SignalParameters

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


@pytest.mark.parametrize("kind", [MixupEImageClassifier, MixupESpeechClassifier])
def test_every_parameter_is_kept_and_the_shared_ones_have_one_order(kind):
    own = list(inspect.signature(kind).parameters)
    shared = list(inspect.signature(SignalParameters).parameters)
    assert [name for name in own if name in shared] == shared
    values = {name: object() for name in own}
    assert kind(**values).get_params(deep=False) == values


def test_tags_say_what_goes_in():
    tags = get_tags(MixupEImageClassifier())
    assert tags.estimator_type == "classifier"
    assert tags.classifier_tags.multi_label
    assert not tags.input_tags.two_d_array
