"""The benchmarks of the search: what they run, and what they print is in the rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import ParameterGrid

from benchmarks._speed.baselines import listing_net
from benchmarks.studies import search
from mixupe_sklearn import Draw, MixupEClassifier, MixupELoss

# The listing takes all of torch's threads.
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def problem(small_digits):
    X, y = small_digits
    return search.Problem.of(X.astype(np.float32), y, max_epochs=1, n_seeds=1, n_jobs=1)


def make_net(problem):
    return listing_net(problem.X.shape[1], len(np.unique(problem.y)), problem.max_epochs)


def speed_rows(seconds):
    """Rows of one dataset, from the seconds of each round by candidate."""
    return pd.DataFrame(
        {"data": "digits", "candidate": candidate, "round": number, "n_fits": 5, "seconds": value}
        for candidate, values in seconds.items()
        for number, value in enumerate(values)
    )


def pruning_rows(test_scores, n_epochs):
    """Rows of one dataset, from the test score of each seed by pruner."""
    return pd.DataFrame(
        {
            "data": "digits",
            "seed": seed,
            "pruner": pruner,
            "n_epochs": n_epochs[pruner],
            "seconds": 1.0,
            "valid_score": 0.9,
            "test_score": score,
        }
        for pruner, scores in test_scores.items()
        for seed, score in enumerate(scores)
    )


@pytest.mark.parametrize("n_parts", [1, 3, 9])
def test_all_parts_together_are_the_configurations_of_the_paper(n_parts):
    grids = [grid for part in search.split_grid(n_parts) for grid in part]
    labels = [search.label(params) for grid in grids for params in ParameterGrid(grid)]
    assert len(labels) == len(set(labels)) == 55
    assert [sum(text.startswith(f"{m} ") for text in labels) for m in ("mixupe", "mixup")] == [
        45,
        9,
    ]


@pytest.mark.parametrize(("method", "eta"), [("mixupe", 0.5), ("mixup", 0.0)])
def test_a_step_of_the_listing_net_has_the_loss_and_gradient_of_ours(problem, method, eta):
    net = make_net(problem)
    net.set_params(method=method, alpha=0.7, eta=0.5, n_loaders=1)
    net.initialize()
    X, y = torch.as_tensor(problem.X[:50]), torch.as_tensor(problem.y[:50])
    np.random.seed(3)
    draw = Draw(np.random.beta(0.7, 0.7), torch.randperm(50, generator=torch.manual_seed(3)))
    ours = MixupELoss(alpha=0.7, eta=eta)(net.module_, X, y, draw=draw).loss
    gradients = torch.autograd.grad(ours, list(net.module_.parameters()))
    np.random.seed(3)
    torch.manual_seed(3)
    theirs = net.train_step_single((X, y))["loss"]
    assert theirs.item() == pytest.approx(ours.item(), rel=1e-5)
    for parameter, gradient in zip(net.module_.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-6)


def test_the_listing_net_goes_through_both_loaders_in_every_epoch(problem):
    net = make_net(problem).set_params(method="mixupe", max_epochs=3)
    net.fit(problem.X, problem.y)
    counts = [len(row["batches"]) for row in net.history]
    assert counts == [-(-len(problem.y) // 100)] * 3


def test_the_listing_net_without_mixing_takes_the_step_of_skorch(problem):
    net = make_net(problem).set_params(method="erm").initialize()
    X, y = torch.as_tensor(problem.X[:50]), torch.as_tensor(problem.y[:50])
    expected = torch.nn.functional.cross_entropy(net.module_(X), y)
    assert net.train_step_single((X, y))["loss"].item() == pytest.approx(expected.item(), rel=1e-6)


def test_validation_rows_have_no_say_in_the_scaling(problem):
    train, valid = problem.split
    assert np.intersect1d(train, valid).size == 0
    varies = problem.X[train].std(axis=0) > 0
    np.testing.assert_allclose(problem.X[train].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(problem.X[train].std(axis=0)[varies], 1, atol=1e-4)


def test_the_share_is_the_median_over_rounds_of_batched_over_candidate():
    rows = speed_rows({"batched": [1.0, 2.0, 9.0], "listing": [4.0, 10.0, 10.0]})
    assert "| digits | listing | 15 | 3 | 24.0 | 0.25 | 0.20 to 0.90 | <= 0.25 |" in (
        search.speed_table(rows)
    )


def test_configurations_of_equal_score_are_all_the_best():
    assert search.best_of({"a": 0.5, "c": 0.9, "b": 0.9 - 1e-15}) == ["c", "b"]


def test_one_row_that_is_judged_otherwise_does_not_go_unsaid():
    scores = {"batched": '{"a": 0.9, "b": 0.9}', "own": '{"a": 0.9, "b": 0.8995}'}
    rows = pd.DataFrame(
        {"data": "digits", "candidate": list(scores), "scores": list(scores.values())}
    )
    assert search.describe_agreement(rows, "digits") == (
        "digits: best configurations NOT equal (a batched, a one by one); mean scores differ in "
        "1 of 2 configurations, by 5.0e-04 at most."
    )


def test_both_ways_to_run_our_own_fits_find_the_same(tmp_path, capsys):
    path = tmp_path / "search_speed.csv"
    size = ["--parts", "9", "--rounds", "1", "--seeds", "2", "--epochs", "2", "--jobs", "1"]
    search.main(["speed", "--data", "digits", *size, "--output", str(tmp_path)])
    rows = pd.read_csv(path)
    assert list(rows["candidate"]) == ["batched", "own", "listing"]
    assert (rows["n_fits"] == 14).all()  # 5 etas, Mixup and ERM, with two seeds
    printed = capsys.readouterr().out
    assert "best configurations equal" in printed
    assert "differ in 0 of 7 configurations" in printed


def test_rows_are_added_below_those_of_earlier_runs(tmp_path):
    path = tmp_path / "new" / "rows.csv"
    for run in ("first", "second"):
        search.append_rows(path, [{"seconds": 1.0}, {"seconds": 2.0}], {"run": run})
    assert list(pd.read_csv(path)["run"]) == ["first", "first", "second", "second"]


def test_a_loss_stands_beside_the_deviation_between_seeds():
    scores = {"none": [0.94, 0.98], "auto": [0.95, 0.95]}
    text = search.describe_pruning(pruning_rows(scores, {"none": 100, "auto": 40}))
    assert "saves 60% of the epochs (must: 50%)" in text
    assert "loses 1.00 points of test score (seed noise: 2.83)." in text


def test_searches_without_pruning_train_every_epoch(tmp_path, capsys):
    path = tmp_path / "pruning.csv"
    size = ["--seeds", "1", "--trials", "8", "--epochs", "2", "--jobs", "1"]
    search.main(["pruning", "--data", "digits", *size, "--output", str(tmp_path)])
    rows = pd.read_csv(path).set_index("pruner")
    assert list(rows.index) == list(search.PRUNERS)
    assert rows.loc["none", "n_epochs"] == 8 * 3 * 2
    assert rows.loc["auto", "n_epochs"] < rows.loc["none", "n_epochs"]
    assert "digits: pruner='auto' saves" in capsys.readouterr().out


def test_both_ways_to_search_refit_the_ensemble(monkeypatch, tmp_path, capsys):
    short = {"max_epochs": 1, "min_steps": 0, "n_members": 2}
    monkeypatch.setattr(search, "MixupEClassifier", lambda: MixupEClassifier(**short))
    size = ["--seeds", "1", "--trials", "2", "--jobs", "1"]
    search.main(["ensemble", "--data", "digits", *size, "--output", str(tmp_path)])
    rows = pd.read_csv(tmp_path / "search_ensemble.csv")
    assert list(rows["way"]) == ["ensemble", "network"]
    assert rows["test_score"].between(0.05, 1).all()
    assert (rows["refit_seconds"] < rows["seconds"]).all()
    assert "| digits | network | 1 | 1 |" in capsys.readouterr().out
