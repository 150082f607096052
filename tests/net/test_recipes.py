"""The recipes of the paper, and the estimators that they create."""

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from skorch.callbacks import LRScheduler

from mixupe_sklearn.adapters.image import MixupEImageClassifier
from mixupe_sklearn.adapters.speech import MixupESpeechClassifier
from mixupe_sklearn.callbacks import PolyakAverage, WarmupCosine
from mixupe_sklearn.modules import NAMED
from mixupe_sklearn.recipes import RECIPES, narrow, recipe, recipes_table

NAMES = sorted(RECIPES)
SMALL = ("preactresnet50", "preactresnet101", "wideresnet28-10")


def test_every_result_of_the_paper_has_a_recipe():
    assert set(RECIPES) == {
        *(f"{dataset}-{module}" for dataset in ("cifar10", "cifar100", "svhn") for module in SMALL),
        *(f"tinyimagenet-preactresnet{depth}" for depth in (18, 34, 50)),
        *(f"imagenet-{module}" for module in ("resnet50", "vit-b16", "coatnet0")),
        *(f"speech-{module}" for module in ("lenet", "vgg11", "vgg13")),
        "cifar100-preactresnet18",
    }
    assert all(found.name == name for name, found in RECIPES.items())


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cifar100-preactresnet18"])
def test_mixupe_is_the_best_of_three_in_every_recipe(name):
    for metric, figures in recipe(name).figures.items():
        assert list(figures) == ["erm", "mixup", "mixupe"]
        assert all(0 < deviation < 1 for _, deviation in figures.values())
        (erm, _), (mixup, _), (mixupe, _) = figures.values()
        sign = 1 if "accuracy" in metric else -1
        assert sign * mixupe > sign * max(erm, mixup, key=lambda value: sign * value)


def test_figures_agree_with_the_text_of_the_paper():
    def gain(module):
        figures = recipe(f"imagenet-{module}").figures["top-1 accuracy"]
        return figures["mixupe"][0] - figures["mixup"][0]

    gains = [gain(module) for module in ("resnet50", "vit-b16", "coatnet0")]
    assert np.allclose(gains, [0.5, 0.7, 0.8])
    # The ablation table repeats three of these.
    figures = recipe("cifar100-preactresnet50").figures["error"]
    assert [mean for mean, _ in figures.values()] == [24.68, 23.03, 20.23]
    # MixupE is first on five of eight deformations, else second or third after Manifold Mixup.
    rows = recipe("cifar100-preactresnet18").figures.values()
    is_first = [max(row, key=lambda method: row[method][0]) == "mixupe" for row in rows]
    assert is_first == [True, True, True, False, True, True, False, False]


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(("imagenet", "speech"))])
def test_small_images_are_trained_as_in_the_paper(name):
    estimator = recipe(name).make_estimator()
    n_epochs = 400 if name == "cifar100-preactresnet18" else 200
    assert isinstance(estimator, MixupEImageClassifier)
    assert (estimator.optimizer, estimator.optimizer_params) == ("sgd", {"momentum": 0.9})
    assert (estimator.lr, estimator.weight_decay, estimator.batch_size) == (0.1, 1e-4, 100)
    assert (estimator.max_epochs, estimator.lr_schedule) == (n_epochs, "constant")
    assert estimator.alpha == (0.2 if name.startswith("tiny") else 1.0)
    assert estimator.eta == (0.0001 if name == "cifar100-preactresnet50" else 0.001)
    assert estimator.image_size == ((64, 64) if name.startswith("tiny") else (32, 32))
    (schedule,) = estimator.callbacks
    rates = schedule.simulate(n_epochs, initial_lr=0.1)
    factors = np.repeat([1, 0.1, 0.01], [n_epochs // 2, n_epochs // 4, n_epochs // 4])
    assert np.allclose(rates, 0.1 * factors)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("resnet50", ("sgd", {"momentum": 0.9}, 1.6, 1e-4, 0.2, 1e-3)),
        ("vit-b16", ("adamw", {"betas": (0.9, 0.99)}, 0.001, 0.3, 0.4, 5e-4)),
        ("coatnet0", ("adamw", {"betas": (0.9, 0.99)}, 0.001, 0.05, 0.4, 5e-4)),
    ],
    ids=["resnet50", "vit-b16", "coatnet0"],
)
def test_imagenet_is_trained_as_in_the_paper(module, expected):
    estimator = recipe(f"imagenet-{module}").make_estimator()
    names = ("optimizer", "optimizer_params", "lr", "weight_decay", "alpha", "eta")
    assert tuple(getattr(estimator, name) for name in names) == expected
    assert (estimator.batch_size, estimator.image_size) == (4096, (224, 224))
    warmup, average = estimator.callbacks
    assert average.rate == 0.999
    n_batches = math.ceil(1_281_167 / 4096)
    n_steps = estimator.max_epochs * n_batches
    # Full epochs, and no more than the steps need.
    assert n_steps - n_batches < 100_000 <= n_steps == 100_160
    rates = warmup.simulate(n_steps, initial_lr=estimator.lr)
    assert rates[0] == 0
    assert np.argmax(rates) == 10_016
    assert rates.max() == estimator.lr
    assert rates[-1] == pytest.approx(estimator.lr / 1000)


