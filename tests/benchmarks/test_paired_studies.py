"""Paired studies: what is run, what the tables say, and the pages that show them."""

import csv
import dataclasses
import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from benchmarks._harness.docs_tables import block_of
from benchmarks._harness.results_file import read_rows
from benchmarks.studies import paired
from benchmarks.studies.paired import PENALTY_FRACTION as STUDY
from benchmarks.studies.paired import SCHEMA, SECOND_ORDER, STUDIES, ScalingStudy
from mixupe_sklearn.datasets import load_embedded

GUIDE = pathlib.Path(paired.__file__).parents[2] / "docs" / "user_guide"


def rows_of(errors, dataset="wine", setting="default"):
    """Rows of a dataset, from the error of each seed by candidate; the log loss is a tenth."""
    return pd.DataFrame(
        {
            "dataset": dataset,
            "data": "abc",
            "n_rows": 178,
            "setting": setting,
            "seed": seed,
            "candidate": candidate,
            "params": STUDY.params_of(setting, candidate),
            "test_error": error,
            "test_log_loss": error / 10,
        }
        for candidate, values in errors.items()
        for seed, error in enumerate(values)
    )


EQUAL = {name: [4.0, 6.0, 5.0] for name in STUDY.candidates}


def test_differences_are_paired_by_seed_and_marked_where_they_are_beyond_the_noise():
    shifted = {"fraction 0.5": [4.5, 6.5, 5.6], "fraction 0.1": [6.0, 4.0, 6.0]}
    rows = rows_of(EQUAL | shifted)
    table = STUDY.compare(rows.sample(frac=1, random_state=0), "test_error")
    table = table.set_index("candidate")
    assert table.loc["fraction 0.5", "difference"] == pytest.approx(1.6 / 3)
    assert table.loc["fraction 0.5", "standard_error"] == pytest.approx(
        np.std([0.5, 0.5, 0.6], ddof=1) / np.sqrt(3)
    )
    assert not table.loc["fraction 0.5", "is_within"]
    assert table.loc["fraction 0.1", "is_within"]
    assert table.loc["Mixup", "is_within"]  # no difference at all
    text = STUDY.describe(rows)
    assert (
        "| default | wine | 5.00 ± 1.00 | **+0.53 ± 0.03** | +0.00 ± 0.00 | +0.33 ± 1.20 |" in text
    )
    assert "| default | 0 of 1 (+0.0533) | 1 of 1 (+0.0000) | 1 of 1 (+0.0333) |" in text


def test_each_setting_is_compared_with_its_own_full_penalty():
    harder = {name: [error + 10 for error in errors] for name, errors in EQUAL.items()}
    harder["Mixup"] = [15.0, 17.0, 16.5]
    text = STUDY.describe(pd.concat([rows_of(harder, setting="strong"), rows_of(EQUAL)]))
    assert "| strong | wine | 15.00 ± 1.00 | +0.00 ± 0.00 |" in text
    assert (
        "| strong | 1 of 1 (+0.0000) | 1 of 1 (+0.0000) | 1 of 1 (+0.0000) | 0 of 1 (+0.1167)"
        in text
    )
    assert text.index("| default | wine | 5.00") < text.index("| strong | wine | 15.00")


def test_rows_of_other_defaults_or_of_an_older_table_are_not_part_of_the_study():
    rows = pd.concat([rows_of(EQUAL), rows_of(EQUAL, setting="strong")])
    worse = rows.assign(test_error=90.0)
    older = worse.assign(data="old")
    others = worse.assign(params=worse["params"].str.replace('"eta": 1.0', '"eta": 2.0'))
    swapped = worse.assign(setting=worse["setting"].map({"default": "strong", "strong": "default"}))
    assert (others["params"] != rows["params"]).all()
    mixed = pd.concat([older, others, swapped, rows], ignore_index=True)
    assert STUDY.describe(mixed) == STUDY.describe(rows)


def test_an_unfinished_study_is_not_described():
    rows = pd.concat([rows_of(EQUAL), rows_of(EQUAL, setting="strong")])
    is_open = (rows["candidate"] == "Mixup") & (rows["setting"] == "strong")
    with pytest.raises(ValueError, match="Got 33 rows .* but expected all of full penalty"):
        STUDY.describe(rows[~is_open])


