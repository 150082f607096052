"""Wrong input raises one sentence: the name, the value, and the expectation."""

import re
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from paper import paper_classifier
from scipy import sparse
from skorch.callbacks import Checkpoint, EpochTimer, LRScheduler

from mixupe_sklearn import MixupEClassifier, MixupERegressor, preset
from mixupe_sklearn._method.criterion import METHOD_RULES
from mixupe_sklearn._training.config import TRAINING_RULES
from mixupe_sklearn._utils.parameter_rules import Choice, Kind, Number

RULES = {**METHOD_RULES, **TRAINING_RULES}


def bad_values(rule):
    """Values that violate a rule of any kind."""
    if isinstance(rule, Number):
        values = [rule.low - 1, float("nan"), float("inf"), "many", True]
        values += [rule.low] if rule.open_low else []
        values += [rule.high] if np.isfinite(rule.high) else []
        values += [rule.low + 0.5] if rule.integer else []
        return values + ([] if rule.or_none else [None])
    if isinstance(rule, Choice):
        return ["unknown", None, 1]
    assert isinstance(rule, Kind)
    return ["a word", 0.5]


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, rule in RULES.items() for value in bad_values(rule)]
)
@pytest.mark.parametrize("estimator_class", [MixupEClassifier, MixupERegressor])
def test_every_rule_is_checked_in_fit_with_its_sentence(iris, estimator_class, name, value):
    estimator = estimator_class(**{name: value})
    message = f"Got {name}={value!r}, but expected {RULES[name].expected}."
    for method in (estimator.fit, estimator.partial_fit):
        kwargs = {"classes": [0, 1, 2]} if method == estimator.partial_fit else {}
        kwargs = kwargs if estimator_class is MixupEClassifier else {}
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            method(*iris, **kwargs)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"optimizer": "adm"},
            "Got optimizer='adm', but expected one of 'adam', 'adamw', 'nadam', 'rmsprop', 'sgd'.",
        ),
        (
            {"optimizer": 3},
            "Got optimizer=3, but expected a torch optimizer class or one of the names "
            "'adam', 'adamw', 'nadam', 'rmsprop', 'sgd'.",
        ),
        ({"device": "gpu"}, "Got device='gpu', but expected one of 'auto', 'cpu', 'cuda', 'mps'."),
        (
            {"module": "transformer"},
            "Got module='transformer', but expected one of 'mlp', 'mlp-gelu', 'mlp-tabular'.",
        ),
        (
            {"module": torch.nn.Linear(4, 3)},
            "Got module=Linear(...), but expected a name, a module "
            "class, or a function that returns a new module.",
        ),
        (
            {"module_params": {"n_outputs": 7}},
            "Got a module with 7 outputs, but expected 3 for these targets; set their number in module_params.",
        ),
        (
            {"class_weight": "even"},
            "Got class_weight='even', but expected a dict, 'balanced' or None.",
        ),
        ({"class_weight": {0: -1}}, "Got class_weight={0: -1}, but expected numbers >= 0."),
        (
            {"class_weight": {9: 1}},
            "Got class_weight for the label 9, but expected some of [0, 1, 2].",
        ),
        (
            {"module_params": {"activation": "step"}},
            "Got activation='step', but expected one of "
            "'relu', 'gelu', 'silu', 'tanh', 'identity'.",
        ),
        (
            {"mix_at": "hidden", "module_params": {"d_hidden": ()}},
            "Got mix_at='hidden' with a MLP, "
            "but expected a module with at least two 'stages', or with 'encode' and 'head'.",
        ),
    ],
)
def test_names_and_objects(iris, params, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        paper_classifier(**params).fit(*iris)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"alpha": ()}, "Got alpha=(), but expected a number >= 0, or several of them."),
        ({"eta": []}, "Got eta=[], but expected a number >= 0, or several of them."),
        # Checked although a single network uses the first value only.
        ({"alpha": (0.1, -1)}, "Got alpha=-1, but expected a number >= 0."),
        ({"n_members": 2, "alpha": (0.1, -1)}, "Got alpha=-1, but expected a number >= 0."),
        ({"n_members": 2, "eta": [0.1, "big"]}, "Got eta='big', but expected a number >= 0."),
        (
            {"lr_schedule": "linear"},
            "Got lr_schedule='linear', but expected one of 'constant', 'cosine', 'onecycle'.",
        ),
    ],
)
@pytest.mark.parametrize("estimator_class", [MixupEClassifier, MixupERegressor])
def test_members_and_schedules(iris, estimator_class, params, message):
    estimator = estimator_class(**preset("paper") | params)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        estimator.fit(*iris)
    assert not hasattr(estimator, "n_features_in_")


