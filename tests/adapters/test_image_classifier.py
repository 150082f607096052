"""MixupEImageClassifier: the API of an estimator, on images."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from skorch.callbacks import Callback
from torch import nn

from mixupe_sklearn import MixupEImageClassifier, MixupELoss, MixupESearchCV
from mixupe_sklearn._training.config import rate_factors
from mixupe_sklearn.adapters._input_transform import Prepare
from mixupe_sklearn.callbacks import PolyakAverage, WarmupCosine
from mixupe_sklearn.modules import PreActResNet

TINY = {"width": 8, "blocks": (1, 1)}
pytestmark = pytest.mark.usefixtures("one_thread")


def make(**params):
    return MixupEImageClassifier(
        **{"module_params": TINY, "alpha": 0.2, "max_epochs": 2, "lr": 0.01, "batch_size": 50}
        | {"random_state": 0}
        | params
    )


class Plain(nn.Module):
    """A user's module, in the words of timm: no stages, a view, BatchNorm and dropout."""

    def __init__(self, num_classes=1000, in_chans=3, img_size=(224, 224)):
        super().__init__()
        self.conv = nn.Conv2d(in_chans, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(4 * img_size[0] * img_size[1], num_classes)

    def forward(self, X):
        hidden = self.norm(self.conv(X)).relu()
        return self.out(self.drop(hidden.view(len(X), -1)))


class Misleading(Plain):
    """Its stages end before its forward does, as in some networks of others."""

    def __init__(self, num_classes, in_chans, img_size):
        super().__init__(num_classes, in_chans, img_size)
        self.stages = [nn.Flatten(), nn.Linear(64, num_classes)]


class Pairs(torch.utils.data.Dataset):
    """Images and labels, one at a time: what a user has on a disk."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, number):
        return self.X[number], self.y[number]


@pytest.fixture(scope="module")
def images():
    """Digits as bytes, (n, h, w), with words for labels."""
    digits = load_digits()
    names = np.array(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    )
    return (digits.images[:300] * 15).astype(np.uint8), names[digits.target[:300]]


@pytest.fixture(scope="module")
def fitted(images):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    model = make(max_epochs=5, lr=0.02, batch_size=20).fit(*images)
    torch.set_num_threads(before)
    return model


def weights_of(model):
    return [parameter.detach().clone() for parameter in model.net_.module_.parameters()]


def are_equal(first, second):
    pairs = zip(weights_of(first), weights_of(second), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_digits_are_learned_by_their_names(fitted, images):
    X, y = images
    assert fitted.score(X, y) > 0.9
    assert set(fitted.predict(X[:20])) <= set(y)
    proba = fitted.predict_proba(X[:20])
    assert proba.shape == (20, 10)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(fitted.predict_log_proba(X[:20]), np.log(proba))


def test_layouts_and_types_do_not_change_the_predictions(fitted, images):
    X = images[0][:10]
    wanted = fitted.predict_proba(X)
    for same in (X[..., None], X[:, None], torch.from_numpy(X), list(X)):
        np.testing.assert_array_equal(fitted.predict_proba(same), wanted)
    for nearly in (X / 255, (X / 255).astype(np.float32), X.astype(float)):
        np.testing.assert_allclose(fitted.predict_proba(nearly), wanted, atol=1e-5)


def test_inputs_have_mean_zero_and_deviation_one_in_each_channel(images):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 200, (60, 6, 5, 3), dtype=np.uint8) * np.array([1, 0, 1], dtype=np.uint8)
    model = make(module=Plain, module_params=None).fit(X, images[1][:60])
    ready = model.net_._prepare(torch.from_numpy(X).permute(0, 3, 1, 2), False).double()
    torch.testing.assert_close(ready.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-5, rtol=0)
    wanted = torch.tensor([1.0, 0.0, 1.0]).double()  # a channel that never changes is only centred
    torch.testing.assert_close(ready.std((0, 2, 3), correction=0), wanted, atol=1e-5, rtol=0)
    np.testing.assert_allclose(model.X_mean_, X.mean((0, 1, 2)) / 255)


def test_bytes_and_floats_are_normalised_alike():
    X = torch.randint(256, (4, 3, 5, 5), dtype=torch.uint8)
    prepare = Prepare([0.1, 0.2, 0.3], [0.5, 0.6, 0.7])
    torch.testing.assert_close(prepare(X, False), prepare(X / 255, False))


@pytest.mark.parametrize("method", ["mixup", "mixupe"])
def test_equal_seeds_give_equal_weights_and_leave_global_generators_alone(images, method):
    params = {"method": method, "augment": "crop-flip", "max_epochs": 1}
    torch.manual_seed(3)
    np.random.seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = make(**params).fit(*images)
    first.predict(images[0])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    torch.manual_seed(4)
    assert are_equal(first, make(**params).fit(*images))
    assert not are_equal(first, make(**params, alpha=0.3).fit(*images))


def test_without_a_penalty_mixupe_is_mixup_to_the_bit(images):
    assert are_equal(make(eta=0.0).fit(*images), make(method="mixup").fit(*images))


def test_augmentation_is_for_training_only(images):
    X, y = images
    seen = []

    def note(batch):
        seen.append(batch.shape)
        return batch

    model = make(augment=note, max_epochs=1, early_stopping=True).fit(X, y)
    assert seen == [(50, 1, 8, 8)] * 5 + [(20, 1, 8, 8)]
    model.predict(X)
    assert len(seen) == 6


def test_a_module_of_the_user_is_trained(images):
    X, y = images
    model = make(module=Plain, module_params=None, max_epochs=4, batch_size=20).fit(X, y)
    assert model.net_.module_.out.in_features == 256
    assert model.score(X, y) > 0.7
    assert not model.net_._prepare.channels_last  # its view would fail


WIDE = {"width": 16, "blocks": (1, 1)}


def test_the_memory_format_changes_only_rounding(images):
    wide = make(module_params=WIDE, max_epochs=1)
    models = [clone(wide).set_params(channels_last=last).fit(*images) for last in (False, True)]
    proba = [model.predict_proba(images[0]) for model in models]
    np.testing.assert_allclose(*proba, atol=1e-4)


def test_narrow_strided_convolutions_keep_the_default_memory_format(images):
    # oneDNN issue 6035: their gradient of weights is written beyond its place, and ends a process.
    X, y = images[0][:20], images[1][:20]
    for params, is_last in ((TINY, False), (WIDE, True)):
        model = make(module_params=params, max_epochs=1).fit(X, y)
        assert model.net_._prepare.channels_last is is_last
    with pytest.raises(ValueError, match="Got channels_last=True on a CPU with a 1 x 1"):
        make(channels_last=True).fit(X, y)


@pytest.mark.parametrize("is_last", [False, True])
def test_the_input_has_one_memory_format(is_last):
    prepare = Prepare([0.5] * 3, [0.25] * 3, channels_last=is_last)
    order = torch.channels_last if is_last else torch.contiguous_format
    channels_next = torch.zeros(2, 4, 4, 3, dtype=torch.uint8).movedim(3, 1)
    for X in (channels_next, channels_next.contiguous()):
        assert prepare(X, training=False).is_contiguous(memory_format=order)


def test_an_error_in_a_worker_is_raised_alone_by_fit_and_predict(images):
    X, y = images[0][:20].astype(float) / 255, images[1][:20]
    model = make(n_workers=1, max_epochs=1).fit(Pairs(X, y))
    spoiled = X.copy()
    spoiled[3, 2, 2] = np.nan
    message = "^Got X.3. with a pixel of nan, but expected finite numbers.$"
    for call in (clone(model).fit, model.score, model.predict):
        with pytest.raises(ValueError, match=message):
            call(Pairs(spoiled, y))


class WorseAndWorse(Pairs):
    """Its images are spoiled once they have been read for the mean."""

    n_read = 0

    def __getitem__(self, number):
        self.n_read += 1
        return super().__getitem__(number) if self.n_read < 60 else (np.full((8, 8), np.nan), "two")


def test_an_error_in_a_worker_is_raised_alone_in_training(images):
    X, y = images[0][:20].astype(float) / 255, images[1][:20]
    with pytest.raises(ValueError, match="^Got X.\\d+. with a pixel of nan, but expected finite"):
        make(n_workers=1, max_epochs=9).fit(WorseAndWorse(X, y), y)


def test_low_precision_learns(images):
    model = make(amp=True, max_epochs=4, batch_size=20).fit(*images)
    assert model.net_._precision is torch.bfloat16
    assert weights_of(model)[0].dtype is torch.float32
    assert model.score(*images) > 0.5


def test_low_precision_supports_the_directional_penalty_of_hidden_states(images):
    model = make(amp=True, mix_at="hidden", penalty="directional", max_epochs=1).fit(*images)
    assert np.isfinite(model.loss_curve_).all()


def test_a_schedule_ends_with_the_training(images):
    """Of 101 images in batches of 50 the last joins the second batch: two steps, not three."""
    rates = []

    class Watch(Callback):
        def on_batch_end(self, net, training=False, **kwargs):
            if training:
                rates.append(net.optimizer_.param_groups[0]["lr"])

    X, y = images
    make(callbacks=[Watch()], lr_schedule="cosine", lr=1.0, max_epochs=2).fit(X[:101], y[:101])
    np.testing.assert_allclose(rates, rate_factors("cosine", 4))


def test_weight_zero_removes_a_sample_and_equal_weights_change_nothing(images):
    X, y = images
    weight = np.r_[np.zeros(100), np.full(200, 3.0)]
    model = make(max_epochs=1).fit(X, y, sample_weight=weight)
    assert are_equal(model, make(max_epochs=1).fit(X[100:], y[100:]))


def test_class_weights_shift_predictions_to_their_class(images):
    X, y = images
    counts = [
        (make(class_weight=weight).fit(X, y).predict(X) == "one").sum()
        for weight in (None, {"one": 50.0})
    ]
    assert counts[0] < counts[1]


def test_early_stopping_keeps_the_best_epoch(images):
    X, y = images
    model = make(early_stopping=True, n_iter_no_change=2, max_epochs=60, lr=0.05)
    model.fit(X[:250], y[:250], X_val=X[250:], y_val=y[250:])
    losses = [row["valid_loss"] for row in model.history_]
    assert model.n_iter_ < 60
    own = model.predict_proba(X[250:])[np.arange(50), np.searchsorted(model.classes_, y[250:])]
    np.testing.assert_allclose(-np.log(own).mean(), min(losses), rtol=1e-4)


@pytest.mark.parametrize("n_workers", [0, 1])
def test_a_dataset_trains_the_same_as_its_arrays_to_the_bit(images, n_workers):
    X, y = images[0][:151], images[1][:151]  # a last row that joins the batch before it
    data = Pairs(X, y.tolist())
    how = {"augment": "flip", "max_epochs": 2}  # which draws in every batch
    model = make(n_workers=n_workers, **how).fit(data)
    assert are_equal(model, make(**how).fit(X, y))
    np.testing.assert_array_equal(model.predict_proba(data), model.predict_proba(X))
    assert model.score(data) == model.score(X, y)


def test_a_dataset_can_be_compiled_for(images, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "mixupe_sklearn._net.autograd.compile_module",
        lambda module, parts, trial: seen.append(trial()),
    )
    make(compile=True, max_epochs=1).fit(Pairs(*images))
    assert seen == [None]


class Narrow(nn.Module):
    """A user's network for rows of five numbers."""

    def __init__(self, n_outputs):
        super().__init__()
        self.layer = nn.Linear(5, n_outputs)

    def forward(self, X):
        return self.layer(X)


def test_a_module_that_fails_on_a_batch_is_named_with_the_shape(images):
    message = r"Got a Narrow that fails on a batch of shape \(2, 1, 8, 8\) \(RuntimeError: mat1 and"
    with pytest.raises(ValueError, match=message):
        make(module=Narrow, module_params=None).fit(*images)


class Fails(Callback):
    """Fails in the midst of an epoch, on request."""

    is_on = False

    def on_batch_end(self, net, training=None, **kwargs):
        if Fails.is_on and len(net.history[-1]["batches"]) == 3:
            raise OSError("No luck.")


def test_a_failed_training_leaves_the_estimator_unchanged(images, monkeypatch):
    X, y = images
    callbacks = [WarmupCosine(n_warmup=0.2), PolyakAverage(rate=0.9), Fails()]
    how = {"augment": "flip", "lr_schedule": "constant", "max_epochs": 6}
    model = make(callbacks=callbacks, **how)
    for _ in range(2):
        model.partial_fit(X, y, classes=np.unique(y))
    undisturbed = pickle.loads(pickle.dumps(model))
    monkeypatch.setattr(Fails, "is_on", True)
    with pytest.raises(OSError, match="No luck."):
        model.partial_fit(X, y)
    monkeypatch.setattr(Fails, "is_on", False)
    assert are_equal(model.partial_fit(X, y), undisturbed.partial_fit(X, y))


def test_fit_determines_the_format_of_images(images):
    X, y = images[0].astype(float), images[1]
    model = make(value_range=(0, 255), max_epochs=1, warm_start=True).fit(X, y)
    before = model.predict_proba(X)
    model.set_params(value_range=(0, 1000), image_size=(4, 4))
    np.testing.assert_array_equal(model.predict_proba(X), before)
    with pytest.raises(ValueError, match="Got a new value of image_size, but expected that"):
        model.fit(X, y)


def test_a_folder_with_one_class_is_scored(fitted, images, tmp_path):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "one").mkdir()
    for number in np.flatnonzero(images[1] == "one")[:3]:
        image.fromarray(images[0][number]).save(tmp_path / "one" / f"{number}.png")
    assert 0 <= fitted.score(tmp_path) <= 1
    with pytest.raises(ValueError, match="with one class only, 'one', but expected two."):
        clone(fitted).fit(tmp_path)


