"""The times on the page about the defaults are those of the committed rows."""

import pathlib

import pandas as pd

import mixupe_sklearn

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]


def test_the_times_of_the_page_are_those_of_the_committed_rows():
    page = (ROOT / "docs" / "tables.md").read_text()
    rows = pd.read_csv(ROOT / "benchmarks" / "results" / "baselines" / "times.csv")
    seconds = rows.pivot_table(index="dataset", columns="method", values="fit_seconds")
    ours, boosting = seconds["mixupe-default"], seconds["hist-gradient-boosting"]
    shares = pd.DataFrame({"realmlp": ours / seconds["realmlp"], "boosting": ours / boosting})
    for name, own in shares.iterrows():
        assert (
            f"| {own['realmlp']:.2f} | {own['boosting']:.2f} |"
            in page.split(f"| {name} |")[1].split("\n")[0]
        )
    at_most, below = (shares["realmlp"] <= 0.2).sum(), (shares["boosting"] < 1).sum()
    assert f"at most a fifth on {at_most} of the {len(shares)} tables" in page
    assert f"below histogram boosting's on {below} of {len(shares)}:" in page
