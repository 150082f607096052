"""Options that the benchmarks for images and speech share, and the fits that they ask for."""

import argparse
import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks._signals.data import LAYOUTS
from benchmarks._signals.fits import Config, Study, config_of
from benchmarks._signals.networks import SMALL, networks_of
from benchmarks._tabular.options import positive
from mixupe_sklearn.modules import NAMED
from mixupe_sklearn.recipes import Recipe

RESULTS = pathlib.Path(__file__).parents[1] / "results"
# Methods on the command line: which one it is, and how much of a batch is penalised.
METHODS = {
    "erm": ("erm", 1.0),
    "erm+penalty": ("erm+penalty", 1.0),
    "mixup": ("mixup", 1.0),
    "mixupe": ("mixupe", 1.0),
    "mixupe-quarter": ("mixupe", 0.25),
    "manifold-mixup": ("manifold-mixup", 1.0),
}
# Manifold Mixup is run on request.
DEFAULT_METHODS = [name for name in METHODS if name != "manifold-mixup"]
# What a command sets where the command line does not. Images: the paper's, but for the epochs and a
# schedule that is meant for few of them. Speech: the paper's.
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
MANIFOLD_ALPHA = 2.0
# Options that a recipe answers itself.
OF_TRAINING = ("epochs", "lr", "batch_size", "augment", "image_size")
NETWORKS = {"image": tuple(SMALL), "speech": ("lenet", "vgg11(width=8)")}


