"""fit_many gives each estimator the result of its own fit."""

import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from paper import paper_classifier, paper_regressor
from scipy import sparse
from sklearn.base import clone
from skorch.callbacks import EpochTimer

from mixupe_sklearn import MixupERegressor, fit_many
from mixupe_sklearn._engine import trainer as _trainer
from mixupe_sklearn._estimators import base as _base
from mixupe_sklearn._estimators import fit_many as _fit_many
from mixupe_sklearn._estimators.fit_many import why_not_many
from mixupe_sklearn._method.formulas import directional_penalty, glm_loss, logit_penalty
from mixupe_sklearn._net import net as _net
from mixupe_sklearn._net.net import logits_in_chunks

SMALL = {"module_params": {"d_hidden": (7, 5)}, "batch_size": 40, "max_epochs": 2}
# Parameters in which members may differ: among them no mixing, no penalty, and other rates.
NUMBERS = [
    {"alpha": 0.3, "eta": 0.5},
    {"alpha": 2.0, "beta": 0.7, "eta": 0.01, "lr": 0.01},
    {"alpha": 1.0, "eta": 0.0, "weight_decay": 0.1},
    {"alpha": 0.0, "eta": 0.1},
    {"alpha": 1.0, "eta": 1.0, "lr": 0.01},
]

HEADS = ["softmax", "labels", "single logit", "squared"]
# Method, lam_per, mix_at.
WAYS = [
    ("mixupe", "batch", "input"),
    ("mixupe", "sample", "input"),
    ("mixupe", "batch", "hidden"),
    ("mixupe", "sample", "hidden"),
    ("mixup", "batch", "input"),
    ("mixup", "sample", "hidden"),
    ("erm", "batch", "input"),
    ("erm+penalty", "batch", "input"),
    ("erm+penalty", "sample", "hidden"),
]


@pytest.fixture(autouse=True)
def _autograd(monkeypatch):
    """Let single fits take their steps by autograd, as with a callback for each batch."""
    by_engine, run_fits = _base.why_not_together, _fit_many.run_fits
    monkeypatch.setattr(_base, "why_not_together", lambda member, settings: "forced by the test")
    monkeypatch.setattr(_net, "listens", lambda net: True)

    def run_many(*args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(_base, "why_not_together", by_engine)
            run_fits(*args, **kwargs)

    monkeypatch.setattr(_fit_many, "run_fits", run_many)


@pytest.fixture
def targets_of(iris, cancer, multilabel, diabetes):
    """Samples and targets by the name of a head: 130 samples, so that the last batch is small."""
    named = {
        "softmax": (paper_classifier, iris, {}),
        "labels": (paper_classifier, multilabel, {}),
        "single logit": (paper_classifier, cancer, {"n_outputs": 1}),
        "squared": (paper_regressor, diabetes, {}),
    }

    def get(name):
        estimator_class, (X, y), params = named[name]
        rows = np.random.default_rng(0).permutation(len(y))[:130]
        return estimator_class, X[rows], y[rows], {**SMALL["module_params"], **params}

    return get


def logits_of(estimator, X):
    how = estimator._standardisation()
    return torch.cat([logits[0] for _, logits in logits_in_chunks(estimator.nets_, X, how, 1)])


@pytest.mark.usefixtures("double")
def test_members_may_differ_in_all_random_draws(iris):
    X, y = iris
    numbers = [{"lam_per": "sample"}, {}, {"penalty_fraction": 0.4}, {"single_pass": False}]
    members = make_members(numbers=numbers, eta=0.5, alpha=0.5)
    singles = [clone(member).fit(X, y) for member in members]
    for member, single in zip(fit_many(members, X, y), singles, strict=True):
        assert_same_fit(member, single, X)


def make_members(estimator_class=paper_classifier, numbers=NUMBERS, **params):
    params = {**SMALL, **params}
    return [
        estimator_class(**{**params, **own}, random_state=seed) for seed, own in enumerate(numbers)
    ]


def without_time(rows):
    return [
        {name: value for name, value in row.items() if name not in ("dur", "batches")}
        for row in rows
    ]


def assert_equal_states(one, other, tolerance):
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=tolerance, atol=tolerance)


