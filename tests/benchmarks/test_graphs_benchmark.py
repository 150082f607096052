"""The benchmark for graphs: protocols by hand, rows that are resumed, the report, and its pages."""

import json
import pathlib
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import graphs as command
from benchmarks._graphs import data, report, timing
from benchmarks._graphs.fits import SCHEMA, Study, Training, configs_of
from benchmarks._graphs.selection import complete_folds, select_on_test, select_on_valid
from benchmarks._harness.docs_tables import block_of
from benchmarks._harness.results_file import read_rows
from mixupe_sklearn.modules.gin import GIN

RESULTS = pathlib.Path(command.__file__).parent / "results" / "graphs"
REAL = pathlib.Path(__file__).parents[3] / "shared" / "data" / "graphs"
FAST = [
    "--quiet",
    "--jobs",
    "1",
    "--epochs",
    "2",
    "--folds",
    "2",
    "--alphas",
    "0.5",
    "--etas",
    "0.1",
]


def made(rows):
    columns = ("fold", "alpha", "eta", "valid_errors", "valid_losses", "test_errors")
    frame = pd.DataFrame([dict(zip(columns, row, strict=True)) for row in rows])
    return frame.assign(n_test=10, n_valid=10)


def test_xus_protocol_takes_the_epoch_and_numbers_with_the_lowest_mean_test_error():
    selected = select_on_test(
        made(
            [
                (0, 0.1, 1.0, [], [], [3, 2, 5]),
                (1, 0.1, 1.0, [], [], [5, 4, 1]),
                (0, 0.2, 1.0, [], [], [2, 4, 4]),
                (1, 0.2, 1.0, [], [], [3, 4, 4]),
            ]
        )
    )
    # Means: 4, 3, 3 with 0.1, and 2.5, 4, 4 with 0.2.
    assert selected.errors.tolist() == [20.0, 30.0]
    assert selected.epochs == [1, 1]
    assert selected.numbers == [(0.2, 1.0)] * 2
    assert selected.mean == 25
    assert selected.deviation == pytest.approx(np.std([20, 30], ddof=1))


def test_the_honest_protocol_never_uses_test_errors():
    rows = made(
        [
            (0, 0.1, 1.0, [2, 1, 1], [0.5, 0.4, 0.3], [0, 5, 6]),
            (0, 0.2, 1.0, [2, 1, 2], [0.5, 0.2, 0.1], [0, 7, 0]),
            (1, 0.1, 1.0, [0, 1, 1], [0.5, 0.4, 0.3], [9, 0, 0]),
            (1, 0.2, 1.0, [1, 1, 1], [0.1, 0.1, 0.1], [0, 0, 0]),
        ]
    )
    selected = select_on_valid(rows)
    # Fold 0: one error thrice, the lowest loss among these is 0.2. Fold 1: no error, at once.
    assert selected.errors.tolist() == [70.0, 90.0]
    assert selected.epochs == [2, 1]
    assert selected.numbers == [(0.2, 1.0), (0.1, 1.0)]


def test_methods_without_numbers_are_selected_too():
    selected = select_on_test(made([(0, np.nan, np.nan, [], [], [3, 2])]))
    assert selected.errors.tolist() == [20.0]
    assert np.isnan(selected.deviation)


def folds_of(*fits):
    rows = [(fold, "mixup", alpha, np.nan) for fold, alpha in fits]
    return pd.DataFrame(rows, columns=["fold", "method", "alpha", "eta"])


@pytest.mark.parametrize(
    ("fits", "n_folds", "alphas"),
    [
        ([(0, 1), (0, 2), (1, 1)], 1, {1, 2}),  # one fold is not done
        ([(0, 1), (0, 2), (1, 1), (2, 1)], 3, {1}),  # a value that one fold has begun with
        ([(0, 1), (1, 2)], 1, {1}),  # different values
        ([(0, 1), (0, 2), (1, 1), (1, 2)], 2, {1, 2}),
    ],
)
def test_only_folds_with_the_same_fits_are_compared(fits, n_folds, alphas):
    whole = complete_folds(folds_of(*fits))
    assert whole["fold"].nunique() == n_folds
    assert set(whole["alpha"]) == alphas
    assert whole.groupby("fold").size().nunique() == 1