def make_parser(
    name: str, kind: str, description: str, examples: str, *, has_methods: bool = True
) -> argparse.ArgumentParser:
    """The command line of a benchmark for images or speech."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(kind=kind)
    group = made.add_argument_group("data")
    if kind == "image":
        _add_pictures(group)
    else:
        _add_sounds(group)
    group = made.add_argument_group("fits")
    if has_methods:
        group.add_argument(
            "--methods",
            nargs="+",
            choices=tuple(METHODS),
            default=DEFAULT_METHODS,
            metavar="METHOD",
            help=f"of {', '.join(METHODS)} (default: all but the last); mixupe-quarter penalises "
            f"a quarter of each batch",
        )
    _add_fits(group, kind)
    _add_running(made.add_argument_group("running"), kind)
    return made


def _add_pictures(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data",
        type=pathlib.Path,
        metavar="PATH",
        help="an .npz file with x_train, y_train, x_test and y_test, or a folder with --layout "
        "(default: scikit-learn's digits)",
    )
    group.add_argument("--layout", choices=tuple(LAYOUTS), help="how a folder is read")
    group.add_argument(
        "--image-size",
        nargs=2,
        type=positive,
        metavar=("H", "W"),
        help="resize pictures to this height and width",
    )
    group.add_argument(
        "--augment",
        choices=("none", "flip", "crop-flip", "resized-crop-flip"),
        help="of training pictures (default: crop-flip, none for digits)",
    )


def _add_sounds(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data",
        type=pathlib.Path,
        metavar="FOLDER",
        help="a folder of word folders, as Speech Commands has it (default: tones made by rule)",
    )
    group.add_argument(
        "--cache",
        type=pathlib.Path,
        default=pathlib.Path("build") / "spectrograms",
        metavar="DIR",
        help="where spectrograms are kept, so that each is made once (build/spectrograms)",
    )


def _add_fits(group: argparse._ArgumentGroup, kind: str) -> None:
    default = DEFAULTS[kind]
    group.add_argument(
        "--networks",
        nargs="+",
        default=NETWORKS[kind],
        metavar="NETWORK",
        help=f"of {', '.join([*SMALL, *NAMED])}, with arguments in brackets if you like: "
        f"'preactresnet18(width=32)'; or recipes: 'cifar10-preactresnet50(scale=0.1)' (default: "
        f"{' '.join(NETWORKS[kind])})",
    )
    group.add_argument("--seeds", type=positive, default=3, help="runs of each (3)")
    group.add_argument("--epochs", type=positive, help=f"a fit ({default['max_epochs']})")
    for name in ("alpha", "eta"):
        words = f"of the methods that read it ({default[name]:g}, or that of a recipe)"
        group.add_argument(f"--{name}", type=float, help=words)
    words = f"alpha of manifold-mixup ({MANIFOLD_ALPHA:g}, the paper's)"
    group.add_argument("--manifold-alpha", type=float, default=MANIFOLD_ALPHA, help=words)
    group.add_argument("--lr", type=float, help=f"learning rate ({default['lr']:g})")
    group.add_argument("--batch-size", type=positive, help=f"rows a step ({default['batch_size']})")
    group.add_argument("--device", default="cpu", help="where to train (cpu)")


def _add_running(group: argparse._ArgumentGroup, kind: str) -> None:
    name = "images" if kind == "image" else "speech"
    group.add_argument("--jobs", type=positive, default=2, help="processes, one thread each (2)")
    group.add_argument(
        "--output",
        type=pathlib.Path,
        metavar="DIR",
        help=f"folder for rows and report (benchmarks/results/{name}, build/{name} without --data)",
    )
    group.add_argument(
        "--timing",
        type=positive,
        metavar="ROUNDS",
        help="fit nothing: measure what an epoch of MixupE takes of one of Mixup, in turns",
    )
    group.add_argument("--retry-failed", action="store_true", help="run failed fits again")
    group.add_argument("--report-only", action="store_true", help="run nothing, make the report")
    group.add_argument("--docs", action="store_true", help=f"write the tables into docs/{name}.md")
    group.add_argument("--quiet", action="store_true", help="no progress bar")


def check(options: argparse.Namespace) -> None:
    """Refuse options that do not go together, in one sentence."""
    if options.data is None and getattr(options, "layout", None):
        raise ValueError(f"Got --layout {options.layout}, but expected it with --data only.")
    if options.data is not None and not options.data.exists():
        raise ValueError(f"Got --data {options.data}, but expected a file or folder that is there.")


def folder_of(options: argparse.Namespace) -> pathlib.Path:
    """Where rows and report go; those of embedded data are not kept."""
    if options.output is not None:
        return options.output
    name = "images" if options.kind == "image" else "speech"
    return pathlib.Path("build") / name if options.data is None else RESULTS / name


def resolve(options: argparse.Namespace) -> None:
    """Read the networks, and fill in the alpha and eta that were not given."""
    options.networks = networks_of(options.networks)
    recipes = [network.recipe for network in options.networks if network.recipe is not None]
    for name in OF_TRAINING:
        if recipes and getattr(options, name, None) is not None:
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"Got {flag} with the recipe {recipes[0].name}, which says it itself, but expected "
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
    """What is set in every estimator, but for what a recipe says."""
    given = {"lr": options.lr, "max_epochs": options.epochs, "batch_size": options.batch_size}
    numbers = {name: value for name, value in given.items() if value is not None}
    training = DEFAULTS[options.kind] | numbers | {"device": options.device}
    training = {name: training[name] for name in training if name not in ("alpha", "eta")}
    if options.kind == "speech":
        return training | {"cache": str(options.cache)}
    augment = options.augment or ("none" if options.data is None else "crop-flip")
    size = None if options.image_size is None else tuple(options.image_size)
    return training | {"augment": None if augment == "none" else augment, "image_size": size}


def configs_of(options: argparse.Namespace) -> list[Config]:
    """The methods that are asked for, with the numbers that are given."""
    found = []
    for name in dict.fromkeys(options.methods):
        method, fraction = METHODS[name]
        alpha = options.manifold_alpha if method == "manifold-mixup" else options.alpha
        found.append(config_of(method, alpha=alpha, eta=options.eta, penalty_fraction=fraction))
    return found


def study_of(options: argparse.Namespace, configs: Sequence[Config]) -> Study:
    """The plan of the fits that are asked for."""
    return Study(
        options.networks,
        configs,
        training_of(options),
        options.seeds,
        options.retry_failed,
    )