def assert_same_fit(member, single, X, tolerance=1e-9):
    assert set(vars(member)) == set(vars(single))
    assert_equal_states(
        single.net_.module_.state_dict(), member.net_.module_.state_dict(), tolerance
    )
    assert_optimizers_agree(member.net_.optimizer_, single.net_.optimizer_, tolerance)
    np.testing.assert_allclose(member.X_mean_, single.X_mean_)
    mine, expected = (logits_of(one, X) for one in (member, single))
    torch.testing.assert_close(mine, expected, rtol=tolerance, atol=tolerance)
    assert member.n_iter_ == single.n_iter_
    assert len(member.loss_curve_) == len(single.loss_curve_)
    for mine, expected in [
        (member.history_, single.history_),
        (list(member.net_.history), list(single.net_.history)),
    ]:
        for row, wanted in zip(without_time(mine), without_time(expected), strict=True):
            # Autograd has more records of skorch.
            names = [name for name in row if not name.endswith(("_best", "_count"))]
            row, wanted = ({name: one[name] for name in names} for one in (row, wanted))
            assert row == pytest.approx(wanted, rel=max(tolerance, 1e-12), abs=tolerance)
    for mine, expected in zip(member._streams[0], single._streams[0], strict=True):
        assert mine.bit_generator.state == expected.bit_generator.state


