"""Tables of the benchmarks for images and speech, made from rows alone."""

from collections.abc import Sequence

import pandas as pd

from benchmarks._signals import paper
from benchmarks._signals.deforming import COLUMNS as DEFORMED
from benchmarks._signals.deforming import DEFORMATIONS
from benchmarks._signals.fits import Config
from benchmarks._signals.sections import NUMBERS, Section, in_order
from benchmarks._tabular.report.sheets import (
    Cell,
    Column,
    Sheet,
    number,
    plus_minus,
    seconds,
    short,
    signed,
    span,
)

CELLS = ("erm", "mixup", "erm+penalty", "mixupe")
TITLES = {
    "erm": "ERM",
    "mixup": "Mixup",
    "erm+penalty": "ERM + penalty",
    "mixupe": "MixupE",
    "manifold-mixup": "Manifold Mixup",
}
METHOD = ["method", *NUMBERS]


def title_of(method: str, penalty_fraction: float = 1.0) -> str:
    """A method in print.

    Examples
    --------
    >>> title_of("mixupe", 0.25), title_of("erm", float("nan"))
    ('MixupE, 25 % penalised', 'ERM')
    """
    is_part = pd.notna(penalty_fraction) and penalty_fraction != 1
    return TITLES[method] + (f", {penalty_fraction:.0%} penalised".replace("%", " %") * is_part)


def mean_and_deviation(values: pd.Series, decimals: int = 2) -> str:
    """Mean and deviation over seeds in print; a single one has no deviation.

    Examples
    --------
    >>> mean_and_deviation(pd.Series([1.0, 3.0])), mean_and_deviation(pd.Series([1.0]))
    ('2.00 ± 1.41', '1.00')
    """
    return plus_minus(values.mean(), values.std(), decimals)


def methods_sheet(section: Section) -> Sheet:
    """All networks and methods: errors, losses and times."""
    rows, body = in_order(section.rows), []
    for network, of_network in rows.groupby("network", sort=False):
        groups = of_network.groupby(METHOD, sort=False, dropna=False)
        # By the same sums as below: those of a group by itself may be rounded otherwise.
        best = min(part["test_error"].mean() for _, part in groups)
        mixup = of_network[of_network["method"] == "mixup"]
        for (method, alpha, eta, fraction), part in groups:
            error = part["test_error"]
            body.append(
                [
                    *(Cell(str(network)), Cell(title_of(method, fraction))),
                    *(Cell(short(alpha)), Cell(short(eta)), Cell(str(len(part)))),
                    Cell(mean_and_deviation(error), is_best=error.mean() == best),
                    Cell("·" if method == "mixup" else _against(part, mixup)),
                    Cell(mean_and_deviation(part["test_log_loss"], 3)),
                    Cell(mean_and_deviation(part["test_ece"], 3)),
                    Cell(seconds(part["seconds_per_epoch"].median())),
                ]
            )
    words = [Column(head, is_number=False) for head in ("Network", "Method")]
    heads = [
        "alpha",
        "eta",
        "Runs",
        "Test error (%)",
        "Against Mixup",
        "Log loss",
        "ECE",
        "s/epoch",
    ]
    caption = (
        f"{section.dataset}: mean and deviation over {_runs(rows)}; the lowest mean error of a "
        f"network is in bold. Against Mixup: the mean difference in test error from Mixup with the "
        f"same seed."
    )
    return Sheet("methods", caption, [*words, *map(Column, heads)], body)


def _runs(rows: pd.DataFrame) -> str:
    counts = rows.groupby(["network", *METHOD], dropna=False).size().tolist()
    return "1 seed" if set(counts) == {1} else f"{span(counts)} seeds"


def _against(part: pd.DataFrame, mixup: pd.DataFrame) -> str:
    """Mean difference of errors from Mixup, seed by seed; of the same alpha, where there is one."""
    same = mixup[mixup["alpha"].isin(part["alpha"])]
    by_seed = (same if len(same) else mixup).groupby("seed")["test_error"].mean()
    return signed((part.set_index("seed")["test_error"] - by_seed).mean())