def test_the_fingerprint_depends_on_edges_and_features():
    table = data.make_synthetic()
    (adjacency, features), *others = table.graphs
    found = {table.fingerprint}
    # The same neighbours in all, of other nodes.
    start = adjacency.indptr.copy()
    start[1] = 0
    moved = type(adjacency)((adjacency.data, adjacency.indices, start), shape=adjacency.shape)
    for first in ((moved, features), (adjacency, 2 * features)):
        found.add(replace(table, graphs=[first, *others]).fingerprint)
    assert len(found) == 3


def test_synthetic_graphs_are_always_the_same():
    table = data.make_synthetic()
    assert len(table.graphs) == len(table.y) == 60
    assert len(table.folds) == 3
    assert table.fingerprint == data.make_synthetic().fingerprint
    train, valid, test = table.parts("honest", 0)
    assert not set(train) & set(valid)
    assert set(train) | set(valid) == set(table.parts("xu", 0)[0])
    assert set(test) == set(table.folds[0][1])
    assert len(table.parts("xu", 0)[1]) == 0


def test_node_labels_have_columns_over_the_whole_dataset():
    table = data.make_synthetic()
    widths = {features.shape[1] for _, features in table.graphs}
    assert len(widths) == 1
    assert all((features.sum(axis=1) == 1).all() for _, features in table.graphs)


def test_the_training_in_rows_is_that_of_the_network():
    recorded = Training().recorded
    config = configs_of(["mixupe"], [1.0], [0.1])[0]
    model = Training().make(config, seed=0)
    module = GIN(3, 2, **model.module_params)
    assert len(module.layers) == recorded["n_layers"]
    assert module.readout == recorded["readout"]
    assert isinstance(module.norm, torch.nn.BatchNorm1d) == recorded["norm"]
    assert module.head[2].p == recorded["dropout"]
    assert module.head[0].out_features == recorded["d_hidden"]
    assert (model.optimizer, model.lr) == (recorded["optimizer"], recorded["lr"])
    assert (model.batch_size, model.max_epochs) == (recorded["batch_size"], recorded["max_epochs"])
    schedule = model.callbacks[0]
    assert (schedule.policy, schedule.kwargs) == ("StepLR", {"step_size": 50, "gamma": 0.5})
    assert (model.alpha, model.eta) == (1.0, 0.1)


def test_the_rate_is_halved():
    table = data.make_synthetic()
    model = Training(max_epochs=101).make(configs_of(["erm"], [1.0], [1.0])[0], seed=0)
    model.set_params(module_params={"d_hidden": 2, "n_layers": 1}, batch_size=40)
    model.fit(table.graphs[:40], table.y[:40])
    rates = [row["event_lr"] for row in model.history_]
    assert [rates[epoch] for epoch in (0, 49, 50, 99, 100)] == [0.01, 0.01, 0.005, 0.005, 0.0025]


def test_what_is_measured_after_an_epoch_is_what_the_estimator_predicts():
    table = data.make_synthetic()
    study = Study(
        configs_of(["mixupe"], [1.0], [0.1]), ["honest"], {table.name: Training(8, 16, 4)}
    )
    fit = study.fits(table)[0]
    (row,) = Study.run_job(fit)
    assert row["error"] == ""
    train, valid, test = table.parts("honest", 0)
    model = fit.training.make(fit.config, seed=0).fit(
        [table.graphs[i] for i in train], table.y[train]
    )
    for name, part in (("valid", valid), ("test", test)):
        share = model.score([table.graphs[i] for i in part], table.y[part])
        n_wrong = int(row[f"{name}_errors"].split()[-1])
        assert n_wrong == round((1 - share) * len(part))
        assert len(row[f"{name}_errors"].split()) == 4
    proba = model.predict_log_proba([table.graphs[i] for i in valid])
    loss = -proba[np.arange(len(valid)), table.y[valid]].mean()
    assert float(row["valid_losses"].split()[-1]) == pytest.approx(loss, rel=1e-3)
    assert (row["n_train"], row["n_valid"], row["n_test"]) == tuple(map(len, (train, valid, test)))


def test_a_fit_that_fails_says_why(monkeypatch):
    table = data.make_synthetic()
    monkeypatch.setattr(Training, "make", lambda *_, **__: 1 / 0)
    study = Study(configs_of(["erm"], [1.0], [0.1]), ["xu"], {table.name: Training()})
    (row,) = Study.run_job(study.fits(table)[0])
    assert row["error"] == "ZeroDivisionError: division by zero"


