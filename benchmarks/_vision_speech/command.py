"""The command line of the benchmarks of images and speech, and what both commands do."""

import argparse
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks._harness.cli import add_run_options, positive_int, run_command
from benchmarks._harness.results_file import ResultsFile
from benchmarks._harness.runner import Item, run
from benchmarks._harness.single_fits import tables_text
from benchmarks._tabular.protocol import Config
from benchmarks._vision_speech import timing
from benchmarks._vision_speech.data import LAYOUTS, Dataset, load_audio, load_images
from benchmarks._vision_speech.fits import SCHEMA, Study, config_of
from benchmarks._vision_speech.networks import SMALL, network_of
from benchmarks._vision_speech.report import Report, make_report, write_page
from mixupe_sklearn.modules import NAMED
from mixupe_sklearn.recipes import Recipe

RESULTS = pathlib.Path(__file__).parents[1] / "results"
FOLDERS = {"image": "images", "speech": "speech"}
# Methods on the command line: the method, and the fraction of a batch with the penalty.
METHODS = {
    "erm": ("erm", 1.0),
    "erm+penalty": ("erm+penalty", 1.0),
    "mixup": ("mixup", 1.0),
    "mixupe": ("mixupe", 1.0),
    "mixupe-quarter": ("mixupe", 0.25),
    "manifold-mixup": ("manifold-mixup", 1.0),
}
# The paper's settings; images have fewer epochs, and a schedule that suits few epochs.
DEFAULTS: dict[str, dict[str, Any]] = {
    "image": {
        **{"optimizer": "sgd", "optimizer_params": {"momentum": 0.9}, "lr": 0.1},
        **{"lr_schedule": "cosine", "weight_decay": 1e-4, "batch_size": 100, "max_epochs": 10},
        **{"alpha": 1.0, "eta": 0.001},
    },
    "speech": {
        **{"optimizer": "adam", "optimizer_params": None, "lr": 0.001},
        **{"lr_schedule": "constant", "weight_decay": 0.0, "batch_size": 100, "max_epochs": 20},
        **{"alpha": 0.2, "eta": 0.01},
    },
}
MANIFOLD_ALPHA = 2.0  # the paper's for Manifold Mixup
OF_TRAINING = ("epochs", "lr", "batch_size", "augment")  # options that a recipe sets itself
NETWORKS = {"image": tuple(SMALL), "speech": ("lenet", "vgg11(width=8)")}
AUGMENTATIONS = ("none", "flip", "crop-flip", "resized-crop-flip")


def make_parser(kind: str, description: str, examples: str) -> argparse.ArgumentParser:
    """The command line of the benchmark of images or speech."""
    name, default = FOLDERS[kind], DEFAULTS[kind]
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(kind=kind, layout=None, augment=None)
    group = made.add_argument_group("data")
    if kind == "image":
        words = "an .npz file with x_train, y_train, x_test and y_test, or a folder with --layout"
        words += " (default: scikit-learn's digits)"
        group.add_argument("--layout", choices=LAYOUTS, help="format of a folder")
        augment = "of training images (default: crop-flip, none for digits)"
        group.add_argument("--augment", choices=AUGMENTATIONS, help=augment)
    else:
        words = "a folder of word folders, as in Speech Commands (default: synthetic tones)"
        cache, cached = pathlib.Path("build") / "spectrograms", "cache of spectrograms"
        group.add_argument("--cache", type=pathlib.Path, default=cache, help=cached)
    group.add_argument("--data", type=pathlib.Path, metavar="PATH", help=words)
    group = made.add_argument_group("fits")
    words = f"of {', '.join(METHODS)} (default: all but the last); mixupe-quarter computes the "
    words += "penalty on a quarter of each batch"
    usual = [name for name in METHODS if name != "manifold-mixup"]
    group.add_argument(
        "--methods", nargs="+", choices=METHODS, default=usual, metavar="METHOD", help=words
    )
    words = f"of {', '.join([*SMALL, *NAMED])}, with optional arguments in brackets: "
    words += "'preactresnet18(width=32)'; or recipes: 'cifar10-preactresnet50(scale=0.1)' "
    words += f"(default: {' '.join(NETWORKS[kind])})"
    group.add_argument(
        "--networks", nargs="+", default=NETWORKS[kind], metavar="NETWORK", help=words
    )
    group.add_argument("--seeds", type=positive_int, default=3, help="runs of each (3)")
    for option, read, words in (
        ("epochs", positive_int, f"epochs of a fit ({default['max_epochs']})"),
        ("alpha", float, f"of the methods that read it ({default['alpha']:g}, or a recipe's)"),
        ("eta", float, f"of the methods that read it ({default['eta']:g}, or a recipe's)"),
        ("lr", float, f"learning rate ({default['lr']:g})"),
        ("batch-size", positive_int, f"samples per step ({default['batch_size']})"),
    ):
        group.add_argument(f"--{option}", type=read, help=words)
    group.add_argument("--device", default="cpu", help="where to train (cpu)")
    group = made.add_argument_group("running")
    output = f"folder for rows and report (benchmarks/results/{name}, build/{name} without --data)"
    add_run_options(group, output=output, docs=f"docs/benchmarks/{name}.md")
    words = "run no fits: time epochs of Mixup and MixupE in turns"
    group.add_argument("--timing", type=positive_int, metavar="ROUNDS", help=words)
    return made