def test_an_augmentation_that_returns_none_is_refused(images):
    with pytest.raises(ValueError, match="Got a batch of shape None from augment, but expected"):
        make(augment=lambda batch: None).fit(*images)


def test_weights_of_a_dataset_are_used(images):
    X, y = images
    weight = np.where(y == "one", 40.0, 1.0)
    plain, weighted = (make().fit(Pairs(X, y), None, w) for w in (None, weight))
    assert (weighted.predict(X) == "one").sum() > (plain.predict(X) == "one").sum()
    few = make().fit(Pairs(X, y), None, weight * (y != "two"))
    assert "two" not in few.classes_


def test_a_folder_of_class_folders_gives_the_labels(images, tmp_path):
    image = pytest.importorskip("PIL.Image")
    X, y = images[0][:60], images[1][:60]
    for number, (pixels, name) in enumerate(zip(X, y, strict=True)):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        image.fromarray(pixels).save(folder / f"{number:03}.png")
    model = make(max_epochs=8, lr=0.02, batch_size=20).fit(tmp_path)
    assert set(model.classes_) == set(y)
    assert model.score(str(tmp_path)) == pytest.approx(model.score(X, y))
    assert model.score(tmp_path) > 0.5


def test_images_of_other_sizes_are_resized(fitted, images):
    X, y = images
    model = make(image_size=(6, 10), max_epochs=1).fit(X, y)
    assert model.shape_in_ == (1, 6, 10)
    assert len(model.predict([X[0], X[1][:, :4]])) == 2