def assert_optimizers_agree(mine, expected, tolerance):
    mine, expected = mine.state_dict(), expected.state_dict()
    assert mine["param_groups"] == expected["param_groups"]
    assert mine["state"].keys() == expected["state"].keys()
    for number, state in expected["state"].items():
        assert_equal_states(state, mine["state"][number], tolerance)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("head", "method", "lam_per", "mix_at", "is_weighted"),
    # Alternately with and without weights: each head and each method has both.
    [(head, *way, (i + j) % 2 == 1) for i, head in enumerate(HEADS) for j, way in enumerate(WAYS)],
)
def test_each_member_equals_its_own_fit(targets_of, head, method, lam_per, mix_at, is_weighted):
    estimator_class, X, y, module_params = targets_of(head)
    params = {"method": method, "lam_per": lam_per, "mix_at": mix_at}
    weight = None
    if is_weighted:
        weight = np.random.default_rng(1).integers(0, 4, size=len(y))
        if estimator_class is paper_classifier and y.ndim == 1:
            params["class_weight"] = "balanced"
    members = make_members(estimator_class, module_params=module_params, **params)
    singles = [clone(member).fit(X, y, weight) for member in members]
    fitted = fit_many(members, X, y, weight)
    assert all(one is member for one, member in zip(fitted, members, strict=True))
    for member, single in zip(members, singles, strict=True):
        assert_same_fit(member, single, X)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("optimizer", "optimizer_params"),
    [
        ("adam", None),
        ("adam", {"amsgrad": True, "betas": (0.8, 0.9)}),
        ("adam", {"foreach": True}),
        ("adamw", {"eps": 1e-6}),
        ("nadam", {"momentum_decay": 0.01}),
        ("rmsprop", {"centered": True, "momentum": 0.5}),
        ("rmsprop", None),
        ("sgd", None),
        ("sgd", {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_every_optimizer_continues_as_after_a_single_fit(iris, optimizer, optimizer_params):
    X, y = iris
    params = {"optimizer": optimizer, "optimizer_params": optimizer_params, "warm_start": True}
    members = make_members(**params)
    singles = [clone(member).fit(X, y) for member in members]
    for member, single in zip(fit_many(members, X, y), singles, strict=True):
        assert_same_fit(member, single, X)
        for one in (member, single):
            one.partial_fit(X, y)
            one.set_params(lr=0.005).fit(X, y)
        assert_same_fit(member, single, X)
        assert member.n_iter_ == 2
        assert len(member.loss_curve_) == 2 + 1 + 2


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("d_hidden", "activation", "bias"),
    # Alternately with and without a bias: each depth and each activation has both.
    [
        (d_hidden, activation, (i + j) % 2 == 0)
        for i, d_hidden in enumerate([(), (6,), (7, 5, 6)])
        for j, activation in enumerate(["relu", "gelu", "silu", "tanh", "identity"])
    ],
)
def test_every_shape_of_network(iris, d_hidden, activation, bias):
    X, y = iris
    module_params = {"d_hidden": d_hidden, "activation": activation, "bias": bias}
    members = make_members(module_params=module_params)
    singles = [clone(member).fit(X, y) for member in members]
    for member, single in zip(fit_many(members, X, y), singles, strict=True):
        assert_same_fit(member, single, X)


@pytest.mark.usefixtures("double")
def test_members_of_different_shapes_and_lengths_are_grouped(iris):
    X, y = iris
    numbers = [
        {},
        {"method": "erm"},
        {"batch_size": 30},
        {"max_epochs": 3},
        {"module_params": {"d_hidden": (3,)}},
        {"mix_at": "hidden", "lam_per": "sample"},
        {"n_members": 3},
        {"n_members": 2, "early_stopping": True, "alpha": (0.1, 1.0)},
        {"early_stopping": True, "ema_decay": 0.9},
        {"module_params": {"d_hidden": (7, 5), "input_scale": True}},
        {"optimizer": "sgd", "lr": 0.1},
        {"class_weight": {0: 0.0, 1: 1.0, 2: 3.0}},
        {"batch_size": 7, "alpha": 1.0},
    ]
    members = make_members(numbers=numbers)
    singles = [clone(member).fit(X, y) for member in members]
    for member, single in zip(fit_many(members, X, y), singles, strict=True):
        assert_same_fit(member, single, X)


@pytest.mark.usefixtures("double")
def test_results_do_not_depend_on_the_other_estimators(iris, monkeypatch):
    X, y = iris
    together = fit_many(make_members(), X, y)
    monkeypatch.setattr(_trainer, "GROUP_MEMBERS", 1)  # one at a time
    for member, single in zip(together, fit_many(make_members(), X, y), strict=True):
        assert_same_fit(member, single, X)


@pytest.mark.parametrize("head", ["softmax", "sigmoid"])
@pytest.mark.parametrize("method", ["mixupe", "mixup", "erm"])
def test_the_bits_of_a_member_do_not_depend_on_the_others(iris, head, method):
    X, y = iris
    if head == "sigmoid":
        y = np.column_stack([y == 0, y == 1])
    params = {"method": method, "max_epochs": 4, "batch_size": 20}

    def fitted(seeds):
        members = [paper_classifier(random_state=seed, **params) for seed in seeds]
        return [member.predict_proba(X) for member in fit_many(members, X, y)]

    together = fitted(range(11))
    for seeds in (range(1), range(3, 4), range(2, 7), range(4, 11)):
        np.testing.assert_array_equal(fitted(seeds), [together[seed] for seed in seeds])


def test_single_precision_agrees_up_to_rounding(small_digits):
    X, y = small_digits
    members = make_members(module_params={"activation": "gelu"})
    singles = [clone(member).fit(X, y) for member in members]
    for member, single in zip(fit_many(members, X, y), singles, strict=True):
        assert next(member.net_.module_.parameters()).dtype == torch.float32
        np.testing.assert_allclose(member.predict_proba(X), single.predict_proba(X), atol=1e-4)
        np.testing.assert_allclose(member.loss_curve_, single.loss_curve_, rtol=1e-4)


def test_a_shared_random_state_is_used_in_the_order_of_the_members(iris):
    X, y = iris
    pair = []
    for fit in (fit_many, lambda members, X, y: [member.fit(X, y) for member in members]):
        shared = np.random.RandomState(0)
        members = [
            paper_classifier(**SMALL, method=m, random_state=shared) for m in ("erm", "mixup")
        ]
        pair.append([member.predict_proba(X) for member in fit(members, X, y)])
    np.testing.assert_allclose(pair[0], pair[1], atol=1e-5)


def test_a_member_is_pickled_without_the_others(iris):
    X, y = iris
    (alone,) = fit_many(make_members()[:1], X, y)
    member = fit_many(make_members(), X, y)[0]
    text = pickle.dumps(member)
    assert len(text) == pytest.approx(len(pickle.dumps(alone)), rel=0.02)
    np.testing.assert_array_equal(pickle.loads(text).predict_proba(X), member.predict_proba(X))
    tensors = list(member.net_.module_.parameters())
    tensors += [
        tensor for state in member.net_.optimizer_.state.values() for tensor in state.values()
    ]
    for tensor in tensors:
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_global_generators_and_threads_are_restored(iris):
    before = np.random.get_state()[1].copy(), torch.get_rng_state(), torch.get_num_threads()
    with torch.inference_mode():
        fit_many(make_members(), *iris)
    assert np.array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert torch.get_num_threads() == before[2]


@pytest.mark.usefixtures("double")
def test_members_that_on_epoch_returns_stop_and_the_others_continue(iris):
    X, y = iris
    numbers = [{"alpha": 0.5, "eta": 0.1, "lr": lr} for lr in (0.001, 0.01, 0.001, 0.01)]
    members = make_members(numbers=numbers, max_epochs=5)
    seen = []

    def on_epoch(epoch, running):
        scores = [one.score(X, y) for one in running]
        seen.append((epoch, len(running), scores))
        return {2: {members[0], members[3]}, 4: [members[1]]}.get(epoch)

    fit_many(members, X, y, on_epoch=on_epoch)
    assert [(epoch, n_running) for epoch, n_running, _ in seen] == [
        (1, 4), (2, 4), (3, 2), (4, 2), (5, 1),
    ]  # fmt: skip
    for member, max_epochs in zip(members, (2, 4, 5, 2), strict=True):
        single = clone(member).set_params(max_epochs=max_epochs).fit(X, y)
        assert_same_fit(member, single.set_params(max_epochs=5), X)
    assert seen[-1][2] == [members[2].score(X, y)]


def test_the_epoch_hook_of_an_estimator_can_stop_it(iris):
    members = make_members()
    members[1]._epoch_hook = lambda estimator: len(estimator.net_.history) == 1
    assert [member.n_iter_ for member in fit_many(members, *iris)] == [2, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({}, r"The loss became non-finite in epoch 1, batch (\d+): mixup_loss="),
        (
            {"max_epochs": 1, "batch_size": 150, "module_params": None},
            r"The weights of (\S+) became non-finite in the last step",
        ),
    ],
)
def test_a_member_with_a_non_finite_loss_does_not_affect_the_others(iris, params, error):
    X, y = 100 * iris[0], iris[1]
    numbers = [{"lr": 1e-5}, {"lr": 1e38}, {"lr": 2e-5}]
    members = make_members(numbers=numbers, optimizer="sgd", **params)
    with pytest.raises(FloatingPointError, match=error) as single:
        clone(members[1]).fit(X, y)
    first, mine, last = fit_many(members, X, y, on_error="return")
    assert isinstance(mine, FloatingPointError)
    # Epoch and batch are equal; one message may have infinity where the other has NaN.
    assert re.match(error, str(mine)).group(1) == re.match(error, str(single.value)).group(1)
    assert not hasattr(members[1], "net_")
    for member in (first, last):
        expected = clone(member).fit(X, y)
        assert member.n_iter_ == expected.n_iter_
        np.testing.assert_allclose(member.predict_proba(X), expected.predict_proba(X), atol=1e-5)


def test_an_error_that_is_raised_leaves_all_as_they_were(iris):
    X, y = iris
    members = make_members(numbers=[{}, {"lr": 1e30, "optimizer": "sgd"}])
    members[0].fit(X, y)
    before = members[0].predict_proba(X)
    with pytest.raises(FloatingPointError):
        fit_many(members, X, y)
    np.testing.assert_array_equal(members[0].predict_proba(X), before)
    assert not hasattr(members[1], "n_features_in_")


def test_bad_input_gets_the_sentence_of_fit(iris):
    X, y = iris
    with pytest.raises(ValueError, match="Got alpha=-1, but expected a number >= 0"):
        fit_many([paper_classifier(alpha=-1)], X, y)
    with pytest.raises(ValueError, match="Input X contains NaN in column 0"):
        fit_many(make_members(), np.where(X > 5, np.nan, X), y)
    with pytest.raises(ValueError, match="Got on_error='ignore', but expected one of 'raise'"):
        fit_many(make_members(), X, y, on_error="ignore")
    good, bad = fit_many([paper_classifier(), paper_classifier(eta=-1)], X, y, on_error="return")
    assert good.n_iter_ == 25
    assert str(bad) == "Got eta=-1, but expected a number >= 0."


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"module": torch.nn.Linear}, "module is not given by name"),
        ({"module_params": {"batch_norm": True}}, "batch_norm is on"),
        ({"optimizer": torch.optim.Adam}, "optimizer is not given by name"),
        ({"callbacks": [EpochTimer()]}, "callbacks are given"),
        ({"compile": True}, "compile is on"),
        ({"time_limit": 3.0}, "time_limit is given"),
        ({"penalty": "directional"}, "penalty is 'directional'"),
        ({"penalty_order": 2}, "penalty_order is not 1"),
        ({"penalty": "directional", "method": "mixup"}, None),
        ({"n_members": 2, "early_stopping": True}, None),
        ({"module_params": {"dropout": 0.1, "input_scale": True}}, None),
        ({"mix_at": "hidden"}, None),
        ({"ema_decay": 0.9}, None),
        ({"device": "meta"}, None),
        ({}, None),
    ],
)
def test_parameters_that_prevent_fit_many_are_named(iris, params, reason):
    X, y = iris
    members = [paper_classifier(), paper_classifier(**params)]
    assert why_not_many(members, X) == reason
    if reason is not None:
        with pytest.raises(ValueError, match=f"cannot be fitted together: {reason}"):
            fit_many(members, X, y)


