"""The study behind the defaults: what is run, what a choice may use, and what the page says."""

import itertools
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from benchmarks._harness.docs_tables import block_of
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.fits import few_rows_allowed
from benchmarks._tabular.methods import Settings, paper_settings
from benchmarks._tabular.protocol import FITS, TRAINING, configs_of
from benchmarks.studies import default_settings as study
from benchmarks.studies.default_settings import (
    CANDIDATES,
    INGREDIENTS,
    NONE,
    TEST,
    VALID,
    Study,
    ValidationFile,
    ablation_settings,
    ablation_table,
    candidate_settings,
    choose_table,
    make_table,
    on_paper,
)
from mixupe_sklearn import MixupEClassifier, preset
from mixupe_sklearn.datasets import load_embedded
from mixupe_sklearn.preprocessing import TablePreprocessor

TIMES = ["fit_seconds"]


def run_command(*arguments):
    return study.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """A small study that was run: its command line, and its folder."""
    folder = tmp_path_factory.mktemp("study")
    given = ["--names", "iris", "--candidates", "paper", "quick", "--seeds", "2", "--jobs", "1"]
    given += ["--quiet", "--output", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CANDIDATES, "quick", ({"lr": 0.01, "max_epochs": 3}, {}, "it takes no time"))
        assert run_command(*given) == 0
        yield given, folder


def read_both(folder):
    return read_rows(folder / "rows.csv", VALID), read_rows(folder / "test.csv", TEST)


def test_every_fit_is_a_row_of_both_files(command):
    _, folder = command
    rows, test = read_both(folder)
    assert (rows["error"] == "").all()
    keys = list(VALID.key)
    pd.testing.assert_frame_equal(rows[keys], test[keys])
    assert sorted(rows["candidate"] + " " + rows["split"].astype(str)) == [
        *("paper 0", "paper 1", "quick 0", "quick 1"),
    ]
    params = {name: one.unlike_paper() for name, one in candidate_settings().items()}
    assert (rows["params"] == rows["candidate"].map(params)).all()
    assert json.loads(params["quick"]) == {"lr": 0.01, "max_epochs": 3}
    assert rows["versions"].str.contains("torch").all()


def test_the_files_of_a_choice_hold_no_test_score(command):
    assert not any(name.startswith("test") for name in VALID.columns)
    assert not any(name.startswith("valid") for name in TEST.columns)


def test_a_choice_needs_no_test_scores(command, capsys):
    given, folder = command
    run_command(*given, "--report-only")
    first = capsys.readouterr().out
    text = (folder / "test.csv").read_text()
    (folder / "test.csv").unlink()
    try:
        assert run_command(*given, "--report-only") == 0
    finally:
        (folder / "test.csv").write_text(text)
    assert capsys.readouterr().out == first
    assert "by validation scores alone: means over 1 datasets of 2 splits each" in first
    assert first.count("\n| ") == 2 + 2


def test_a_finished_study_has_nothing_left_to_do(command):
    given, folder = command
    before = [(folder / name).read_bytes() for name in ("rows.csv", "test.csv")]
    run_command(*given)
    assert [(folder / name).read_bytes() for name in ("rows.csv", "test.csv")] == before


def test_a_run_that_was_killed_between_the_files_is_resumed(command, tmp_path):
    given, folder = command
    for name in ("rows.csv", "test.csv"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:-1] if name == "rows.csv" else lines))
    run_command(*given[:-1], tmp_path)
    for mine, whole in zip(read_both(tmp_path), read_both(folder), strict=True):
        kept = [name for name in whole if name not in (*TIMES, "commit")]
        pd.testing.assert_frame_equal(mine[kept], whole[kept])


def test_a_candidate_that_was_changed_is_run_again():
    table, done = load_embedded("iris"), set()
    for params, n_open in (({"lr": 0.01}, 1), ({"lr": 0.01}, 0), ({"lr": 0.02}, 1)):
        plan = Study({"mine": on_paper(params, {})}, n_seeds=1)
        assert len(plan.open_jobs(table, done)) == n_open


def test_a_fit_that_fails_says_why_and_has_no_test_scores(tmp_path):
    wrong = Settings({"alpha": -1.0}, {})
    trial = Study({"wrong": wrong}, 1).open_jobs(load_embedded("iris"), set())[0]
    with ValidationFile(tmp_path) as files:
        files.add(Study.run_job(trial))
        assert len(files.keys()) == 1
        assert files.keys(with_failed=False) == set()
    assert "Got alpha=-1.0" in read_rows(tmp_path / "rows.csv", VALID)["error"][0]
    assert not (tmp_path / "test.csv").exists()


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_candidate_can_be_fitted(name):
    settings = candidate_settings()[name]
    short = settings.classifier | {"max_epochs": 1, "min_steps": 0, "batch_size": 10}
    X = np.random.default_rng(0).normal(size=(60, 3))
    pipeline = Settings(short, settings.preprocessor).make(seed=0).fit(X, np.arange(60) % 3)
    assert pipeline.predict_proba(X).shape == (60, 3)
    assert CANDIDATES[name][2]


