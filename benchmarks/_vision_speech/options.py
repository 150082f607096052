"""Options that the benchmarks of images and speech share, and the fits that they select."""

import argparse
import pathlib
from collections.abc import Sequence
from typing import Any

from benchmarks._harness.cli import add_run_options, positive_int
from benchmarks._vision_speech.data import LAYOUTS
from benchmarks._vision_speech.fits import Config, config_of
from benchmarks._vision_speech.networks import SMALL, networks_of
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
# Manifold Mixup runs on request.
DEFAULT_METHODS = [name for name in METHODS if name != "manifold-mixup"]
# Settings where the command line has none. Images: the paper's, but for the epochs and a schedule
# that suits few of them. Speech: the paper's.
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
# Options that a recipe sets itself.
OF_TRAINING = ("epochs", "lr", "batch_size", "augment", "image_size")
NETWORKS = {"image": tuple(SMALL), "speech": ("lenet", "vgg11(width=8)")}


def make_parser(kind: str, description: str, examples: str) -> argparse.ArgumentParser:
    """The command line of the benchmark of images or speech."""
    name = FOLDERS[kind]
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(kind=kind)
    (_add_images if kind == "image" else _add_audio)(made.add_argument_group("data"))
    _add_fits(made.add_argument_group("fits"), kind)
    group = made.add_argument_group("running")
    output = f"folder for rows and report (benchmarks/results/{name}, build/{name} without --data)"
    add_run_options(group, output=output, docs=f"docs/benchmarks/{name}.md")
    group.add_argument(
        "--timing",
        type=positive_int,
        metavar="ROUNDS",
        help="run no fits: time epochs of Mixup and MixupE in turns",
    )
    return made


def _add_images(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data",
        type=pathlib.Path,
        metavar="PATH",
        help="an .npz file with x_train, y_train, x_test and y_test, or a folder with --layout "
        "(default: scikit-learn's digits)",
    )
    group.add_argument("--layout", choices=tuple(LAYOUTS), help="format of a folder")
    group.add_argument(
        "--image-size",
        nargs=2,
        type=positive_int,
        metavar=("H", "W"),
        help="resize images to this height and width",
    )
    group.add_argument(
        "--augment",
        choices=("none", "flip", "crop-flip", "resized-crop-flip"),
        help="of training images (default: crop-flip, none for digits)",
    )


def _add_audio(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data",
        type=pathlib.Path,
        metavar="FOLDER",
        help="a folder of word folders, as in Speech Commands (default: synthetic tones)",
    )
    group.add_argument(
        "--cache",
        type=pathlib.Path,
        default=pathlib.Path("build") / "spectrograms",
        metavar="DIR",
        help="cache of spectrograms (build/spectrograms)",
    )


def _add_fits(group: argparse._ArgumentGroup, kind: str) -> None:
    default = DEFAULTS[kind]
    group.add_argument(
        "--methods",
        nargs="+",
        choices=tuple(METHODS),
        default=DEFAULT_METHODS,
        metavar="METHOD",
        help=f"of {', '.join(METHODS)} (default: all but the last); mixupe-quarter computes the "
        f"penalty on a quarter of each batch",
    )
    group.add_argument(
        "--networks",
        nargs="+",
        default=NETWORKS[kind],
        metavar="NETWORK",
        help=f"of {', '.join([*SMALL, *NAMED])}, with optional arguments in brackets: "
        f"'preactresnet18(width=32)'; or recipes: 'cifar10-preactresnet50(scale=0.1)' (default: "
        f"{' '.join(NETWORKS[kind])})",
    )
    group.add_argument("--seeds", type=positive_int, default=3, help="runs of each (3)")
    words = f"epochs of a fit ({default['max_epochs']})"
    group.add_argument("--epochs", type=positive_int, help=words)
    for name in ("alpha", "eta"):
        words = f"of the methods that read it ({default[name]:g}, or that of a recipe)"
        group.add_argument(f"--{name}", type=float, help=words)
    words = f"alpha of manifold-mixup ({MANIFOLD_ALPHA:g}, the paper's)"
    group.add_argument("--manifold-alpha", type=float, default=MANIFOLD_ALPHA, help=words)
    group.add_argument("--lr", type=float, help=f"learning rate ({default['lr']:g})")
    words = f"samples per step ({default['batch_size']})"
    group.add_argument("--batch-size", type=positive_int, help=words)
    group.add_argument("--device", default="cpu", help="where to train (cpu)")


def check(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other."""
    if options.data is None and getattr(options, "layout", None):
        raise ValueError(f"Got --layout {options.layout}, but expected it with --data only.")
    if options.data is not None and not options.data.exists():
        raise ValueError(f"Got --data {options.data}, but expected an existing file or folder.")
    for name in ("ablation", "deformations"):
        if options.docs and getattr(options, name, False):
            raise ValueError(
                f"Got --docs with --{name}, but expected one of them: "
                f"the page links to that report."
            )


def folder_of(options: argparse.Namespace) -> pathlib.Path:
    """The folder of rows and report; those of bundled data are not kept in the repository."""
    if options.output is not None:
        return options.output
    name = FOLDERS[options.kind]
    return pathlib.Path("build") / name if options.data is None else RESULTS / name


def resolve(options: argparse.Namespace) -> None:
    """Read the networks, and fill in alpha and eta where they were not given."""
    options.networks = networks_of(options.networks)
    recipes = [network.recipe for network in options.networks if network.recipe is not None]
    for name in OF_TRAINING:
        if recipes and getattr(options, name, None) is not None:
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
    size = None if options.image_size is None else tuple(options.image_size)
    return training | {"augment": None if augment == "none" else augment, "image_size": size}


def configs_of(options: argparse.Namespace, methods: Sequence[str] | None = None) -> list[Config]:
    """The selected methods, or those given, with the numbers of the command line."""
    found = []
    for name in dict.fromkeys(options.methods if methods is None else methods):
        method, fraction = METHODS[name]
        alpha = options.manifold_alpha if method == "manifold-mixup" else options.alpha
        found.append(config_of(method, alpha=alpha, eta=options.eta, penalty_fraction=fraction))
    return found