def of_config(rows: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Rows of one method with its numbers."""
    is_wanted = rows["method"] == config.method
    for name, value in config.numbers.items():
        is_wanted &= rows[name].isin([float("nan") if value is None else value])
    return rows[is_wanted]


def ablation_sheet(section: Section, cells: Sequence[Config]) -> Sheet | None:
    """The four cells of the ablation, by network, beside the paper's; None without rows."""
    etas = " ".join(f"{config.eta:g}" for config in cells if config.method == "mixupe")
    lines = [(TITLES[one.method], one, paper.ABLATION[one.method]) for one in cells]
    return _errors_sheet(section, "ablation", f"of the four cells, eta {etas}", lines)


def eta_sheet(section: Section, mixup: Config, mixupe: Sequence[Config]) -> Sheet | None:
    """MixupE by its eta against Mixup, by network, beside the paper's; None without rows."""
    lines = [(TITLES["mixup"], mixup, paper.ABLATION["mixup"])]
    for config in sorted(mixupe, key=lambda one: one.eta or 0.0):
        theirs = paper.BY_ETA.get(config.eta or 0.0, float("nan"))
        lines.append((f"MixupE, eta {config.eta:g}", config, theirs))
    return _errors_sheet(section, "eta", "by eta", lines)


def _errors_sheet(
    section: Section, name: str, what: str, lines: Sequence[tuple[str, Config, float]]
) -> Sheet | None:
    """Test errors, a line for each configuration and a column for each network."""
    parts = [of_config(section.rows, config) for _, config, _ in lines]
    used = pd.concat(parts)
    if used.empty:
        return None
    body = []
    for (title, _, theirs), part in zip(lines, parts, strict=True):
        errors = [part.loc[part["network"] == one, "test_error"] for one in section.networks]
        ours = [Cell(mean_and_deviation(values)) for values in errors]
        body.append([Cell(title), *ours, Cell(number(theirs))])
    columns = [Column("Method", is_number=False), *map(Column, section.networks), Column("Paper")]
    caption = (
        f"{section.dataset}: test error (%) {what}, mean and deviation over {_runs(used)}. The "
        f"paper's are of CIFAR-100, PreActResNet-50."
    )
    return Sheet(name, caption, columns, body)


def deformations_sheet(section: Section, network: str, configs: Sequence[Config]) -> Sheet | None:
    """Accuracy of one network on deformed test pictures, beside the paper's; None without rows."""
    rows = section.rows[section.rows["network"] == network]
    parts = [of_config(rows, config) for config in configs]
    used = pd.concat(parts)
    if used[list(DEFORMED)].isna().all(axis=None):
        return None
    theirs = next(iter(paper.DEFORMED.values()))
    clean = [mean_and_deviation(100 - part["test_error"]) for part in parts]
    body = [[Cell(text) for text in ("as they are", *clean, *[""] * len(theirs))]]
    for column, how in zip(DEFORMED, DEFORMATIONS.values(), strict=True):
        best = max(part[column].mean() for part in parts if len(part))
        cells = [
            Cell(mean_and_deviation(part[column]), is_best=part[column].mean() == best)
            for part in parts
        ]
        figures = [Cell(number(value)) for value in paper.DEFORMED[column].values()]
        body.append([Cell(how.head), *cells, *figures])
    columns = [Column("Test pictures", is_number=False)]
    columns += [Column(f"{TITLES[one.method]}, alpha {one.alpha:g}", "Ours") for one in configs]
    columns += [Column(head, "Paper") for head in theirs]
    caption = (
        f"{section.dataset}, {network}: accuracy (%) on deformed test pictures, mean and deviation "
        f"over {_runs(used)}, the best of ours in bold. The paper's are of CIFAR-100, "
        f"PreActResNet-18."
    )
    return Sheet("deformations", caption, columns, body)


def paper_sheet(dataset: str) -> Sheet | None:
    """The paper's errors on a data set that ours is taken from; None if it has none."""
    errors = paper.errors_on(dataset)
    if not errors:
        return None
    body = []
    for network, figures in errors.items():
        means = [figures[method] for method in paper.METHODS]
        body.append([Cell(network), *(Cell(_figure(*figure)) for figure in means)])
    columns = [Column("Network", is_number=False)]
    columns += [Column(TITLES[method]) for method in paper.METHODS]
    caption = (
        "The paper's test errors (%) on the whole data set with networks of full size: the order "
        "of the methods can be compared, the values cannot."
    )
    return Sheet("paper", caption, columns, body)


def _figure(mean: float, deviation: float | None) -> str:
    return plus_minus(mean, float("nan") if deviation is None else deviation)