def test_a_fitted_estimator_can_be_pickled_and_cloned(fitted, images):
    X = images[0]
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)


def test_warm_start_and_partial_fit_continue_the_training(images):
    X, y = images
    model = make(warm_start=True, max_epochs=1).fit(X, y)
    loss = model.loss_curve_[0]
    assert model.set_params(max_epochs=3, batch_size=20).fit(X, y).loss_curve_[-1] < loss
    assert (model.n_iter_, len(model.loss_curve_)) == (3, 4)
    parts = make(lr=0.01)
    for _ in range(4):
        parts.partial_fit(X[:150], y[:150], classes=np.unique(y))
        parts.partial_fit(X[150:], y[150:])
    assert parts.n_iter_ == 8
    assert parts.score(X, y) > 0.5


def test_grid_search_and_cross_validation(images):
    X, y = images
    assert len(cross_val_score(make(max_epochs=1), X, y, cv=2)) == 2
    search = GridSearchCV(make(), {"lr": [1e-6, 0.01]}, cv=2).fit(X, y)
    assert search.best_params_ == {"lr": 0.01}
    assert len(cross_val_score(make(max_epochs=1), list(X), y, cv=2)) == 2


def test_mixupe_search_cv(images):
    X, y = images
    search = MixupESearchCV(make(max_epochs=1), n_trials=2, cv=2, random_state=0)
    assert search.fit(X, y).best_estimator_.shape_in_ == (1, 8, 8)
    assert {"alpha", "eta"} <= set(search.best_params_)