def test_an_interrupted_run_is_resumed_and_ends_with_the_tables(tmp_path, capsys, monkeypatch):
    names = (STUDY.reference, "fraction 0.1")
    study = dataclasses.replace(STUDY, candidates={name: STUDY.candidates[name] for name in names})
    monkeypatch.setitem(STUDIES, "penalty_fraction", study)
    path = tmp_path / "rows.csv"
    command = ["penalty_fraction", "--data", "iris", "--seeds", "2", "--jobs", "1", "--quiet"]
    command += ["--output", str(path)]
    assert paired.main(command) == 0
    complete = path.read_text()
    lines = complete.splitlines()
    assert len(lines) == 1 + 2 * len(study.settings) * len(names)
    printed = capsys.readouterr().out
    assert "| default | iris |" in printed
    assert "| strong | iris |" in printed
    path.write_text("\n".join(lines[:-1]) + "\n")
    assert paired.main(command) == 0
    assert capsys.readouterr().out == printed
    first, second = (list(csv.DictReader(t.splitlines())) for t in (complete, path.read_text()))
    # The lost fit is run again, equal but for its time.
    time = dict.fromkeys(("run", "checksum"), "")
    assert [row | time for row in first] == [row | time for row in second]
    assert len({row["test_log_loss"] for row in first}) == len(first)
    assert paired.main([*command, "--report-only"]) == 0
    assert capsys.readouterr().out == printed


def test_wrong_names_and_missing_files_are_errors(tmp_path, capsys):
    output = ["penalty_fraction", "--quiet", "--output", str(tmp_path / "rows.csv")]
    assert paired.main([*output, "--data", "letter"]) == 2
    assert "Got data='letter' and cache_dir=None, but expected one of iris" in (
        capsys.readouterr().err
    )
    (tmp_path / "rows.csv").unlink(missing_ok=True)
    assert paired.main([*output, "--report-only"]) == 2
    assert "No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("study", "page", "block"),
    [(STUDY, "method.md", "penalty fraction"), (SECOND_ORDER, "diagnostics.md", "second order")],
    ids=["penalty fraction", "second order"],
)
def test_the_page_has_the_tables_of_the_committed_rows(study, page, block):
    text = (GUIDE / page).read_text()
    assert block_of(text, block) == study.describe(read_rows(study.rows, SCHEMA))


def test_what_the_page_says_of_fractions_is_so_in_the_committed_rows():
    rows = STUDY.current_rows(read_rows(STUDY.rows, SCHEMA))
    errors, losses = (
        STUDY.compare(rows, value).pivot(index=["setting", "dataset"], columns="candidate")
        for value in ("test_error", "test_log_loss")
    )
    shares = [name for name in STUDY.candidates if name.startswith("fraction")]
    assert errors.loc["default"]["is_within"][shares].all(axis=None)
    assert errors.loc["default"]["difference"]["Mixup"].abs().max() < 0.1
    cost = losses.loc["strong"]["difference"]
    assert (cost["fraction 0.5"] < cost["fraction 0.25"]).all()
    assert (cost["fraction 0.25"] < cost["fraction 0.1"]).all()
    kept = ["digits", "optdigits", "pendigits", "breast-cancer"]
    assert (cost.loc[kept, "fraction 0.1"] < cost.loc[kept, "Mixup"]).all()
    letter = cost.loc["letter"] / cost.loc["letter", "Mixup"]
    assert 0.5 < letter["fraction 0.25"] < 1 < letter["fraction 0.1"]
    error = errors.loc["strong"]["difference"]
    assert (error["fraction 0.1"].idxmax(), error["fraction 0.25"].idxmax()) == ("letter",) * 2
    assert error.loc["letter", "Mixup"] < 0
    assert not errors.loc[("strong", "letter"), ("is_within", "Mixup")]
    is_within = losses.loc[("strong", "wine"), "is_within"]
    assert is_within["Mixup"]
    assert not is_within[shares].any()


