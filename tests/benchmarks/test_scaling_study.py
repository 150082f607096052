"""The study of scalings: what is spoiled, what the table says, and the page that shows it."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from benchmarks import scaling as study
from mixupe_sklearn.datasets import load_embedded

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def committed():
    return pd.read_csv(study.ROWS)


@pytest.mark.parametrize("name", study.DATA)
def test_one_entry_in_a_hundred_is_spoiled_and_each_repeat_spoils_others(name):
    X = load_embedded(name).X + 1  # no zeros, which would not show
    is_spoiled = [(study.spoil(X, seed) != X).to_numpy() for seed in (0, 1)]
    assert [part.sum() for part in is_spoiled] == [round(X.size / 100)] * 2
    assert (is_spoiled[0] != is_spoiled[1]).any()
    spoiled = study.spoil(X, 0)
    assert np.array_equal(spoiled.to_numpy()[is_spoiled[0]], 10_000 * X.to_numpy()[is_spoiled[0]])
    assert spoiled.equals(study.spoil(X, 0))


def test_the_table_has_the_mean_over_folds_and_the_deviation_between_repeats():
    errors = {"standard": [1, 3, 7, 9], "robust": [4] * 4, "quantile": [0] * 4, "splines": [2] * 4}
    rows = pd.DataFrame(
        {"table": "iris", "scaling": name, "repeat": k // 2, "fold": k % 2, "test_error": error}
        for name, values in errors.items()
        for k, error in enumerate(values)
    )
    # Means of 2 and 8 in the two repeats.
    assert study.make_table(rows).splitlines()[2] == (
        "| iris | 5.00 ± 4.24 | 4.00 ± 0.00 | 0.00 ± 0.00 | 2.00 ± 0.00 |"
    )


def test_a_quick_run_writes_a_row_a_fit_and_prints_the_table_of_them(tmp_path, capsys):
    path = tmp_path / "new" / "rows.csv"
    study.main(["--quick", "--output", str(path)])
    rows = pd.read_csv(path)
    assert len(rows) == 2 * study.N_REPEATS * 2 * len(study.SCALINGS)
    assert set(rows["table"]) == {"iris", "iris, spoiled"}
    assert json.loads(rows["params"][0])["max_epochs"] == 2
    assert study.make_table(rows) in capsys.readouterr().out
    errors = rows.groupby("scaling")["test_error"].mean()
    assert errors.nunique() > 1  # another scaling is another fit


def test_the_page_has_the_table_of_the_committed_rows(committed):
    assert study.make_table(committed) in (ROOT / "docs" / "preprocessing.md").read_text()


def test_the_committed_rows_are_all_there_and_of_todays_settings(committed):
    keys = ["table", "repeat", "fold", "scaling"]
    n_tables = 2 * len(study.DATA)
    assert len(committed) == n_tables * study.N_REPEATS * study.N_FOLDS * len(study.SCALINGS)
    assert not committed.duplicated(keys).any()
    (params,) = committed["params"].unique()
    today = json.loads(json.dumps(study.PARAMS))
    assert json.loads(params).items() <= today.items()  # a preset may say more, but nothing else


def test_what_the_page_says_in_words_is_so_in_the_committed_rows(committed):
    mean = committed.pivot_table(index="table", columns="scaling", values="test_error")
    is_spoiled = mean.index.str.endswith("spoiled")
    clean, spoiled = mean[~is_spoiled], mean[is_spoiled]
    assert clean.idxmin(axis=1).nunique() > 1  # no scaling is the best everywhere
    assert ((clean["standard"] - clean["robust"]).abs() < 0.3).all()
    others = spoiled.drop(columns="standard").max(axis=1)
    assert (spoiled["standard"] > 2 * others).all()