class OwnSchedule(LRScheduler):
    """A user's subclass."""


@pytest.mark.parametrize(
    "callback",
    [LRScheduler("StepLR", step_size=2), ("rate", LRScheduler("StepLR", step_size=2)), OwnSchedule],
    ids=["callback", "pair", "class"],
)
def test_two_schedules_at_once(iris, callback):
    message = (
        "Got lr_schedule='cosine' and a schedule among the callbacks, but expected one of them: "
        "set lr_schedule='constant'."
    )
    for n_members in (1, 2):
        params = {"n_members": n_members, "lr_schedule": "cosine", "callbacks": [callback]}
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            paper_classifier(**params).fit(*iris)
    # Other callbacks are accepted.
    params = {"lr_schedule": "cosine", "callbacks": [("timer", EpochTimer()), EpochTimer]}
    assert paper_classifier(**params, max_epochs=1).fit(*iris).n_iter_ == 1


@pytest.mark.parametrize("name", ["papers", "", None, 3])
def test_an_unknown_preset(name):
    message = f"Got name={name!r}, but expected one of 'paper', 'fast', 'best'."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        preset(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_an_unavailable_device(iris):
    with pytest.raises(ValueError, match="Got device='cuda:1', but this machine has only 'cpu'"):
        paper_classifier(device="cuda:1").fit(*iris)


def test_missing_values_raise_with_the_column_and_the_remedy(iris):
    X, y = iris[0].copy(), iris[1]
    X[3:5, 2] = np.nan
    message = "contains NaN in column {} (2 of 150 rows), but expected finite numbers; fill missing values"
    with pytest.raises(ValueError, match=re.escape(message.format(2))) as error:
        paper_classifier().fit(X, y)
    assert "make_preprocessor()" in str(error.value)
    with pytest.raises(ValueError, match=re.escape(message.format("'petal'"))):
        paper_classifier().fit(pd.DataFrame(X, columns=["a", "b", "petal", "d"]), y)
    with pytest.raises(ValueError, match=re.escape(message.format(2))):
        paper_classifier().fit(sparse.csr_array(X), y)


def test_infinity_at_fit_and_at_predict(iris):
    X, y = iris
    bad = np.where(np.arange(4) == 1, np.inf, X)
    with pytest.raises(ValueError, match=r"contains infinity in column 1 \(150 of 150 rows\)"):
        paper_classifier().fit(bad, y)
    with pytest.raises(ValueError, match="contains infinity in column 1"):
        paper_classifier(max_epochs=1).fit(X, y).predict(bad)


def test_numbers_beyond_single_precision(iris):
    X, y = iris
    with pytest.raises(
        ValueError, match=r"holds a value of size 1e\+60, but expected at most 3.4e"
    ):
        paper_classifier().fit(np.where(X[0, 0] == X, 1e60, X), y)


def test_missing_values_in_targets_and_weights(iris, diabetes):
    X, y = iris
    with pytest.raises(ValueError, match="Input y contains NaN"):
        paper_classifier().fit(X, np.where(y == 0, np.nan, y))
    with pytest.raises(ValueError, match="Input y contains infinity"):
        MixupERegressor().fit(diabetes[0], np.where(diabetes[1] > 300, np.inf, diabetes[1]))
    for value in (np.nan, np.inf):
        weight = np.where(np.arange(150) == 7, value, 1.0)
        with pytest.raises(
            ValueError, match=f"Got sample_weight={value} at row 7, but expected finite"
        ):
            paper_classifier().fit(X, y, sample_weight=weight)


@pytest.mark.parametrize(
    "values",
    [["Oslo", "Bonn"], pd.to_datetime(["2020-01-01", "2021-01-01"]), pd.to_timedelta([1, 2])],
    ids=["text", "dates", "spans"],
)
def test_columns_without_numbers_raise_with_their_name_and_the_remedy(iris, values):
    frame = pd.DataFrame({"size": iris[0][:, 0], "odd": list(values) * 75})
    message = f"Column 'odd' of X holds {frame['odd'].dtype}, but expected numbers; encode it first"
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        paper_classifier().fit(frame, iris[1])
    assert "make_preprocessor()" in str(error.value)


def test_text_in_an_array_raises_with_the_remedy(iris):
    text = np.array(["Oslo", "Bonn"] * 75, dtype=object)[:, None]
    with pytest.raises(
        ValueError, match=r"holds the text 'Oslo', but expected numbers; .*make_prepro"
    ):
        paper_classifier().fit(text, iris[1])


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (
            np.where(np.arange(150) == 3, -1.0, 1.0),
            "Got sample_weight=-1.0 at row 3, but expected numbers >= 0.",
        ),
        (
            np.zeros(150),
            "Got sample_weight of all zero weights, but expected at least one above zero.",
        ),
        (
            np.ones(149),
            "Got sample_weight of shape (149,), but expected (150,), one weight per sample.",
        ),
        (
            np.ones((150, 2)),
            "Got sample_weight of shape (150, 2), but expected (150,), one weight per sample.",
        ),
    ],
)
def test_weights(iris, weight, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        paper_classifier().fit(*iris, sample_weight=weight)


def test_sample_weights_and_class_weights_that_leave_nothing(iris):
    with pytest.raises(ValueError, match="class_weight times sample_weight of all zero weights"):
        paper_classifier(class_weight={0: 0, 1: 0, 2: 0}).fit(*iris)


def test_columns_at_predict(iris):
    classifier = paper_classifier(max_epochs=1).fit(*iris)
    with pytest.raises(ValueError, match="X has 3 features, but MixupEClassifier is expecting 4"):
        classifier.predict(iris[0][:, :3])


def test_validation_samples_need_their_labels(iris):
    X, y = iris
    with pytest.raises(ValueError, match="Got X_val without y_val, but expected both or neither."):
        paper_classifier().fit(X, y, X_val=X)
    with pytest.raises(ValueError, match="Got y_val without X_val, but expected both or neither."):
        paper_classifier().fit(X, y, y_val=y)
    with pytest.raises(
        ValueError, match=r"Got the labels \[7\] in y_val, but expected some of \[0"
    ):
        paper_classifier().fit(X, y, X_val=X, y_val=np.where(y == 0, 7, y))
    with pytest.raises(ValueError, match="X_val does not fit: X has 2 features, but Mixup"):
        paper_classifier().fit(X, y, X_val=X[:, :2], y_val=y)
    with pytest.raises(ValueError, match="Input X_val contains NaN in column 0"):
        paper_classifier().fit(X, y, X_val=X * np.nan, y_val=y)
    with pytest.raises(ValueError, match="Got sample_weight_val without X_val"):
        paper_classifier().fit(X, y, sample_weight_val=np.ones(150))
    with pytest.raises(ValueError, match="Got sample_weight_val=-1.0 at row 0"):
        paper_classifier().fit(X, y, X_val=X, y_val=y, sample_weight_val=-np.ones(150))


@pytest.mark.filterwarnings("ignore:Got y with the single class:UserWarning")
def test_batch_norm_needs_two_samples_per_batch(iris):
    X, y = iris
    params = {"module_params": {"batch_norm": True}}
    with pytest.raises(
        ValueError, match=r"Got batches of one sample \(n_samples=150, batch_size=1\)"
    ):
        paper_classifier(batch_size=1, **params).fit(X, y)
    with pytest.raises(
        ValueError, match=r"Got batches of one sample \(n_samples=1, batch_size=100\)"
    ):
        paper_classifier(**params).fit(X[:1], y[:1])
    members = {"n_members": 2, "alpha": 0.5, "eta": 0.1, **params}
    with pytest.raises(
        ValueError, match=r"Got batches of one sample \(n_samples=150, batch_size=1\)"
    ):
        paper_classifier(batch_size=1, **members).fit(X, y)
    with pytest.raises(
        ValueError, match=r"Got batches of one sample \(n_samples=1, batch_size=100\)"
    ):
        paper_classifier(early_stopping=True, batch_size=100, **members).fit(X[:2], y[:2])
    # A single sample at the end of an epoch joins the batch before it.
    assert paper_classifier(batch_size=149, max_epochs=1, **params).fit(X, y).n_iter_ == 1


def test_fewer_samples_than_a_batch_give_one_warning(iris):
    X, y = iris
    message = "Got 30 training samples, fewer than batch_size=100: an epoch is a single step, so 25 epochs"
    with pytest.warns(UserWarning, match=message) as caught:
        paper_classifier().fit(X[::5], y[::5])
    assert len(caught) == 1


@pytest.mark.filterwarnings("ignore:Got y with the single class:UserWarning")
def test_a_single_sample_cannot_be_split(iris):
    with pytest.raises(ValueError, match="Got n_samples=1 with early_stopping=True, but expected"):
        paper_classifier(early_stopping=True).fit(iris[0][:1], iris[1][:1])


def test_targets_of_the_wrong_kind(iris, diabetes):
    X, y = iris
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        paper_classifier().fit(diabetes[0], diabetes[1] / 7)
    with pytest.raises(
        ValueError, match=r"Got y of shape \(150, 2\) with several classes per column"
    ):
        paper_classifier().fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="Got y=None at row 50, but expected a label for every"):
        paper_classifier().fit(X, np.array(["a", None, "b"], dtype=object)[y])
    with pytest.raises(ValueError, match="Got labels of the types int, str in y, but expected one"):
        paper_classifier().fit(X, np.array(["a", 1, "b"], dtype=object)[y])
    for values in ([-1, 1], [1, 2]):
        labels = np.array(values)[np.eye(3, dtype=int)[y]]
        message = r"Got y of shape \(150, 3\) with values from .* but expected zeros and ones in 3"
        for method in (paper_classifier().fit, paper_classifier().partial_fit):
            with pytest.raises(ValueError, match=message):
                method(X, labels)
    with pytest.raises(ValueError, match="Got class_weight={0: 1}, but expected a list of 3 dicts"):
        paper_classifier(class_weight={0: 1}).fit(X, np.eye(3, dtype=int)[y])
    with pytest.raises(ValueError, match="^Got y with the text 'a', but expected numbers.$"):
        MixupERegressor().fit(X, np.array(["a", "b", "c"])[y])
    mixed = np.array(["1", "b", 3], dtype=object)[y]
    with pytest.raises(ValueError, match="^Got y_val with the text 'b', but expected numbers.$"):
        MixupERegressor().fit(X, X[:, 0], X_val=X, y_val=mixed)
    with pytest.raises(ValueError, match="Got y_val with 2 columns, but expected 1"):
        MixupERegressor().fit(X, X[:, 0], X_val=X, y_val=X[:, :2])