def test_candidates_of_the_second_order_differ_and_are_timed(capsys):
    params = {name: SECOND_ORDER.params_of("default", name) for name in SECOND_ORDER.candidates}
    assert len(set(params.values())) == len(params) - 1  # the reference has two seeds
    assert '"penalty_order": 2' in params["second order"]
    assert paired.main(["second_order", "--timing", "1"]) == 0
    printed = capsys.readouterr().out
    assert "first order: 1.00 (no spread)" in printed
    assert "exact first and second: " in printed


# Scaling

SCALING = ScalingStudy()


@pytest.fixture(scope="module")
def committed():
    return pd.read_csv(SCALING.rows)


@pytest.mark.parametrize("name", SCALING.data)
def test_one_entry_in_a_hundred_is_spoiled_and_each_repeat_spoils_others(name):
    X = load_embedded(name).X + 1  # no zeros, which multiplication does not change
    is_spoiled = [(paired.spoil(X, seed) != X).to_numpy() for seed in (0, 1)]
    assert [part.sum() for part in is_spoiled] == [round(X.size / 100)] * 2
    assert (is_spoiled[0] != is_spoiled[1]).any()
    spoiled = paired.spoil(X, 0)
    assert np.array_equal(spoiled.to_numpy()[is_spoiled[0]], 10_000 * X.to_numpy()[is_spoiled[0]])
    assert spoiled.equals(paired.spoil(X, 0))


def test_the_table_has_the_mean_over_folds_and_the_deviation_between_repeats():
    errors = {"standard": [1, 3, 7, 9], "robust": [4] * 4, "quantile": [0] * 4}
    rows = pd.DataFrame(
        {"table": "iris", "scaling": name, "repeat": k // 2, "fold": k % 2, "test_error": error}
        for name, values in errors.items()
        for k, error in enumerate(values)
    )
    # Means of 2 and 8 in the two repeats.
    assert SCALING.describe(rows).splitlines()[2] == (
        "| iris | 5.00 ± 4.24 | 4.00 ± 0.00 | 0.00 ± 0.00 |"
    )


def test_a_scaling_study_writes_a_row_per_fit_and_prints_its_table(tmp_path, capsys, monkeypatch):
    small = ScalingStudy(data=("iris",), n_folds=2, max_epochs=2)
    monkeypatch.setitem(STUDIES, "scaling", small)
    path = tmp_path / "new" / "rows.csv"
    assert paired.main(["scaling", "--output", str(path)]) == 0
    rows = pd.read_csv(path)
    assert len(rows) == 2 * small.n_repeats * 2 * len(small.scalings)
    assert set(rows["table"]) == {"iris", "iris, spoiled"}
    assert json.loads(rows["params"][0])["max_epochs"] == 2
    assert small.describe(rows) in capsys.readouterr().out
    assert rows.groupby("scaling")["test_error"].mean().nunique() > 1


def test_the_page_has_the_table_of_the_committed_scalings(committed):
    assert SCALING.describe(committed) in (GUIDE / "preprocessing.md").read_text()


def test_the_committed_scalings_are_complete_and_of_the_present_settings(committed):
    keys = ["table", "repeat", "fold", "scaling"]
    n_tables = 2 * len(SCALING.data)
    assert len(committed) == n_tables * SCALING.n_repeats * SCALING.n_folds * len(SCALING.scalings)
    assert not committed.duplicated(keys).any()
    (params,) = committed["params"].unique()
    present = json.loads(json.dumps(SCALING.params))
    assert json.loads(params).items() <= present.items()  # a preset may set more parameters


def test_what_the_page_says_of_scalings_is_so_in_the_committed_rows(committed):
    mean = committed.pivot_table(index="table", columns="scaling", values="test_error")
    is_spoiled = mean.index.str.endswith("spoiled")
    clean, spoiled = mean[~is_spoiled], mean[is_spoiled]
    assert clean.idxmin(axis=1).nunique() > 1  # no scaling is the best everywhere
    assert ((clean["standard"] - clean["robust"]).abs() < 0.3).all()
    others = spoiled.drop(columns="standard").max(axis=1)
    assert (spoiled["standard"] > 2 * others).all()