def test_manifold_mixup_mixes_at_the_stages_of_the_module(images):
    X, y = images
    model = make(mix_at="hidden", method="mixup", max_epochs=4, batch_size=20).fit(X, y)
    assert model.score(X, y) > 0.5
    with pytest.raises(ValueError, match="expected a module with at least two 'stages'"):
        make(mix_at="hidden", module=Plain, module_params=None).fit(X, y)


def test_multi_label_images_are_learned(images):
    X, y = images
    several = np.column_stack([np.isin(y, ["one", "two"]), y == "zero"]).astype(int)
    model = make(max_epochs=4, batch_size=20).fit(X, several)
    assert model.predict(X).shape == (300, 2)
    assert (model.predict(X) == several).mean() > 0.8


# BatchNorm: what the single pass changes, and what two passes do not.


def statistics(model):
    buffers = model.net_.module_.named_buffers()
    return {name: buffer.clone() for name, buffer in buffers}


def one_step(images, **params):
    X, y = images
    return make(max_epochs=1, batch_size=300, **params).fit(X, y)


def test_two_passes_update_running_statistics_as_plain_mixup(images):
    """After the first step the weights differ, and so must the statistics of later ones."""
    mixup = statistics(one_step(images, method="mixup"))
    two = statistics(one_step(images, single_pass=False, eta=0.1))
    assert mixup.keys() == two.keys()
    assert any("running_mean" in name for name in mixup)
    for name, buffer in mixup.items():
        assert torch.equal(buffer, two[name]), name