def test_other_settings_are_recorded_as_differences_from_the_papers():
    assert paper_settings().unlike_paper() == "{}"
    assert on_paper({"alpha": (0.1, 0.2)}, {}).unlike_paper() == '{"alpha": [0.1, 0.2]}'
    # A network that is said and the same that is not are one network.
    assert on_paper({}, {}).unlike_paper() == "{}"
    wide = json.loads(on_paper({"module_params": {"d_hidden": (9,)}}, {}).unlike_paper())
    assert wide["module_params"]["d_hidden"] == [9]


def test_what_a_candidate_does_not_say_of_stopping_is_no_default_of_today(monkeypatch):
    stops = on_paper({"early_stopping": True}, {})
    before = stops.unlike_paper()
    monkeypatch.setitem(MixupEClassifier.__init__.__kwdefaults__, "validation_fraction", 0.375)
    assert stops.unlike_paper() == before == '{"early_stopping": true}'
    assert json.loads(Settings({}, {}).unlike_paper())["validation_fraction"] == 0.375


def test_a_network_by_another_name_is_not_the_papers():
    """The paper's parts said once more would turn a smooth network into one of ReLU."""
    classifier = on_paper({"module": "mlp-gelu", "max_epochs": 1}, {}).make(0)["classifier"]
    with few_rows_allowed():
        module = classifier.fit(np.eye(4), [0, 0, 1, 1]).net_.module_
    assert "GELU(" in str(module)
    assert "ReLU(" not in str(module)


@pytest.fixture
def strong_defaults(monkeypatch):
    """A constructor with three ingredients that the paper's settings do not have."""
    defaults = MixupEClassifier.__init__.__kwdefaults__
    for name, value in on_paper({}, {}).make(0)["classifier"].get_params().items():
        monkeypatch.setitem(defaults, name, value)
    monkeypatch.setitem(defaults, "n_members", 2)
    monkeypatch.setitem(defaults, "alpha", (0.1, 0.2))
    monkeypatch.setitem(defaults, "lr_schedule", "cosine")
    monkeypatch.setitem(TablePreprocessor.__init__.__kwdefaults__, "scaling", "standard")


def test_an_ingredient_is_taken_away_by_the_papers_value(strong_defaults):
    found = {name: json.loads(one.unlike_paper()) for name, one in ablation_settings().items()}
    default = {"n_members": 2, "lr_schedule": "cosine", "alpha": [0.1, 0.2]}
    assert found["default"] == default
    assert found["without members"] == {"lr_schedule": "cosine", "alpha": [0.1, 0.2]}
    assert found["without schedule"] == {"n_members": 2, "alpha": [0.1, 0.2]}
    assert found["without own alpha and eta"] == {"n_members": 2, "lr_schedule": "cosine"}
    assert found["without penalty"] == default | {"method": "mixup"}
    assert found["without mixing"] == default | {"method": "erm+penalty"}
    assert found["paper"] == {}
    # What the defaults do not have cannot be taken away.
    assert not {"without length", "without inputs", "without early stopping"} & set(found)


def test_every_setting_of_the_ablation_can_be_fitted():
    X = np.random.default_rng(0).normal(size=(60, 3))
    for settings in ablation_settings().values():
        short = settings.classifier | {"max_epochs": 1, "min_steps": 0, "batch_size": 10}
        pipeline = Settings(short, settings.preprocessor).make(seed=0).fit(X, np.arange(60) % 3)
        assert pipeline.predict_proba(X).shape == (60, 3)


def test_every_difference_of_the_defaults_from_the_paper_is_an_ingredient():
    """Of none of them the share would stay unseen."""
    known = {*itertools.chain(*INGREDIENTS.values()), "preprocessor", "method"}
    assert set(json.loads(Settings({}, {}).unlike_paper())) <= known
    assert set(itertools.chain(*INGREDIENTS.values())) <= set(MixupEClassifier().get_params())


