"""How configurations are selected from the rows, and how methods are compared."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tabular_rows import make_row

from benchmarks._tabular.protocol import configs_of
from benchmarks._tabular.report import paper
from benchmarks._tabular.report.results import (
    choose,
    choose_per_split,
    clean,
    common_part,
    comparable,
    count_at_or_below,
    default_methods,
    error_table,
    win_tie_loss,
)
from benchmarks._tabular.report.statistics import (
    compare_all_ranks,
    compare_pairs,
    compare_ranks,
    signed_rank_p,
)
from mixupe_sklearn.datasets.openml import PAPER_TASKS


def frame(*rows):
    return pd.DataFrame(list(rows))


def both_splits(alpha=0.1, eta=None, method="mixup", **changes):
    return [make_row(method=method, alpha=alpha, eta=eta, split=s, **changes) for s in (0, 1)]


def test_common_part_leaves_out_small_sets():
    assert common_part([{1, 2, 3}, {2, 3, 4}, {4}]) == {2, 3}


def test_default_methods_are_ours_and_baselines_with_defaults():
    methods = ["erm", "mixupe-default", "mlp-sklearn", "logistic"]
    assert default_methods(methods) == ["mixupe-default", "logistic"]


def test_validation_errors_alone_select():
    rows = both_splits(0.1, valid_error=3.0, test_error=50.0)
    rows += both_splits(1.0, valid_error=4.0, test_error=1.0)
    chosen = choose(frame(*rows)).iloc[0]
    assert (chosen["alpha"], chosen["valid_error"], chosen["test_error"]) == (0.1, 3.0, 50.0)
    assert chosen["n_configurations"] == 2


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"alpha": 1.0, "valid_log_loss": 0.1}, {"alpha": 0.1, "valid_log_loss": 0.2}),
        ({"alpha": 0.1, "eta": 1.0}, {"alpha": 1.0, "eta": 0.1}),
        ({"alpha": 0.1, "eta": 0.01}, {"alpha": 0.1, "eta": 0.1}),
    ],
    ids=["lower log loss", "smaller alpha", "smaller eta"],
)
def test_ties_are_broken_in_order(better, worse):
    for order in ([better, worse], [worse, better]):
        rows = [row for own in order for row in both_splits(method="mixupe", **own)]
        chosen = choose(frame(*rows)).iloc[0]
        assert {name: chosen[name] for name in better} == better


def test_equal_numbers_of_errors_tie_despite_rounding():
    # Of 150 samples in three splits, 30 are wrong: 5 + 10 + 15, or three times 10.
    uneven = [
        make_row(method="mixup", alpha=1.0, split=s, valid_error=e, valid_log_loss=0.1)
        for s, e in enumerate([3.33333, 6.66667, 10.0])
    ]
    even = [make_row(method="mixup", alpha=0.1, split=s, valid_error=6.66666) for s in range(3)]
    assert choose(frame(*uneven, *even))["alpha"].tolist() == [1.0]
    one_less = [row | {"valid_error": 6.66} for row in even]
    assert choose(frame(*uneven, *one_less))["alpha"].tolist() == [0.1]


def test_mean_and_deviation_are_over_the_splits():
    rows = [make_row(split=s, test_error=e) for s, e in enumerate([1.0, 2.0, 3.0])]
    chosen = choose(frame(*rows)).iloc[0]
    assert (chosen["test_error"], chosen["test_error_std"], chosen["n_splits"]) == (2.0, 1.0, 3)


def test_a_configuration_without_all_splits_is_not_chosen():
    rows = [
        *both_splits(0.1, valid_error=9.0),
        make_row(method="mixup", alpha=1.0, valid_error=1.0),
    ]
    chosen = choose(frame(*rows)).iloc[0]
    assert (chosen["alpha"], chosen["n_configurations"]) == (0.1, 1)


def on_splits(method, splits, **changes):
    return [make_row(method=method, split=s, test_error=10.0 + s, **changes) for s in splits]


def test_one_more_seed_of_a_method_changes_nothing():
    rows = on_splits("erm", range(3)) + on_splits("mixup", range(3), alpha=0.1)
    more = make_row(split=3, valid_error=0.0, test_error=90.0)
    pd.testing.assert_frame_equal(choose(frame(*rows, more)), choose(frame(*rows)))


def test_methods_are_compared_on_the_splits_that_they_share():
    rows = on_splits("erm", [0, 1, 2, 3]) + on_splits("logistic", [1, 2, 3, 4])
    chosen = choose(frame(*rows))
    assert chosen["method"].tolist() == ["erm", "logistic"]
    assert chosen["test_error"].tolist() == [12.0, 12.0]
    assert chosen["n_splits"].tolist() == [3, 3]


@pytest.mark.parametrize("few", [[0], [0, 1], [7, 8, 9]], ids=["one", "half", "others"])
def test_a_method_that_shares_too_few_splits_has_no_result(few):
    rows = on_splits("erm", range(4)) + on_splits("logistic", few)
    chosen = choose(frame(*rows))
    assert chosen["method"].tolist() == ["erm"]
    assert chosen["n_splits"].tolist() == [4]


@pytest.mark.parametrize("method", ["mixup", "logistic"])
def test_one_method_has_one_set_of_params(method):
    rows = [make_row(method=method), make_row(method=method, params='{"lr": 1.0}', valid_error=1)]
    with pytest.raises(
        ValueError, match=f"Got several params of {method} on iris, but expected one"
    ):
        choose(frame(*rows))
    assert len(choose(frame(rows[0], rows[1] | {"method": "erm"}))) == 2
    failed = {"error": "boom", "valid_error": None, "test_error": None}
    assert len(choose(frame(rows[0], rows[1] | failed))) == 1


def test_choose_per_split_uses_each_split_alone():
    # By mean and split: alpha, valid_error, valid_log_loss, test_error on splits 0, 1 and 2.
    numbers = {
        0.1: [(1.0, 0.3, 10.0), (9.0, 0.3, 20.0), (5.0, 0.3, 1.0)],
        0.5: [(4.0, 0.3, 50.0), (2.0, 0.3, 31.0), (5.0, 0.2, 40.0)],
    }
    rows = [
        make_row(
            method="mixup", alpha=a, split=s, valid_error=v, valid_log_loss=loss, test_error=test
        )
        for a, fits in numbers.items()
        for s, (v, loss, test) in enumerate(fits)
    ]
    # This one would be chosen on split 0, but lacks the others.
    rows.append(make_row(method="mixup", alpha=2.0, valid_error=0.0, test_error=99.0))
    rows += [make_row(split=s, test_error=30.0) for s in range(3)]
    strict = choose_per_split(comparable(clean(frame(*rows)))).set_index("method")
    # Split 0 takes 0.1, split 1 takes 0.5, and so does split 2, by its log loss.
    assert strict.loc["mixup", "test_error"] == np.mean([10.0, 31.0, 40.0])
    assert strict.loc["mixup", "test_error_std"] == np.std([10.0, 31.0, 40.0], ddof=1)
    assert strict.loc["erm", ["test_error", "n_splits"]].tolist() == [30.0, 3]
    # The mean over splits takes 0.5 for all.
    assert choose(frame(*rows))["test_error"].tolist() == [30.0, np.mean([50.0, 31.0, 40.0])]


def test_the_seconds_of_a_search_are_those_of_all_its_fits_on_one_split():
    seconds = {0.1: (1.0, 3.0), 0.5: (10.0, 30.0)}
    rows = [
        make_row(method="mixup", alpha=a, split=s, fit_seconds=t, valid_error=a)
        for a, times in seconds.items()
        for s, t in enumerate(times)
    ]
    chosen = choose(frame(*rows)).iloc[0]
    assert (chosen["fit_seconds"], chosen["search_seconds"]) == (2.0, 22.0)


def grid_rows(method, grid, label="paper"):
    return [make_row("iris", method, c.alpha, c.eta, grid=label) for c in configs_of(method, grid)]


def test_the_grid_is_found_from_the_configurations():
    for grid in ("paper", "reduced", "default"):
        for method in ("mixup", "mixupe"):
            rows = grid_rows(method, grid, label="any")
            assert choose(frame(*rows))["grid"].tolist() == [grid]
    assert choose(frame(*grid_rows("mixupe", "paper")[1:]))["grid"].tolist() == ["in part"]
    assert choose(frame(make_row(grid="reduced")))["grid"].tolist() == ["paper"]


@pytest.mark.parametrize(
    ("source", "name", "data_id", "expected"),
    [
        ("openml", "abalone", 1557, "abalone"),
        ("openml", "abalone", 183, ""),
        ("openml", "iris", None, ""),
        ("embedded", "iris", None, "iris"),
        ("embedded", "balance-scale", None, "balance-scale"),
        ("embedded", "digits", None, ""),
        ("csv", "iris", None, ""),
        ("csv", "iris", 61, ""),
    ],
)
def test_the_papers_datasets_are_identified_by_id(source, name, data_id, expected):
    chosen = choose(frame(make_row(name, source=source, data_id=data_id)))
    assert chosen["in_paper"].tolist() == [expected]


def test_every_dataset_of_the_paper_has_its_id():
    assert list(paper.DATA_IDS) == list(paper.FIGURES) == list(PAPER_TASKS)
    assert paper.DATA_IDS["abalone"] == PAPER_TASKS["abalone"].number


def test_the_last_row_of_a_key_counts():
    failed = make_row(error="out of memory", valid_error=None, test_error=None)
    good = make_row(test_error=4.0)
    assert choose(frame(failed, good))["test_error"].tolist() == [4.0]
    assert choose(frame(good, failed)).empty
    assert choose(frame(good, make_row(test_error=6.0)))["test_error"].tolist() == [6.0]


def test_datasets_of_one_name_are_kept_apart():
    other = {"data": "another", "source": "embedded", "test_error": 2.0}
    rows = frame(make_row(), make_row(**other), make_row(splits="task"))
    assert choose(rows)["set"].tolist() == [
        "iris (holdout, another)",
        "iris (holdout, iris-fingerprint)",
        "iris (task, iris-fingerprint)",
    ]


def test_counts_of_the_papers_table():
    lowest = [min(row, key=lambda method: row[method].mean) for row in paper.FIGURES.values()]
    assert len(lowest) == 15
    assert lowest.count("mixupe") == 9


def test_wins_ties_and_losses_use_printed_errors():
    values = {"a": (1.001, 1.004), "b": (2.0, 1.0), "c": (1.0, 2.0), "d": (3.0, None)}
    rows = [
        make_row(name, m, test_error=e)
        for name, pair in values.items()
        for m, e in zip(("mixup", "mixupe"), pair, strict=True)
        if e
    ]
    errors = error_table(choose(frame(*rows)))
    assert win_tie_loss(errors, "mixupe", "mixup") == (1, 1, 1)
    assert count_at_or_below(errors, "mixupe", "mixup") == (2, 3)
    assert count_at_or_below(errors, "mixupe", "erm") == (0, 0)


def test_ranks_and_friedman_test_match_a_worked_example():
    # On six sets MixupE is first five times and second once, Mixup the other way round.
    errors = pd.DataFrame(
        {"erm": [9.0] * 6, "mixup": [2.0] * 5 + [1.0], "mixupe": [1.0] * 5 + [2.0]}
    )
    test = compare_ranks(errors)
    assert test.ranks.to_dict() == pytest.approx({"mixupe": 7 / 6, "mixup": 11 / 6, "erm": 3.0})
    # 12 / (n k (k + 1)) times the sum of squared rank sums, minus 3 n (k + 1)
    assert test.statistic == pytest.approx(12 / (6 * 3 * 4) * (7**2 + 11**2 + 18**2) - 3 * 6 * 4)
    # 2.343 is the value of three methods at 5 % in the usual tables of Nemenyi's test.
    assert test.critical_difference == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 6)), rel=1e-3)
    is_far = abs(test.ranks["erm"] - test.ranks["mixupe"]) > test.critical_difference
    assert is_far == (test.pairs.loc["erm", "mixupe"] < 0.05)
    assert test.pairs.loc["mixup", "mixupe"] > 0.05


def test_signed_ranks_with_ties_are_tested_exactly():
    differences = np.array([-3.0, -3.0, 1.0, -1.0, -5.0, 2.0, -3.0, 0.0])
    kept = differences[differences != 0]
    ranks = stats.rankdata(abs(kept))
    sums = [
        sum(r for r, s in zip(ranks, signs, strict=True) if s)
        for signs in itertools.product([0, 1], repeat=len(kept))
    ]
    centre = ranks.sum() / 2
    observed = abs(ranks[kept > 0].sum() - centre)
    expected = np.mean([abs(total - centre) >= observed for total in sums])
    assert signed_rank_p(differences) == pytest.approx(expected)
    assert signed_rank_p(np.zeros(9)) == 1.0


def test_p_values_are_corrected_for_their_number():
    # MixupE is below both on all eight sets; Mixup is below ERM on seven, by the least on the other.
    steps = np.arange(1.0, 9.0)
    errors = pd.DataFrame(
        {"erm": 30 + np.where(steps > 1, steps, -1), "mixup": 30.0, "mixupe": 10.0 - steps}
    )
    pairs = compare_pairs(errors)
    assert list(zip(pairs["method"], pairs["other"], strict=True)) == [
        ("mixupe", "erm"),
        ("mixupe", "mixup"),
        ("mixup", "erm"),
    ]
    assert pairs["p_value"].tolist() == [2 / 256, 2 / 256, 4 / 256]
    assert pairs["p_holm"].tolist() == [6 / 256] * 3
    assert pairs[["wins", "ties", "losses"]].to_numpy().tolist() == [
        [8, 0, 0],
        [8, 0, 0],
        [7, 0, 1],
    ]
    assert pairs["median"].tolist() == [-29.0, -24.5, -4.5]


@pytest.mark.parametrize(("n_sets", "n_methods"), [(4, 3), (9, 2), (1, 1)])
def test_too_few_results_to_rank_give_a_sentence(n_sets, n_methods):
    errors = pd.DataFrame(
        np.random.default_rng(0).uniform(size=(n_sets, n_methods)),
        columns=["erm", "mixup", "mixupe"][:n_methods],
    )
    assert compare_ranks(errors).startswith("There are no ranks: they need three methods")


def test_a_method_on_few_datasets_is_left_out_of_the_ranks():
    errors = pd.DataFrame(
        np.random.default_rng(0).uniform(size=(6, 4)),
        columns=["erm", "mixup", "mixupe", "logistic"],
    )
    errors.loc[2:, "logistic"] = np.nan
    test = compare_ranks(errors)
    assert (test.n_sets, sorted(test.ranks.index)) == (6, ["erm", "mixup", "mixupe"])


def test_a_baseline_on_few_datasets_does_not_affect_the_papers_methods():
    errors = pd.DataFrame(
        np.random.default_rng(0).uniform(size=(9, 4)),
        columns=["erm", "mixup", "mixupe", "logistic"],
    )
    errors.loc[5:, "logistic"] = np.nan
    first, second = compare_all_ranks(errors)
    assert (first.n_sets, sorted(first.ranks.index)) == (9, ["erm", "mixup", "mixupe"])
    assert (second.n_sets, len(second.ranks)) == (5, 4)
    (only,) = compare_all_ranks(errors[["erm", "mixup", "mixupe"]])
    assert (only.n_sets, len(only.ranks)) == (9, 3)


def test_equal_errors_have_no_ranks():
    assert (
        compare_ranks(pd.DataFrame(np.ones((6, 3)), columns=list("abc")))
        == "There are no ranks: all methods have the same errors."
    )
