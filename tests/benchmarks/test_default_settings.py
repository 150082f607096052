"""The study behind the defaults: what is run, what a choice may use, and what the tables say."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

from benchmarks import default_settings as study
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.collection import items_of_folder
from benchmarks._tabular.fits import few_rows_allowed
from benchmarks._tabular.methods import Settings, paper_settings
from benchmarks.default_settings import (
    ABLATION,
    CANDIDATES,
    LADDER,
    NONE,
    TEST,
    VALID,
    Candidate,
    Study,
    ValidationFile,
    comparison,
)
from mixupe_sklearn import MixupEClassifier, MixupERegressor
from mixupe_sklearn.datasets import Table, load_embedded

QUICK = {"max_epochs": 2, "min_steps": 0, "n_members": 2}
TIMES = ["fit_seconds"]


def run_command(*arguments):
    return study.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small tables, one of each task, as a user would list them."""
    path, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"]).assign(
        code=rng.integers(0, 3, 80)
    )
    X.assign(target=np.where(X["a"] > 0, "yes", "no")).to_csv(path / "two.csv", index=False)
    X.assign(target=X["a"] + X["code"]).to_csv(path / "line.csv.gz", index=False)
    listed = {
        "two": {"task": "classification", "nominal": ["code"]},
        "line": {"task": "regression", "nominal": ["code"]},
    }
    (path / "tables.json").write_text(json.dumps(listed))
    return path


@pytest.fixture(scope="module")
def command(folder, tmp_path_factory):
    """A small study that was run: its command line, and its folder."""
    output = tmp_path_factory.mktemp("study")
    given = ["--tables", folder, "--methods", "today", "quick", "--splits", "2", "--jobs", "1"]
    given += ["--quiet", "--output", output]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            study, "CANDIDATES", {"today": Candidate("a reference", QUICK | {"lr": 0.02})}
        )
        study.CANDIDATES["quick"] = Candidate(
            "it takes no time", QUICK, {"n_bins": 2}, {"alpha": 0.1}, {"alpha": 0.3}
        )
        assert run_command(*given) == 0
        yield given, output


def read_both(folder):
    return read_rows(folder / "rows.csv", VALID), read_rows(folder / "test.csv", TEST)


def test_categories_and_targets_of_a_folder_are_read_as_its_list_says(folder):
    two, line = (item.load() for item in items_of_folder(folder))
    assert study.is_regression(line)
    assert not study.is_regression(two)
    assert set(two.y) == {"no", "yes"}
    assert two.X["code"].map(type).eq(str).all()
    assert list(line.X) == ["a", "b", "code"]


def test_every_fit_is_a_row_of_both_files(command):
    _, output = command
    rows, test = read_both(output)
    assert (rows["error"] == "").all()
    pd.testing.assert_frame_equal(rows[list(VALID.key)], test[list(VALID.key)])
    assert len(rows) == 2 * 2 * 2
    own = rows[rows["method"] == "quick"].drop_duplicates("task").set_index("task")["params"]
    for task, alpha in (("classification", 0.1), ("regression", 0.3)):
        params = json.loads(own[task])
        assert params["alpha"] == alpha
        assert params["preprocessor"]["n_bins"] == 2
    has_classes = rows["task"] == "classification"
    assert rows.loc[has_classes, ["valid_error", "valid_log_loss"]].notna().all(axis=None)
    assert rows.loc[~has_classes, "valid_rmse"].notna().all()
    assert rows.loc[has_classes, "valid_rmse"].isna().all()
    assert rows["versions"].str.contains("torch").all()


def test_the_files_of_a_choice_hold_no_test_score():
    assert not any(name.startswith("test") for name in VALID.columns)
    assert not any(name.startswith("valid") for name in TEST.columns)


def test_a_choice_needs_no_test_scores(command, capsys):
    given, output = command
    run_command(*given, "--report-only")
    first = capsys.readouterr().out
    text = (output / "test.csv").read_text()
    (output / "test.csv").unlink()
    try:
        assert run_command(*given, "--report-only") == 0
    finally:
        (output / "test.csv").write_text(text)
    assert capsys.readouterr().out == first
    assert first.count("\n| ") == 2


def test_a_finished_study_has_nothing_left_to_do(command):
    given, output = command
    before = [(output / name).read_bytes() for name in ("rows.csv", "test.csv")]
    run_command(*given)
    assert [(output / name).read_bytes() for name in ("rows.csv", "test.csv")] == before


def test_a_run_that_was_killed_between_the_files_is_resumed(command, tmp_path):
    given, output = command
    for name in ("rows.csv", "test.csv"):
        lines = (output / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:-1] if name == "rows.csv" else lines))
    run_command(*given[:-1], tmp_path)
    for mine, whole in zip(read_both(tmp_path), read_both(output), strict=True):
        kept = [name for name in whole if name not in (*TIMES, "commit", "run")]
        pd.testing.assert_frame_equal(mine[kept], whole[kept])


def test_a_candidate_that_was_changed_is_run_again():
    table, done = load_embedded("iris"), set()
    for params, n_open in (({"lr": 0.01}, 1), ({"lr": 0.01}, 0), ({"lr": 0.02}, 1)):
        plan = Study({"mine": Candidate("", params)}, n_splits=1)
        assert len(plan.open_jobs(table, done)) == n_open


def test_a_fit_that_fails_says_why_and_has_no_test_scores(tmp_path):
    plan = Study({"wrong": Candidate("", {"alpha": -1.0})}, 1)
    trial = plan.open_jobs(load_embedded("iris"), set())[0]
    with ValidationFile(tmp_path) as files:
        files.add(Study.run_job(trial))
        assert len(files.keys()) == 1
        assert files.keys(with_failed=False) == set()
    rows, test = read_both(tmp_path)
    assert "Got alpha=-1.0" in rows["error"][0]
    assert test.empty