def rows_of(scores, part, n_splits=2, **more):
    """Rows of candidates, from the score of each on each dataset."""
    return pd.DataFrame(
        {
            **{"dataset": f"set {place}", "data": "0f", "split": split},
            **{"candidate": name, "params": name, "fit_seconds": 1.0, "error": ""},
            **{f"{part}_{metric}": score for metric in ("error", "log_loss", "ece", "brier")},
            **more,
        }
        for (name, own), split in itertools.product(scores.items(), range(n_splits))
        for place, score in enumerate(own)
    )


def lines_of(sheet):
    return {row[0].text: [cell.text for cell in row[1:]] for row in sheet.rows}


def test_candidates_are_ranked_on_each_dataset_by_validation():
    """Ranks, not sizes of errors: one hard dataset cannot outvote two."""
    rows = rows_of({"a": [1.0, 1.0, 99.0], "b": [2.0, 2.0, 3.0]}, "valid")
    sheet = choose_table(rows, {"a": "a", "b": "b"}, n_splits=2)
    assert list(lines_of(sheet)) == ["a", "b"]
    assert lines_of(sheet)["a"][:3] == ["1.33", "1.33", "33.67"]
    assert lines_of(sheet)["b"][:3] == ["1.67", "1.67", "2.33"]
    assert sheet.notes == []


def test_only_what_all_have_is_compared_and_what_is_missing_is_named():
    rows = rows_of({"a": [1.0, 1.0, 1.0], "b": [2.0, 2.0], "c": [0.0]}, "valid")
    sheet = choose_table(rows, dict(zip("abcd", "abcd", strict=True)), n_splits=2)
    assert list(lines_of(sheet)) == ["a", "b"]
    assert "means over 2 datasets" in sheet.caption
    assert sheet.notes == ["Not finished: c, d."]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows.assign(params="what it set before"),
        lambda rows: rows.assign(error="ValueError: no luck"),
        lambda rows: rows[rows["split"] == 0],
        lambda rows: rows[:0],
    ],
    ids=["other settings", "failed", "part of the splits", "none"],
)
def test_rows_that_do_not_count_give_no_table(spoil):
    rows = spoil(rows_of({"a": [1.0, 2.0]}, "valid"))
    assert choose_table(rows, {"a": "a"}, n_splits=2) is None


def test_of_a_dataset_whose_content_has_changed_the_newest_counts():
    old = rows_of({"a": [1.0]}, "valid", data="before")
    rows = pd.concat([old, rows_of({"a": [5.0]}, "valid")], ignore_index=True)
    assert lines_of(choose_table(rows, {"a": "a"}, n_splits=2))["a"][2] == "5.00"


def test_the_ablation_counts_test_errors_against_the_default():
    names = ["default", "without members", "paper"]
    scores = dict(zip(names, [[1.0, 2.0, 3.0], [0.5, 2.001, 9.0], [2.0, 3.0, 4.0]], strict=True))
    test, rows = rows_of(scores, "test"), rows_of(scores, "valid")
    rows.loc[rows["candidate"] == "paper", "fit_seconds"] = 0.25
    found = lines_of(ablation_table(rows, test, {name: name for name in names}, n_splits=2))
    assert list(found) == names
    assert found["default"] == ["·", "2.00", "2.0000", "2.0000", "2.0000", "1.00"]
    assert found["without members"][:2] == ["1/1/1", "3.83"]
    assert (found["paper"][0], found["paper"][-1]) == ("0/0/3", "0.25")
    without = test[test["candidate"] != "default"]
    assert ablation_table(rows, without, {name: name for name in names}, n_splits=2) is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tasks", "59"], "Got --tasks, but expected it with --source openml only."),
        (["--names", "irish"], "Got name='irish'"),
    ],
    ids=["source", "name"],
)
def test_wrong_options_are_errors(arguments, sentence, tmp_path, capsys):
    assert run_command(*arguments, "--quiet", "--output", tmp_path) == 2
    assert capsys.readouterr().err.startswith(f"Error: {sentence}")


def test_rows_of_other_data_are_not_thrown_among_those_of_the_study():
    options = study.parser().parse_args([])
    assert study.folder_of(options).parts[:2] == ("build", "candidates")
    openml = study.parser().parse_args(["--source", "openml"])
    assert study.folder_of(openml) == study.RESULTS


@pytest.mark.parametrize(
    ("phase", "settings"), [("choose", candidate_settings), ("ablation", ablation_settings)]
)
def test_the_page_has_the_tables_of_the_committed_rows(phase, settings):
    wanted = {name: one for name, one in settings().items() if name != "quick"}  # a test's own
    made = make_table(study.RESULTS, phase, wanted, n_splits=3)
    assert block_of(study.PAGE.read_text(), phase) == made


