"""DerivativeMonitor: its records, its lack of side effects, and the figures."""

import math
import pickle

import numpy as np
import pytest
import torch
from paper import paper_regressor
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier

from mixupe_sklearn import (
    MixupEClassifier,
    MixupEGraphClassifier,
    MixupEImageClassifier,
    MixupENet,
    preset,
)
from mixupe_sklearn._diagnostics.monitor import epochs_between, n_monitored
from mixupe_sklearn.diagnostics import (
    AlphaMinDisplay,
    DerivativeMonitor,
    LossCurvesDisplay,
    PenaltyDisplay,
    ReliabilityDisplay,
    directional_derivatives,
    plot_alpha_min,
    plot_decision_boundary,
    plot_loss_curves,
    plot_penalty,
    plot_reliability,
)
from mixupe_sklearn.modules import MLP

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")
from matplotlib import pyplot as plt  # noqa: E402

MONITORED = ("alpha_min", "q_abs", "q_hat_abs")


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def classifier(monitor=None, **params):
    how = preset("paper") | {"max_epochs": 4, "batch_size": 20, "random_state": 0}
    callbacks = None if monitor is None else [monitor]
    return MixupEClassifier(**how | {"callbacks": callbacks} | params)


def test_training_is_unchanged_bit_for_bit(iris):
    plain, monitored = (classifier(one).fit(*iris) for one in (None, DerivativeMonitor(every=1)))
    for own, other in zip(
        plain.net_.module_.parameters(), monitored.net_.module_.parameters(), strict=True
    ):
        torch.testing.assert_close(own, other, rtol=0, atol=0)
    assert [row["train_loss"] for row in plain.history_] == [
        row["train_loss"] for row in monitored.history_
    ]


def test_records_equal_directional_derivatives_of_all_samples(iris):
    X, y = iris
    monitored = classifier(DerivativeMonitor(n_rows=150, every=1)).fit(X, y)
    parts = directional_derivatives(monitored, X, y, order=1, n_partners=1)
    last = monitored.history_[-1]
    assert last["q_abs"] == pytest.approx(np.abs(parts.q).mean(), rel=1e-4)
    assert last["q_hat_abs"] == pytest.approx(np.abs(parts.q_hat).mean(), rel=1e-4)
    assert -1 <= last["alpha_min"] < 0


def test_penalty_share_matches_the_loss(iris):
    monitored = classifier(DerivativeMonitor(every=1), eta=0.5).fit(*iris)
    for row in monitored.history_:
        assert row["penalty_share"] == pytest.approx(1 - row["loss_scale"])
    one_batch = classifier(DerivativeMonitor(every=1), eta=0.5, batch_size=150).fit(*iris)
    for row in one_batch.history_:  # of a single step it is the ratio itself
        term = 0.5 * row["train_penalty"]
        assert row["penalty_share"] == pytest.approx(
            term / (term + row["train_mixup_loss"]), rel=1e-4
        )
    plain = classifier(DerivativeMonitor(every=1), method="mixup").fit(*iris)
    assert {row["penalty_share"] for row in plain.history_} == {0.0}


def test_it_evaluates_every_few_epochs(iris):
    monitored = classifier(DerivativeMonitor(every=3), max_epochs=7).fit(*iris)
    for name in MONITORED:
        seen = [not math.isnan(row[name]) for row in monitored.history_]
        assert seen == [True, False, False, True, False, False, True]
    rare = classifier(DerivativeMonitor(every=50), max_epochs=4).fit(*iris)
    assert [not math.isnan(row["q_abs"]) for row in rare.history_] == [True, False, False, True]
    # So that something is to be seen, each of few points has a mark.
    assert plot_alpha_min(rare)[""].line_.get_marker() == "o"


def test_evaluations_are_few_if_epochs_are_short():
    small, large = (epochs_between(n, 100, 10, 25_000, 16) for n in (200, 50_000))
    assert large == 1 < small
    assert n_monitored(100, 10) <= n_monitored(10_000, 10) <= 64
    assert epochs_between(50_000, 100, 10, 25_000, 64) <= epochs_between(
        50_000, 100, 100, 25_000, 64
    )


def test_members_nets_regressors_and_early_stopping(iris):
    X, y = iris
    members = classifier(DerivativeMonitor(every=1), n_members=2, early_stopping=True).fit(X, y)
    for net in members.nets_:
        assert not math.isnan(net.history[0]["q_abs"])
    assert members.nets_[0].history[0]["q_abs"] != members.nets_[1].history[0]["q_abs"]
    regressor = paper_regressor(
        callbacks=[DerivativeMonitor(every=1)],
        **preset("paper", max_epochs=2, random_state=0),
    )
    assert regressor.fit(X[:, 1:], X[:, 0]).history_[0]["q_abs"] > 0
    net = MixupENet(
        MLP(4, 3), callbacks=[DerivativeMonitor(every=1)], max_epochs=2, verbose=0, batch_size=-1
    )
    weighted = net.fit(X.astype("float32"), y, sample_weight=np.ones(len(y)))
    assert weighted.history[-1]["q_abs"] > 0