def test_a_single_pass_has_the_statistics_of_mixed_and_clean_images_together(images):
    mixup = statistics(one_step(images, method="mixup"))
    one = statistics(one_step(images, eta=0.1))
    assert any(not torch.equal(buffer, one[name]) for name, buffer in mixup.items())
    # The same by hand: the first norm sees the stem's output of both kinds of images.
    torch.manual_seed(0)
    module = PreActResNet(10, n_channels=1, image_size=(8, 8), **TINY).double()
    inputs = torch.randn(300, 1, 8, 8, dtype=torch.float64)
    criterion = MixupELoss(alpha=1.0, eta=0.1, random_state=0)
    draw = criterion.draw(300)
    criterion(module.train(), inputs, torch.zeros(300, dtype=torch.long), draw=draw)
    mixed = draw.lam * inputs + (1 - draw.lam) * inputs[torch.from_numpy(draw.partner)]
    both = module.stages[0](torch.cat([mixed, inputs]))
    norm = next(layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d))
    torch.testing.assert_close(norm.running_mean, 0.1 * both.mean((0, 2, 3)))
    variance = both.var((0, 2, 3))
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * variance)


# Invalid input.

INVALID = {
    "another size than in fit": (
        lambda model, X: model.predict(X[:, :6]),
        r"Got X of shape \(1, 6, 8\) per sample \(channels, height, width\), but expected \(1, 8, 8\), as in fit.",
    ),
    "another number of channels than in fit": (
        lambda model, X: model.predict(np.repeat(X[..., None], 3, axis=3)),
        r"Got X of shape \(3, 8, 8\) per sample .*, but expected \(1, 8, 8\), as in fit.",
    ),
    "no labels": (
        lambda model, X: clone(model).fit(X),
        "Got y=None and an X without labels, but expected labels in y, or a folder of class folders, or a Dataset of pairs",
    ),
    "a dataset without labels": (
        lambda model, X: clone(model).fit(Pairs(X, [None] * len(X))),
        "Got y=None and an X without labels",
    ),
    "a dataset in which one label is missing": (
        lambda model, X: clone(model).fit(Pairs(X, [0, 1, None] * 100)),
        r"Got X\[2\] with 0 labels, but expected 1 as X\[0\] has",
    ),
    "one label for all": (
        lambda model, X: clone(model).fit(X, 3),
        "Input should have at least 1 dimension",
    ),
    "validation labels of another number": (
        lambda model, X: clone(model).fit(X, np.arange(300) % 2, X_val=X[:5], y_val=[0, 1]),
        r"inconsistent numbers of samples: \[5, 2\]",
    ),
    "an unknown argument of the module": (
        lambda model, X: (
            clone(model).set_params(module_params={"widht": 8}).fit(X, np.arange(300) % 2)
        ),
        "Got module_params with 'widht', but expected arguments of .*: n_outputs, .*width, ",
    ),
    "an unknown argument of the optimizer": (
        lambda model, X: (
            clone(model).set_params(optimizer_params={"beta": 8}).fit(X, np.arange(300) % 2)
        ),
        "Got optimizer_params with 'beta', but expected arguments of Adam: params, lr, betas, ",
    ),
    "a missing label": (
        lambda model, X: clone(model).fit(X, ["a", "b", None] * 100),
        "Got y=None at row 2, but expected a label for every sample.",
    ),
    "a label that is no number": (
        lambda model, X: clone(model).fit(X, np.where(np.arange(300) == 7, np.nan, 1.0)),
        "Input y contains NaN.",
    ),
    "an augmentation that cuts": (
        lambda model, X: (
            clone(model).set_params(augment=lambda batch: batch[..., :6]).fit(X, np.arange(300) % 2)
        ),
        r"Got a batch of shape \(20, 1, 8, 6\) from augment, but expected a tensor of shape \(20, 1, 8, 8\)",
    ),
    "stages that are not the forward": (
        lambda model, X: (
            clone(model)
            .set_params(module=Misleading, module_params=None, mix_at="hidden")
            .fit(X, np.arange(300) % 2)
        ),
        "Got a Misleading whose 'stages', or 'encode' and 'head', do not compute its output",
    ),
    "too few labels": (
        lambda model, X: clone(model).fit(X, [1, 2]),
        r"inconsistent numbers of samples: \[300, 2\]",
    ),
    "an invalid switch": (
        lambda model, X: clone(model).set_params(amp="yes").fit(X, np.arange(300) % 2),
        "Got amp='yes', but expected True, False or 'auto'.",
    ),
    "an invalid number of workers": (
        lambda model, X: clone(model).set_params(n_workers=-1).fit(X, np.arange(300) % 2),
        "Got n_workers=-1, but expected an integer >= 0.",
    ),
    "an unknown network": (
        lambda model, X: clone(model).set_params(module="vgg").fit(X, np.arange(300) % 2),
        "Got module='vgg', but expected one of 'lenet', 'vgg11',",
    ),
    "an unknown augmentation": (
        lambda model, X: clone(model).set_params(augment="rotate").fit(X, np.arange(300) % 2),
        "Got augment='rotate', but expected",
    ),
    "images too small for a named network": (
        lambda model, X: (
            clone(model).set_params(module="vgg11", module_params=None).fit(X, np.arange(300) % 2)
        ),
        r"Got image_size=\(8, 8\), but VGG",
    ),
    "several values of alpha": (
        lambda model, X: clone(model).set_params(alpha=(0.1, 1.0)).fit(X, np.arange(300) % 2),
        r"Got alpha=\(0.1, 1.0\), but expected a number >= 0.",
    ),
}


@pytest.mark.parametrize("what", INVALID)
def test_wrong_input_is_refused(fitted, images, what):
    act, message = INVALID[what]
    with pytest.raises((ValueError, TypeError), match=message):
        act(fitted, images[0])