def test_renamed_candidates_keep_their_rows(tmp_path):
    shutil.copy(study.RESULTS / "rows.csv", tmp_path)
    with ValidationFile(tmp_path) as files:
        keys = files.keys()
    assert set(CANDIDATES) - {"quick"} <= {key[VALID.key.index("candidate")] for key in keys}


def test_no_rows_give_a_sentence_instead_of_a_table(tmp_path):
    assert make_table(tmp_path, "choose", candidate_settings(), n_splits=3) == NONE


# The paper's grid

PAIRS = [(config.alpha, config.eta) for config in configs_of("mixupe", "paper")]


def grid_rows(wrong):
    """Rows of datasets, from the wrong answers (of 200) of each pair, by its place in the grid."""
    return pd.DataFrame(
        {
            "dataset": dataset,
            "method": "mixupe",
            "alpha": pair[0],
            "eta": pair[1],
            "split": split,
            "splits": "holdout",
            "params": json.dumps(TRAINING, sort_keys=True),
            "n_rows": 1000,
            "error": "",
            "valid_error": count(place) / 2,
            "test_error": -float(count(place)),
        }
        for (dataset, count), (place, pair), split in itertools.product(
            wrong.items(), enumerate(PAIRS), range(5)
        )
    )


def test_the_pair_with_the_lowest_average_rank_wins_whatever_its_test_error():
    rows = grid_rows({name: lambda place: abs(place - 17) for name in ("iris", "wine")})
    wrong = study.wrong_answers(rows)
    assert study.best_pair(wrong) == PAIRS[17]


def test_ranks_not_sizes_of_errors_count():
    """One dataset with many errors cannot outvote two with few."""
    few = {name: lambda place: place for name in ("iris", "wine")}
    rows = grid_rows(few | {"letter": lambda place: 4 * (44 - place)})
    assert study.best_pair(study.wrong_answers(rows)) == PAIRS[0]


def test_rounded_percentages_of_equal_counts_are_tied():
    """Rows hold six digits: 33.3333 + 66.6667 and 66.6667 + 33.3333 are not the only way to 100."""
    rows = grid_rows({name: lambda place: 0 for name in ("iris", "wine")})
    rows["n_rows"] = 150  # 30 rows to choose with
    shares = [[10, 0, 0, 0, 0], [2, 2, 2, 2, 2]]
    rows["valid_error"] = [
        float(f"{100 * shares[number // 5 % 2][number % 5] / 30:.6g}")
        for number in range(len(rows))
    ]
    assert study.wrong_answers(rows).rank().mean(axis=1).nunique() == 1


@pytest.mark.parametrize(
    "lose",
    [
        lambda rows: rows[~((rows["dataset"] == "mnist") & (rows["alpha"] == 5.0))],
        lambda rows: rows[~((rows["dataset"] == "mnist") & (rows["split"] == 3))],
        lambda rows: rows.assign(params=rows["params"].mask(rows["dataset"] == "mnist", "{}")),
        lambda rows: rows.assign(splits=rows["splits"].mask(rows["dataset"] == "mnist", "task 3")),
    ],
    ids=["part of the grid", "part of the splits", "other epochs", "other splits"],
)
def test_a_dataset_without_the_complete_protocol_is_left_out_and_named(lose):
    rows = lose(grid_rows({name: lambda place: place for name in ("iris", "wine", "mnist")}))
    assert list(study.wrong_answers(rows)) == ["iris", "wine"]
    assert "Left out, as the grid is incomplete: mnist." in study.describe_grid(rows)


def test_the_table_marks_the_lowest_rank():
    text = study.describe_grid(grid_rows({name: lambda place: place for name in ("iris", "wine")}))
    assert "| 0.01 | **1.00** |" in text
    assert "Lowest: alpha=0.01, eta=0.0001 (1.00)" in text
    assert "another pair: never." in text


def test_too_few_datasets_are_refused(tmp_path, capsys):
    rows = grid_rows({"iris": lambda place: place})
    with pytest.raises(ValueError, match="Got rows with 1 datasets"):
        study.describe_grid(rows)
    assert study.main(["--grid", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_the_preset_is_what_the_committed_rows_say():
    errors = study.wrong_answers(read_rows(study.GRID_ROWS, FITS))
    params = preset("paper")
    assert (params["alpha"], params["eta"]) == study.best_pair(errors)


def test_the_page_has_the_best_pairs_of_the_committed_rows():
    page = study.PAGE.with_name("paper_tables.md").read_text()
    _, summary = study.describe_grid(read_rows(study.GRID_ROWS, FITS)).split("\n\n")
    assert summary in page
