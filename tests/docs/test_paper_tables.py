"""The table of the paper's protocol equals the committed rows."""

import pathlib

import mixupe_sklearn
from benchmarks._tabular.report.results import choose, count_at_or_below, error_table
from benchmarks._tabular.rows import read_rows

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]


def test_the_table_equals_the_committed_rows():
    page = (ROOT / "docs" / "benchmarks" / "paper_tables.md").read_text()
    chosen = choose(read_rows(ROOT / "benchmarks" / "results" / "tabular" / "rows.csv"))
    assert chosen["dataset"].nunique() == 14
    for dataset, part in chosen.groupby("dataset"):
        row = part.set_index("method").loc[["erm", "mixup", "mixupe"]]
        lowest = row["test_error"].round(2).min()
        cells = [
            f"{f'**{mean:.2f}**' if round(mean, 2) == lowest else f'{mean:.2f}'} ± {deviation:.2f}"
            for mean, deviation in zip(row["test_error"], row["test_error_std"], strict=True)
        ]
        assert f"| {dataset} | {' | '.join(cells)} |" in page
    for other, label in (("mixup", "Mixup"), ("erm", "ERM")):
        count, n_datasets = count_at_or_below(error_table(chosen), "mixupe", other)
        assert f"at or below {label} on {count} of {n_datasets}" in page