def test_the_command_runs_reports_and_resumes(tmp_path, capsys):
    place = ["--output", str(tmp_path)]
    assert command.main([*FAST, *place, "--methods", "erm"]) == 0
    assert "synthetic" in capsys.readouterr().out
    first = (tmp_path / "rows.csv").read_text()
    assert len(first.splitlines()) == 1 + 2 * 2
    assert command.main([*FAST, *place]) == 0
    whole = (tmp_path / "rows.csv").read_text()
    assert whole.startswith(first)
    assert len(whole.splitlines()) == 1 + 2 * 2 * 3
    printed = capsys.readouterr().out
    assert "ERM" in printed
    assert "MixupE" in printed
    assert command.main([*FAST, *place]) == 0
    assert (tmp_path / "rows.csv").read_text() == whole
    report_text = (tmp_path / "report.md").read_text()
    assert "on validation graphs" in report_text
    assert '"max_epochs": 2' in report_text
    rows = read_rows(tmp_path / "rows.csv", SCHEMA)
    assert "torch-geometric" in rows["versions"].iloc[0]


def test_wrong_options_are_errors(tmp_path, capsys):
    assert command.main(["--report-only", "--output", str(tmp_path)]) == 2
    assert "Error: Got no rows in" in capsys.readouterr().err
    assert command.main(["--data", str(tmp_path), "--sets", "NOWHERE"]) == 2
    assert (
        "Error: Got --sets NOWHERE, but expected a folder of this name" in capsys.readouterr().err
    )


def test_the_plain_loop_trains_the_same_network():
    table = data.make_synthetic()
    n_features = table.graphs[0][1].shape[1]
    torch.manual_seed(0)
    theirs = timing.PlainGIN(n_features, 2, d_hidden=8).eval()
    torch.manual_seed(0)
    ours = GIN(n_features, 2, d_hidden=8).eval()
    assert [one.shape for one in theirs.parameters()] == [one.shape for one in ours.parameters()]
    from benchmarks._graphs.fits import read_graphs
    from mixupe_sklearn._graphs.node_features import learn_inputs

    graphs, _ = read_graphs(table.graphs)
    batch = learn_inputs(graphs, "degree").ready(graphs)[:]
    torch.testing.assert_close(theirs(batch), ours(batch))


def test_times_are_measured_and_judged(tmp_path, capsys):
    assert command.main(["--timing", "2", "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / timing.FILE).read_text())
    times = found["seconds"]["synthetic"]
    assert {name: len(values) for name, values in times.items()} == dict.fromkeys(
        ["plain loop", "ERM", "Mixup", "MixupE"], 2
    )
    printed = capsys.readouterr().out
    assert "At most" in printed
    assert "held" in printed or "missed" in printed
    found["seconds"]["synthetic"] = {
        "plain loop": [1.0],
        "ERM": [2.0],
        "Mixup": [1.0],
        "MixupE": [1.2],
    }
    timing.write_times(tmp_path / timing.FILE, found, found["seconds"])
    steps, epochs = timing.tables_of(tmp_path / timing.FILE)
    assert [cell.text for cell in steps.rows[0]][2:] == ["1.20 (no spread)", "1.30", "held"]
    assert epochs.rows[0][-1].text == "missed"


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real graph datasets")
def test_a_real_set_runs(tmp_path):
    options = [
        "--data",
        str(REAL),
        *["--sets", "MUTAG", "--methods", "mixupe", "--protocols", "honest"],
    ]
    assert command.main([*FAST, "--output", str(tmp_path), *options]) == 0
    rows = read_rows(tmp_path / "rows.csv", SCHEMA)
    assert (rows["n_train"] + rows["n_valid"] + rows["n_test"]).tolist() == [188, 188]


# What is committed.


def test_the_committed_report_and_page_are_those_of_the_committed_rows(tmp_path):
    for file in RESULTS.iterdir():
        shutil.copy(file, tmp_path)
    before = (tmp_path / "report.md").read_text()
    report.make_report(tmp_path)
    assert (tmp_path / "report.md").read_text() == before
    assert block_of(report.PAGE.read_text(), "graphs") == report.page_tables(RESULTS)


def test_the_committed_rows_have_ten_complete_folds_of_mutag_and_ptc_in_both_protocols():
    rows = read_rows(RESULTS / "rows.csv", SCHEMA)
    assert not rows["error"].any()
    for name in ("MUTAG", "PTC"):
        for protocol in data.PROTOCOLS:
            part = rows[(rows["dataset"] == name) & (rows["protocol"] == protocol)]
            counts = part.groupby("fold").size()
            assert len(counts) == 10
            assert counts.nunique() == 1
            assert set(part["method"]) == {"erm", "mixup", "mixupe"}