def resolve(options: argparse.Namespace) -> None:
    """Check the options, read the networks, and fill in alpha and eta where they were not given."""
    if options.data is None and options.layout:
        raise ValueError(f"Got --layout {options.layout}, but expected it with --data only.")
    if options.data is not None and not options.data.exists():
        raise ValueError(f"Got --data {options.data}, but expected an existing file or folder.")
    for name in ("ablation", "deformations"):
        if options.docs and getattr(options, name, False):
            raise ValueError(
                f"Got --docs with --{name}, but expected one of them: the page links to the report."
            )
    networks = map(network_of, options.networks)
    options.networks = list({network.name: network for network in networks}.values())
    recipes = [network.recipe for network in options.networks if network.recipe is not None]
    for name in OF_TRAINING:
        if recipes and getattr(options, name) is not None:
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"Got {flag} with the recipe {recipes[0].name}, which sets it, but expected "
                f"the network alone, or a scale: '{recipes[0].name}(scale=0.1)'."
            )
    for found in recipes:
        if found.kind != options.kind:
            raise ValueError(f"Got {found.name}, but expected a recipe for {options.kind}.")
    for name in ("alpha", "eta"):
        if getattr(options, name) is None:
            setattr(options, name, _common(name, recipes, DEFAULTS[options.kind][name]))


def _common(name: str, recipes: Sequence[Recipe], default: float) -> float:
    values = {getattr(recipe, name) for recipe in recipes} or {default}
    if len(values) > 1:
        raise ValueError(
            f"Got recipes with {name} {' and '.join(map(str, sorted(values)))}, but expected one: "
            f"give --{name}, or run them one by one."
        )
    return values.pop()


def training_of(options: argparse.Namespace) -> dict[str, Any]:
    """What every estimator gets unless its recipe sets it."""
    given = {"lr": options.lr, "max_epochs": options.epochs, "batch_size": options.batch_size}
    numbers = {name: value for name, value in given.items() if value is not None}
    training = DEFAULTS[options.kind] | numbers | {"device": options.device}
    training = {name: training[name] for name in training if name not in ("alpha", "eta")}
    if options.kind == "speech":
        return training | {"cache": str(options.cache)}
    augment = options.augment or ("none" if options.data is None else "crop-flip")
    return training | {"augment": None if augment == "none" else augment}


def configs_of(options: argparse.Namespace, methods: Sequence[str] | None = None) -> list[Config]:
    """The selected methods, or those given, with the numbers of the command line."""
    found = []
    for name in dict.fromkeys(options.methods if methods is None else methods):
        method, fraction = METHODS[name]
        alpha = MANIFOLD_ALPHA if method == "manifold-mixup" else options.alpha
        found.append(config_of(method, alpha=alpha, eta=options.eta, penalty_fraction=fraction))
    return found


def load(options: argparse.Namespace) -> Dataset:
    """The data of the command line."""
    if options.kind == "speech":
        return load_audio(options.data)
    return load_images(options.data, options.layout)


def run_and_report(
    options: argparse.Namespace,
    configs: Callable[[argparse.Namespace], Sequence[Config]],
    report: Report,
) -> int:
    """Run open fits, or time epochs, then report on all rows; return the exit status."""

    def work() -> None:
        resolve(options)
        name, training = FOLDERS[options.kind], training_of(options)
        # Results of bundled data are not kept in the repository.
        parent = pathlib.Path("build") if options.data is None else RESULTS
        folder = options.output or parent / name
        if options.timing is not None:
            path, numbers = folder / timing.FILE, {"alpha": options.alpha, "eta": options.eta}
            networks = options.networks
            timing.measure(path, load(options), networks, training, options.timing, **numbers)
            print(f"{tables_text([timing.table_of(path)])}\n\nTimes:  {path}")
            return
        if not options.report_only:
            plan = (options.networks, configs(options), training, options.seeds)
            study, table = Study(*plan, options.retry_failed), load(options)
            with ResultsFile(folder / "rows.csv", SCHEMA) as file:
                items = [Item(table.name, lambda: table)]
                run(items, study, file, n_jobs=options.jobs, is_shown=not options.quiet)
        print(make_report(report, folder))
        if options.docs:
            write_page(report, folder, name)

    return run_command(work)