def test_a_loss_that_becomes_non_finite(iris):
    X, y = iris
    classifier = paper_classifier(optimizer="sgd", lr=1e30, batch_size=10)
    with pytest.raises(FloatingPointError, match=r"non-finite in epoch 1, batch \d+: mixup_loss="):
        classifier.fit(X, y)
    assert not hasattr(classifier, "net_")
    classifier.set_params(n_members=2, alpha=0.5, eta=0.1)
    with pytest.raises(FloatingPointError, match=r"in epoch 1, batch \d+: mixup_loss=.*lower lr"):
        classifier.fit(X, y)
    assert not hasattr(classifier, "nets_")


def test_weights_that_become_non_finite_in_the_last_step(iris):
    classifier = paper_classifier(optimizer="sgd", lr=1e38, max_epochs=1, batch_size=1000)
    with pytest.raises(FloatingPointError, match="The weights of .* became non-finite in the last"):
        classifier.fit(iris[0] * 1e3, iris[1])


def test_an_unfitted_estimator_raises(iris):
    with pytest.raises(ValueError, match="This MixupEClassifier instance is not fitted yet"):
        paper_classifier().predict(iris[0])


def test_a_callback_that_cannot_be_copied_raises_one_sentence():
    """As skorch's TensorBoard(SummaryWriter()), which holds a thread."""
    holds_a_lock = Checkpoint()
    holds_a_lock.lock = threading.Lock()
    message = "Got a Checkpoint among the callbacks that cannot be copied .* in on_train_begin"
    with pytest.raises(ValueError, match=message):
        MixupEClassifier(callbacks=[("save", holds_a_lock)]).fit([[0.0], [1.0]] * 5, [0, 1] * 5)


def test_wrong_arguments_of_the_default_module_raise_with_its_name():
    message = "Got module_params with 'hidden', but expected arguments of MLP: n_features, "
    with pytest.raises(ValueError, match=message):
        MixupEClassifier(module_params={"hidden": 3}).fit([[0.0], [1.0]] * 5, [0, 1] * 5)