@pytest.mark.parametrize("module", ["lenet", "vgg11", "vgg13"])
def test_speech_is_trained_as_in_the_paper(module):
    estimator = recipe(f"speech-{module}").make_estimator()
    assert isinstance(estimator, MixupESpeechClassifier)
    names = ("module", "optimizer", "lr", "lr_schedule", "batch_size", "max_epochs", "alpha", "eta")
    expected = (module, "adam", 0.001, "constant", 100, 20, 0.2, 0.01)
    assert tuple(getattr(estimator, name) for name in names) == expected
    assert estimator.callbacks is None


def n_parameters(found, module_params):
    n_channels = 1 if found.kind == "speech" else 3
    with torch.device("meta"):
        module = NAMED[found.module](
            found.n_outputs,
            n_channels=n_channels,
            image_size=found.image_size,
            **{**found.module_params, **module_params},
        )
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    "name", [next(n for n in NAMES if RECIPES[n].module == module) for module in sorted(NAMED)]
)
def test_scale_narrows_a_network_and_one_is_that_of_the_paper(name):
    found = recipe(name)
    assert narrow(found.module, 1) == {}
    whole = n_parameters(found, {})
    # The scaled widths are those of the network itself.
    assert n_parameters(found, narrow(found.module, 1 - 1e-9)) == whole
    counts = [n_parameters(found, narrow(found.module, scale)) for scale in (0.1, 0.5)]
    assert sorted({*counts, whole}) == [*counts, whole]
    # Most weights connect two layers of such a width.
    assert counts[1] < 0.4 * whole


@pytest.mark.parametrize("scale", [0.001, 0.1, 0.5])
def test_scale_shortens_the_training_in_proportion(scale):
    small = recipe("cifar10-preactresnet50").make_estimator(scale=scale)
    assert small.max_epochs == max(1, round(200 * scale))
    assert small.callbacks[0].milestones == [max(1, round(epoch * scale)) for epoch in (100, 150)]
    assert (small.lr, small.batch_size, small.alpha) == (0.1, 100, 1.0)
    large = recipe("imagenet-resnet50").make_estimator(scale=scale)
    warmup, average = large.callbacks
    assert large.max_epochs == max(1, round(320 * scale))
    assert warmup.n_warmup == 0.1
    # The share of the initial weights in the final average, for every scale.
    assert average.rate ** (100_000 * scale) == pytest.approx(0.999**100_000, rel=1e-6)


def test_overrides_replace_and_module_params_are_merged():
    estimator = recipe("tinyimagenet-preactresnet18").make_estimator(
        scale=0.25, method="erm", lr=0.5, module_params={"blocks": (1, 1)}, callbacks=[]
    )
    assert (estimator.method, estimator.lr, estimator.callbacks) == ("erm", 0.5, [])
    assert estimator.module_params == {"stem_stride": 2, "width": 16, "blocks": (1, 1)}
    with pytest.raises(TypeError, match="n_members"):
        recipe("cifar10-preactresnet50").make_estimator(n_members=3)