def test_splits_are_disjoint_stratified_and_bounded():
    table = Table("t", pd.DataFrame({"a": range(1000)}), np.arange(1000) % 10 == 0, "csv")
    split = study.split_of(table, 1, most_rows=300)
    parts = [split.train, split.valid, split.test]
    assert [len(part) for part in parts] == [300, 200, 200]
    assert len(set(np.concatenate(parts).tolist())) == 700
    assert [table.y[part].sum() for part in parts[1:]] == [20, 20]
    again = study.split_of(table, 1, most_rows=300)
    assert np.array_equal(again.train, split.train)


@pytest.mark.parametrize("is_regression", [False, True])
@pytest.mark.parametrize(
    "one", [*CANDIDATES.values(), *LADDER.values(), *ABLATION.values()], ids=lambda one: one.why
)
def test_every_candidate_can_be_fitted(one, is_regression):
    settings = one.settings(is_regression)
    short = {"max_epochs": 1, "min_steps": 0, "batch_size": 10}
    short |= {"n_members": min(2, settings.classifier.get("n_members", 2))}
    X = np.random.default_rng(0).normal(size=(60, 3))
    settings = settings._replace(classifier=settings.classifier | short)
    assert settings.make(seed=0).fit(X, np.arange(60) % 3).predict(X).shape == (60,)
    assert one.why


def test_other_settings_are_recorded_as_differences_from_the_papers():
    assert paper_settings().unlike_paper() == "{}"
    paper = paper_settings()
    other = Settings(paper.classifier | {"alpha": (0.1, 0.2)}, paper.preprocessor)
    assert other.unlike_paper() == '{"alpha": [0.1, 0.2]}'
    # A network that is said and the same that is not are one network.
    wide = Settings(paper.classifier | {"module_params": {"d_hidden": (9,)}}, paper.preprocessor)
    assert json.loads(wide.unlike_paper())["module_params"]["d_hidden"] == [9]


@pytest.mark.parametrize("estimator", [MixupEClassifier, MixupERegressor])
def test_a_default_is_recorded_for_its_task(estimator, monkeypatch):
    settings = Settings({}, {}, is_regression=estimator is MixupERegressor)
    monkeypatch.setitem(estimator.__init__.__kwdefaults__, "validation_fraction", 0.375)
    assert json.loads(settings.unlike_paper())["validation_fraction"] == 0.375


def test_a_network_by_another_name_is_not_the_papers():
    """The paper's parts said once more would turn a smooth network into one of ReLU."""
    paper = paper_settings()
    params = paper.classifier | {"module": "mlp-gelu", "max_epochs": 1}
    classifier = Settings(params, paper.preprocessor).make(0)["classifier"]
    with few_rows_allowed():
        module = classifier.fit(np.eye(4), [0, 0, 1, 1]).net_.module_
    assert "GELU(" in str(module)
    assert "ReLU(" not in str(module)


def rows_of(scores, metric="error", n_splits=2, seconds=1.0):
    """Rows of methods, from the score of each on each dataset."""
    empty = dict.fromkeys(("valid_error", "valid_log_loss", "valid_rmse"), np.nan)
    return pd.DataFrame(
        {
            **{"dataset": f"set {place}", "split": split, "method": name, "fit_seconds": seconds},
            **empty,
            f"valid_{metric}": score,
        }
        for (name, own), split in itertools.product(scores.items(), range(n_splits))
        for place, score in enumerate(own)
        if score is not None
    )


def lines_of(text):
    lines = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    return {first: cells for first, *cells in lines}


def test_a_table_has_ranks_relative_changes_and_wins_against_the_reference():
    rows = rows_of({"a": [10.0, 10.0, 10.0], "b": [9.5, 20.5, 10.0]})
    found = lines_of(comparison(rows, rows, "valid", "a", ["a", "b"]))
    assert list(found) == ["a", "b"]
    assert found["a"][:3] == ["1.50", "+0.0", "0/3/0"]
    # log(10 / 10.5), at most 0.3 of one table, and 0: their mean is 0.0837.
    assert found["b"][:3] == ["1.50", "+8.7", "1/1/1"]


def test_errors_of_nearly_perfect_methods_do_not_decide():
    rows = rows_of({"a": [0.1], "b": [0.2]})
    assert lines_of(comparison(rows, rows, "valid", "a", ["a", "b"]))["b"][1] == "+16.7"
    rows = rows_of({"a": [0.1], "b": [0.2]}, "rmse")
    assert lines_of(comparison(rows, rows, "valid", "a", ["a", "b"]))["b"][1] == "+100.0"


def test_only_splits_that_all_methods_have_are_compared():
    rows = rows_of({"a": [1.0, 1.0, 1.0], "b": [2.0, 2.0, None]})
    text = comparison(rows, rows, "valid", "a", ["a", "b"])
    assert "rank by error (2)" in text
    assert lines_of(text)["b"][2] == "0/0/2"


def test_no_rows_give_a_sentence_instead_of_a_table():
    empty = rows_of({"a": [1.0]})[:0]
    assert comparison(empty, empty, "valid", "a", ["a"]) == NONE


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tasks", "59"], "Got --tasks, but expected it with --source openml only."),
        (["--names", "irish"], "Got name='irish'"),
        (["--methods", "best"], "Got --methods best, but expected methods of the phase choose"),
        (["--tables", "none"], "Got --tables none, but expected a folder with a list of tables"),
    ],
)
def test_wrong_options_are_errors(arguments, sentence, tmp_path, capsys):
    assert run_command(*arguments, "--quiet", "--output", tmp_path) == 2
    assert capsys.readouterr().err.startswith(f"Error: {sentence}")