def test_images_and_graphs():
    nx = pytest.importorskip("networkx")
    X, y = load_digits(return_X_y=True)
    images = MixupEImageClassifier(
        module_params={"width": 4, "blocks": (1, 1)},
        callbacks=[DerivativeMonitor(every=1)],
        max_epochs=1,
        batch_size=40,
        random_state=0,
    ).fit(X[:80].reshape(-1, 8, 8) / 16, y[:80])
    assert images.history_[0]["q_abs"] > 0
    graphs = [make(n) for n in range(4, 14) for make in (nx.cycle_graph, nx.path_graph)]
    monitor = DerivativeMonitor(every=1)
    one = MixupEGraphClassifier(callbacks=[monitor], max_epochs=1, batch_size=10, random_state=0)
    assert one.fit(graphs, ["cycle", "path"] * 10).history_[0]["q_abs"] > 0


def test_it_keeps_no_samples_and_can_be_pickled(iris):
    fitted = classifier(DerivativeMonitor(every=1)).fit(*iris)
    (monitor,) = (one for _, one in fitted.net_.callbacks_ if isinstance(one, DerivativeMonitor))
    assert monitor.rows_ is None
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(iris[0]), fitted.predict_proba(iris[0]))
    assert clone(fitted).callbacks[0].every == 1


def test_continued_training_is_monitored(iris):
    fitted = classifier(DerivativeMonitor(every=1), warm_start=True).fit(*iris)
    fitted.fit(*iris)
    assert not any(math.isnan(row["q_abs"]) for row in fitted.history_)
    assert len(fitted.history_) == 8


@pytest.mark.parametrize("params", [{"every": 0}, {"n_rows": 0}, {"every": 1.5}])
def test_wrong_parameters(iris, params):
    ((name, value),) = params.items()
    with pytest.raises(ValueError, match=f"Got {name}={value}, but expected an integer >= 1"):
        classifier(DerivativeMonitor(**params)).fit(*iris)


def test_curves_show_the_history(iris):
    X, y = iris
    fitted = classifier(DerivativeMonitor(every=2))
    fitted.fit(X[::2], y[::2], X_val=X[1::2], y_val=y[1::2])
    displays = plot_loss_curves({"MixupE": fitted, "again": fitted.history_})
    lines = displays["MixupE"].lines_
    np.testing.assert_allclose(lines[0].get_ydata(), fitted.loss_curve_)
    np.testing.assert_allclose(lines[1].get_ydata(), [row["valid_loss"] for row in fitted.history_])
    assert displays["MixupE"].ax_[0] is displays["again"].ax_[0]
    assert lines[0].get_color() != displays["again"].lines_[0].get_color()
    shown = plot_alpha_min(fitted)[""]
    np.testing.assert_array_equal(shown.line_.get_xdata(), [1, 3, 4])
    penalty = plot_penalty(make_pipeline(StandardScaler(), fitted).fit(X, y))
    assert penalty.lines_[2].get_ydata()[-1] == pytest.approx(100 * penalty.penalty_share[-1])
    assert len(penalty.q_abs) == 3


def test_displays_accept_axes(iris):
    figure, (left, right) = plt.subplots(1, 2)
    fitted = classifier(DerivativeMonitor(every=1)).fit(*iris)
    assert LossCurvesDisplay.from_estimator(fitted, ax=(left, right)).figure_ is figure
    assert AlphaMinDisplay.from_estimator(fitted, ax=right, color="black").ax_ is right
    assert PenaltyDisplay.from_estimator(fitted, ax=[left, right]).ax_[1] is right
    assert LossCurvesDisplay.from_estimator(fitted, lw=3, c="k").lines_[0].get_linewidth() == 3
    with pytest.raises(ValueError, match="Got ax with 1 axes, but expected 2 matplotlib Axes"):
        LossCurvesDisplay.from_estimator(fitted, ax=left)
    with pytest.raises(TypeError, match="Got ax='x', but expected matplotlib Axes, or None"):
        plot_alpha_min(fitted, ax="x")
    with pytest.raises(ValueError, match="Got member=5, but expected 0 to 0"):
        plot_penalty(fitted, member=5)


def test_members_have_one_mean_curve_and_a_history_each(iris):
    fitted = classifier(n_members=2).fit(*iris)
    display = LossCurvesDisplay.from_estimator(fitted)
    np.testing.assert_allclose(display.lines_[0].get_ydata(), fitted.loss_curve_)
    own = [net.history[:, "train_loss"] for net in fitted.nets_]
    np.testing.assert_allclose(np.mean(own, axis=0), fitted.loss_curve_)
    assert own[0] != own[1]