def test_a_recipe_is_a_read_only_copy():
    found = recipe("imagenet-vit-b16")
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.lr = 1.0
    found.optimizer_params["betas"] = (0, 0)
    found.make_estimator().optimizer_params["betas"] = (1, 1)
    assert recipe("imagenet-vit-b16").optimizer_params == {"betas": (0.9, 0.99)}
    assert copy.deepcopy(found) == pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("name", NAMES)
def test_estimators_are_cloned_with_their_callbacks(name):
    estimator = recipe(name).make_estimator(scale=0.5)
    other = clone(estimator)
    for mine, cloned in zip(estimator.callbacks or [], other.callbacks or [], strict=True):
        assert type(mine) in {LRScheduler, PolyakAverage, WarmupCosine}
        assert mine is not cloned
        assert mine.get_params() == cloned.get_params()


@pytest.fixture(scope="module")
def images(digits):
    X = np.round(255 * digits[0][:60].reshape(-1, 8, 8, 1)).astype("uint8")
    return np.repeat(X, 3, axis=3), digits[1][:60]


@pytest.mark.parametrize("name", ["cifar10-preactresnet50", "imagenet-resnet50"])
def test_a_small_image_recipe_trains(images, name):
    estimator = recipe(name).make_estimator(
        scale=0.02,
        module_params={"blocks": (1, 1)},
        image_size=None,
        batch_size=20,
        augment=None,
        random_state=0,
    )
    estimator.fit(*images)
    assert len(estimator.history_) == estimator.max_epochs == round(recipe(name).n_epochs * 0.02)
    assert estimator.history_[-1]["train_loss"] < estimator.history_[0]["train_loss"]
    assert estimator.predict_proba(images[0][:2]).shape == (2, 10)


def test_a_small_speech_recipe_trains():
    rng = np.random.default_rng(0)
    time = np.arange(16000) / 16000
    tones = np.repeat([300.0, 2000.0], 6)
    waveforms = [np.sin(tone * 2 * np.pi * time) * rng.uniform(0.1, 1) for tone in tones]
    waveforms = [waveform.astype("float32") for waveform in waveforms]
    estimator = recipe("speech-lenet").make_estimator(
        scale=0.2, batch_size=4, lr=0.01, random_state=0
    )
    estimator.fit(waveforms, np.where(tones < 1000, "low", "high"))
    assert estimator.score(waveforms, np.where(tones < 1000, "low", "high")) == 1


def test_an_unknown_name_suggests_the_nearest_ones():
    with pytest.raises(
        ValueError, match="Got name='cifar10-resnet50', but expected a recipe, such"
    ):
        recipe("cifar10-resnet50")
    with pytest.raises(ValueError, match="such as 'cifar10-preactresnet50'"):
        recipe("CIFAR10-preactresnet50")
    with pytest.raises(ValueError, match="Got name=3, but expected a recipe"):
        recipe(3)


@pytest.mark.parametrize("scale", [0, -1, 1.5, None])
def test_a_wrong_scale_raises(scale):
    with pytest.raises(
        ValueError, match=f"Got scale={scale}, but expected a number above 0 and at"
    ):
        recipe("speech-lenet").make_estimator(scale=scale)


def test_the_table_has_a_row_for_each_figure_and_all_cells():
    header, rule, *lines = recipes_table().splitlines()
    assert len(lines) == sum(len(found.figures) for found in RECIPES.values())
    assert {line.count("|") for line in (header, rule, *lines)} == {9}
    assert [line.split("|")[1].strip() for line in lines if line[2] != " "] == list(RECIPES)
    (vit,) = (line for line in lines if "imagenet-vit-b16" in line)
    assert "AdamW 0.001, decay 0.3, batch 4096, 100000 steps" in vit
    assert vit.endswith("| top-1 accuracy | 79.1 ± 0.2 | 79.7 ± 0.2 | 80.4 ± 0.1 |")