def test_other_reasons_that_prevent_fit_many_are_named(iris):
    X, y = iris
    members = make_members()
    going_on = paper_classifier(warm_start=True, **SMALL).fit(X, y)
    listening = paper_classifier()
    listening._skl_callbacks = [SimpleNamespace()]
    for estimators, rows, fit_params, reason in [
        (members, sparse.csr_array(X), None, "X is sparse"),
        (members, X, {"X_val": X, "sample_weight": None}, "X_val is given"),
        (members, X, {"X_val": None, "sample_weight": y}, None),
        ([members[0], members[0]], X, None, "an estimator is given twice"),
        ([members[0], MixupERegressor()], X, None, "they are of different classes"),
        ([members[0], "mlp"], X, None, "not all are estimators of mixupe_sklearn"),
        ([going_on], X, None, "warm_start continues with a net"),
        ([listening], X, None, "callbacks are given"),
    ]:
        assert why_not_many(estimators, rows, fit_params) == reason


@pytest.mark.parametrize("head", ["softmax", "sigmoid", "squared"])
def test_formulas_take_members_as_a_first_dimension(head):
    logits, targets = torch.randn(3, 5, 4), torch.rand(3, 5, 4)
    mass, weight = torch.rand(3, 5), torch.randn(3, 4, 2)
    X = torch.randn(3, 5, 2).requires_grad_()

    def formulas(logits, targets, mass, X, weight):
        outputs = X @ weight.mT
        q = directional_penalty(outputs, X, targets, 0.5, head)
        return *glm_loss(logits, targets, mass, head), *logit_penalty(logits, targets, head), q

    together = formulas(logits, targets, mass, X, weight)
    for member in range(3):
        own_X = X[member].detach().requires_grad_()
        own = formulas(logits[member], targets[member], mass[member], own_X, weight[member])
        for value, expected in zip(together, own, strict=True):
            torch.testing.assert_close(value[member], expected)