def test_plots_without_a_monitor_raise(iris):
    fitted = classifier().fit(*iris)
    with pytest.raises(ValueError, match="Got a training without alpha_min, but expected one with"):
        plot_alpha_min(fitted)
    with pytest.raises(TypeError, match="Got a LogisticRegression, but expected a fitted"):
        plot_loss_curves(LogisticRegression())


def test_other_lists_and_nets_raise(iris):
    fitted = classifier().fit(*iris)
    for wrong in ([fitted, fitted], []):
        with pytest.raises(TypeError, match="pass several trainings as a dict, by name."):
            plot_loss_curves(wrong)
    with pytest.raises(ValueError, match="Got records without train_loss"):
        plot_loss_curves([{"epoch": 1}])
    plain = NeuralNetClassifier(
        torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(-1)),
        callbacks=[DerivativeMonitor()],
        verbose=0,
    )
    with pytest.raises(TypeError, match="Got a NeuralNetClassifier to monitor, but expected"):
        plain.fit(iris[0].astype("float32"), iris[1])


def test_reliability_by_hand():
    """Confidences 0.6, 0.7, 0.9, 1.0; one of the two below 0.8 is wrong, the others are right."""
    proba = np.array([[0.6, 0.4], [0.3, 0.7], [0.9, 0.1], [0.0, 1.0]])
    display = ReliabilityDisplay.from_predictions(
        ["a", "a", "a", "b"], proba, classes=["a", "b"], n_bins=5
    )
    np.testing.assert_allclose(display.confidence, [0.65, 0.95])
    np.testing.assert_allclose(display.accuracy, [0.5, 1.0])
    np.testing.assert_allclose(display.weight, [0.5, 0.5])
    assert display.calibration_error == pytest.approx(0.5 * 0.15 + 0.5 * 0.05)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ReliabilityDisplay.from_predictions([0, 1], proba)
    with pytest.raises(ValueError, match="Got the label 'a', but expected one of .* as classes"):
        ReliabilityDisplay.from_predictions(["a", "a", "a", "b"], proba)
    with pytest.raises(ValueError, match="Got 6.0 in y_proba, but expected probabilities."):
        ReliabilityDisplay.from_predictions([0, 0, 0, 1], 10 * proba)
    with pytest.raises(ValueError, match="Got 3 classes and 2 columns of y_proba"):
        ReliabilityDisplay.from_predictions([0, 0, 0, 1], proba, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="Got n_bins=0, but expected an integer >= 1."):
        ReliabilityDisplay.from_predictions([0, 0, 0, 1], proba, n_bins=0)


def test_reliability_of_any_classifier(iris):
    X, y = iris
    names = np.array(["x", "y", "z"])[y]
    one = LogisticRegression(max_iter=500).fit(X[::2], names[::2])
    display = plot_reliability({"logistic": one}, X[1::2], names[1::2])["logistic"]
    share = (one.predict(X[1::2]) == names[1::2]).mean()
    assert display.weight @ display.accuracy == pytest.approx(share)
    assert plot_reliability(one, X, names)[""].name is None
    with pytest.raises(ValueError, match="Got the label 0, but expected one of 'x', 'y', 'z'"):
        plot_reliability(one, X, y)
    regressor = LinearRegression().fit(X, y)
    with pytest.raises(TypeError, match="Got a LinearRegression, but expected a classifier with"):
        plot_reliability(regressor, X, y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_decision_boundary_shows_probabilities(n_classes):
    X, y = make_moons(60, noise=0.1, random_state=0)
    y = y + (X[:, 0] > 1.2) if n_classes == 3 else y
    fitted = classifier(max_epochs=20).fit(X, y)
    display = plot_decision_boundary(fitted, X, y, grid_resolution=20)
    assert len(display.ax_.collections) >= n_classes
    corner = np.c_[display.xx0[0, 0], display.xx1[0, 0]]
    expected = fitted.predict_proba(corner)[0]
    found = display.response[0, 0]
    np.testing.assert_allclose(found, expected[1] if n_classes == 2 else expected)


def test_decision_boundary_needs_a_fitted_classifier_and_valid_samples():
    X, y = make_moons(40, random_state=0)
    fitted = LogisticRegression().fit(X, y)
    with pytest.raises(NotFittedError):
        plot_decision_boundary(LogisticRegression(), X, y)
    with pytest.raises(TypeError, match="Got a LinearRegression, but expected a classifier with"):
        plot_decision_boundary(LinearRegression().fit(X, y), X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        plot_decision_boundary(fitted, X, y[:-1])
    with pytest.raises(ValueError, match="Got the label 8, but expected one of 0, 1"):
        plot_decision_boundary(fitted, X, 8 * y)
    plot_decision_boundary(fitted, X.tolist(), y.tolist(), grid_resolution=5)


def test_decision_boundary_needs_two_features(iris):
    with pytest.raises(ValueError, match="n_features must be equal to 2. Got 4 instead."):
        plot_decision_boundary(LogisticRegression(max_iter=500).fit(*iris), *iris)
