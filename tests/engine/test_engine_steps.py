"""Epochs of the engine equal epochs by autograd, for callbacks and subclasses too."""

import copy
import pickle

import numpy as np
import pytest
import torch
from paper import paper_classifier, paper_regressor
from sklearn.base import clone
from skorch.callbacks import Callback, EpochScoring, GradientNormClipping, LRScheduler
from skorch.dataset import Dataset
from skorch.hf import AccelerateMixin

from mixupe_sklearn import MixupELoss, MixupENet
from mixupe_sklearn._engine import trainer as _trainer
from mixupe_sklearn._engine.trainer import Stepper, Trainer
from mixupe_sklearn._estimators import base as _base
from mixupe_sklearn._net import net as _net
from mixupe_sklearn._net.net import why_not_engine
from mixupe_sklearn.modules import MLP

SMALL = {"module_params": {"d_hidden": (7, 5)}, "batch_size": 40, "max_epochs": 2, "lr": 0.01}


@pytest.fixture
def by_autograd(monkeypatch):
    """Fit with autograd, step by step, as with a callback for each batch."""

    def fit(estimator, *args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(_base, "why_not_together", lambda member, settings: "forced by the test")
            patch.setattr(_net, "listens", lambda net: True)
            return estimator.fit(*args, **kwargs)

    return fit


@pytest.fixture
def has_run(monkeypatch):
    """Return a function that reports whether the engine has run an epoch."""
    seen, run_epoch = [], Trainer.run_epoch

    def recorded(self, *args):
        seen.append(self)
        return run_epoch(self, *args)

    monkeypatch.setattr(Trainer, "run_epoch", recorded)
    return lambda: bool(seen)


def rows(n_samples=130, n_features=6, n_classes=3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_samples, n_features))
    y = (X @ rng.normal(size=(n_features, n_classes))).argmax(axis=1)
    return X, y, rng.integers(0, 3, size=n_samples)


def assert_same(one, other, tolerance=1e-9):
    close = {"rtol": tolerance, "atol": tolerance}
    for first, second in [
        (one.net_.module_.state_dict(), other.net_.module_.state_dict()),
        *zip(
            one.net_.optimizer_.state_dict()["state"].values(),
            other.net_.optimizer_.state_dict()["state"].values(),
            strict=True,
        ),
    ]:
        assert first.keys() == second.keys()
        for name, value in first.items():
            torch.testing.assert_close(value, second[name], **close)
    for mine, theirs in zip(one.history_, other.history_, strict=True):
        assert set(mine) == set(theirs)
        names = [name for name in mine if name != "dur"]
        values = [theirs[n] for n in names]
        assert [mine[n] for n in names] == pytest.approx(values, rel=tolerance, abs=tolerance)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("most", [1000, 0], ids=["inputs are mixed", "states are mixed"])
@pytest.mark.parametrize("fraction", [1.0, 0.3])
@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "params",
    [
        {"eta": 0.5, "alpha": 0.7},
        {"eta": 0.5, "alpha": 0.7, "lam_per": "sample"},
        {"eta": 0.5, "alpha": 0.7, "mix_at": "hidden"},
        {"eta": 0.5, "alpha": 0.7, "mix_at": "hidden", "lam_per": "sample"},
        {"method": "mixup", "alpha": 0.7},
        {"method": "erm"},
        {"method": "erm+penalty", "alpha": 0.7, "eta": 0.5},
        {"method": "erm+penalty", "alpha": 0.7, "eta": 0.5, "mix_at": "hidden"},
    ],
    ids=lambda params: "-".join(str(value) for value in params.values()),
)
def test_an_epoch_of_the_engine_equals_autograd(
    monkeypatch, by_autograd, has_run, params, is_weighted, fraction, most
):
    monkeypatch.setattr(_trainer, "MOST_MIXED", most)
    X, y, weight = rows()
    weight = weight if is_weighted else None
    estimator = paper_classifier(**SMALL, **params, penalty_fraction=fraction, random_state=0)
    expected = by_autograd(clone(estimator), X, y, weight)
    assert not has_run()
    assert_same(estimator.fit(X, y, weight), expected)
    assert has_run()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "tanh", "identity"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("d_hidden", [(), (4,), (5, 4, 3)], ids=str)
def test_the_engine_runs_every_plain_mlp_and_head(by_autograd, has_run, d_hidden, bias, activation):
    X, y, weight = rows()
    shape = {"d_hidden": d_hidden, "activation": activation, "bias": bias}
    params = {**SMALL, "module_params": shape, "eta": 0.4, "alpha": 0.6, "random_state": 0}
    labels = np.column_stack([y == 0, y == 1]).astype(int)
    for estimator, targets in [
        (paper_classifier(**params), y),
        (paper_classifier(**params), labels),
        (paper_regressor(**params), X @ X[0]),
    ]:
        expected = by_autograd(clone(estimator), X, targets, weight)
        assert_same(estimator.fit(X, targets, weight), expected)
    assert has_run()


def test_single_precision_agrees_with_autograd_to_a_millionth(by_autograd, digits):
    X, y = digits
    estimator = paper_classifier(max_epochs=1, random_state=0)
    expected = by_autograd(clone(estimator), X, y)
    names = ("train_loss", "train_mixup_loss", "train_penalty")
    mine, theirs = ([fit.history_[0][n] for n in names] for fit in (estimator.fit(X, y), expected))
    assert mine == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
        (torch.optim.AdamW, {"weight_decay": 0.1, "betas": (0.8, 0.9), "eps": 1e-6}),
        (torch.optim.Adam, {"weight_decay": 0.5, "decoupled_weight_decay": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
    ],
    ids=["adam", "adam with options", "adamw", "decoupled", "sgd"],
)
def test_steps_without_torchs_overhead_are_equal_to_the_bit(optimizer, options):
    def run(step_of):
        torch.manual_seed(0)
        weights = torch.randn(1000)
        made = optimizer([weights], lr=0.01, fused=True, **options)
        step = step_of(made)
        for _ in range(5):
            weights.grad = torch.randn(1000)
            step()
        return weights, made.state[weights]

    expected, state = run(lambda made: made.step)
    weights, own_state = run(Stepper)
    assert torch.equal(weights, expected)
    for name, value in state.items():
        assert torch.equal(own_state[name], value), name


class Listener(Callback):
    """Counts batches and changes nothing."""

    def on_train_begin(self, net, **kwargs):
        self.n_batches_ = 0

    def on_batch_end(self, net, training, **kwargs):
        self.n_batches_ += training


@pytest.mark.parametrize(
    ("callback", "hears"),
    [
        (Listener(), True),
        (GradientNormClipping(1.0), True),
        (LRScheduler("StepLR", step_size=1, step_every="batch"), True),
        (EpochScoring("accuracy", on_train=True, name="train_acc"), True),
        (LRScheduler("StepLR", step_size=1, gamma=0.5), False),
        (EpochScoring("accuracy", name="acc"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Callback) else str(value),
)
def test_callbacks_with_batch_events_get_them(by_autograd, has_run, callback, hears):
    X, y, _ = rows()
    estimator = paper_classifier(**SMALL, callbacks=[callback], early_stopping=True, random_state=0)
    expected = by_autograd(clone(estimator), X, y)
    estimator.fit(X, y)
    assert has_run() is not hears
    assert_same(estimator, expected, tolerance=1e-5 if not hears else 0.0)


def test_a_callback_gets_every_batch_event():
    X, y, _ = rows()
    estimator = paper_classifier(**SMALL, callbacks=[("listener", Listener())]).fit(X, y)
    assert dict(estimator.net_.callbacks_)["listener"].n_batches_ == 2 * 4


class Meddler(Callback):
    """Changes a net between epochs as users do: halves weights, resets the optimizer."""

    def __init__(self, kind):
        self.kind = kind

    def on_epoch_end(self, net, **kwargs):
        if len(net.history) == 3:
            return
        if self.kind == "weights in place":
            with torch.no_grad():
                net.module_.stages[0][0].weight.mul_(0.5)
        elif self.kind == "new weights":
            net.module_.stages[0][0].weight.data = 0.5 * net.module_.stages[0][0].weight.data
        elif self.kind == "optimizer state":
            state = copy.deepcopy(net.optimizer_.state_dict())
            state["state"][0]["exp_avg"].zero_()
            net.optimizer_.load_state_dict(state)
        elif self.kind == "new optimizer":
            net.initialize_optimizer()
        elif self.kind == "learning rate":
            net.optimizer_.param_groups[0]["lr"] *= 0.1
        elif self.kind == "eta":
            net.criterion_.eta *= 3
        elif self.kind == "freeze":
            net.module_.stages[0][0].weight.requires_grad_(False)
        elif self.kind == "freeze for an epoch":
            net.module_.stages[0][0].weight.requires_grad_(len(net.history) == 2)
        elif self.kind == "method":
            net.criterion_.method = "erm+penalty"
        elif self.kind == "penalty":
            net.criterion_.penalty = "directional"
        elif self.kind == "activation":
            net.module_.stages[0][1] = torch.nn.Tanh()
            net.module_.stages[1][1] = torch.nn.Tanh()
        elif self.kind == "a step of its own":
            net.optimizer_.step()


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize(
    "kind",
    [
        *("weights in place", "new weights", "optimizer state", "new optimizer"),
        *("learning rate", "eta", "freeze", "freeze for an epoch", "method", "penalty"),
        *("activation", "a step of its own"),
    ],
)
def test_changes_by_a_callback_between_epochs_count(by_autograd, has_run, kind, n_members):
    X, y, _ = rows()
    params = {**SMALL, "max_epochs": 3, "eta": 0.2, "n_members": n_members, "random_state": 0}
    estimator = paper_classifier(**params, callbacks=[Meddler(kind)])
    expected = by_autograd(clone(estimator), X, y)
    assert not has_run()
    untouched = paper_classifier(**params).fit(X, y)
    assert_same(estimator.fit(X, y), expected)
    assert has_run()
    weights, plain = (
        fit.net_.module_.stages[-1].weight.detach().numpy() for fit in (estimator, untouched)
    )
    assert not np.allclose(weights, plain)


class Copier(Callback):
    """Keeps a pickle and a deep copy of the module after each epoch."""

    def on_epoch_end(self, net, **kwargs):
        self.pickled = pickle.dumps(net.module_)
        self.copied = copy.deepcopy(net.module_)
        self.state = copy.deepcopy(net.optimizer_.state_dict())
        self.moments = copy.deepcopy(net.optimizer_.state_dict()["state"][0]["exp_avg"])


def test_between_epochs_the_net_has_the_current_weights_and_moments():
    X, y, _ = rows()
    estimator = paper_classifier(**SMALL, callbacks=[("copier", Copier())]).fit(X, y)
    copier = dict(estimator.net_.callbacks_)["copier"]
    final = estimator.net_.module_.state_dict()
    for module in (pickle.loads(copier.pickled), copier.copied):
        for name, value in module.state_dict().items():
            assert torch.equal(value, final[name])
    state = estimator.net_.optimizer_.state_dict()["state"][0]
    assert torch.equal(copier.moments, state["exp_avg"])


def test_after_training_every_weight_and_moment_has_its_own_memory():
    X, y, _ = rows()
    net = paper_classifier(**SMALL).fit(X, y).net_
    tensors = [*net.module_.parameters()]
    for state in net.optimizer_.state.values():
        tensors += [state["exp_avg"], state["exp_avg_sq"]]
    for tensor in tensors:
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        assert not tensor.is_inference()
    assert len({tensor.data_ptr() for tensor in tensors}) == len(tensors)


def test_a_copy_from_between_epochs_continues_by_autograd_as_the_net_does(monkeypatch):
    X, y, _ = rows()
    estimator = paper_classifier(**SMALL, callbacks=[("copier", Copier())], random_state=0)
    net = estimator.fit(X, y).net_
    copied, state = MLP(6, 3, d_hidden=(7, 5)), dict(net.callbacks_)["copier"].state
    optimizer = torch.optim.Adam(copied.parameters())
    optimizer.load_state_dict(state)
    copied(torch.ones(1, 6)).sum().backward()
    optimizer.step()
    assert {float(entry["step"]) for entry in optimizer.state.values()} == {2 * 4 + 1}


def test_the_last_gradients_remain_after_training(by_autograd):
    X, y, _ = rows()
    estimator = paper_classifier(**SMALL, random_state=0)
    expected = by_autograd(clone(estimator), X, y).net_.module_.parameters()
    for mine, theirs in zip(estimator.fit(X, y).net_.module_.parameters(), expected, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_inputs_of_another_width_raise_as_with_autograd():
    X, y, _ = rows()
    net = MixupENet(MLP, module__n_features=7, module__n_outputs=3, verbose=0)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        net.fit(X.astype("float32"), y)


def test_unused_samples_may_have_any_label():
    X, y, _ = rows()
    dataset = Dataset(X.astype("float32"), np.where(np.arange(len(y)) < 100, y, -1))
    net = MixupENet(
        MLP, module__n_features=6, module__n_outputs=3, train_split=None, max_epochs=1, verbose=0
    )
    net.fit(torch.utils.data.Subset(dataset, range(100)), None)
    assert len(net.history) == 1


class OwnStep(MixupENet):
    """A net whose optimizer takes no steps."""

    def _step_optimizer(self, step_fn):
        step_fn()


def test_a_method_of_a_subclass_is_called(has_run):
    X, y, _ = rows()
    net = OwnStep(MLP, module__n_features=6, module__n_outputs=3, max_epochs=1, verbose=0)
    before = copy.deepcopy(net.initialize().module_.state_dict())
    net.partial_fit(X.astype("float32"), y)
    assert not has_run()
    for name, value in net.module_.state_dict().items():
        assert torch.equal(value, before[name])


class Accelerated(AccelerateMixin, MixupENet):
    """A net whose steps are skorch's own for several devices."""


def test_steps_of_skorchs_other_classes_run():
    net = object.__new__(Accelerated)
    vars(net)["callbacks_"] = []
    assert _net.listens(net)


def test_an_interrupt_restores_all_parameters(monkeypatch):
    X, y, _ = rows()
    step, calls = Stepper.__call__, []

    def interrupted(self, number=0):
        calls.append(self)
        if len(calls) == 6:
            raise KeyboardInterrupt
        step(self, number)

    monkeypatch.setattr(Stepper, "__call__", interrupted)
    net = MixupENet(
        MLP,
        module__n_features=6,
        module__n_outputs=3,
        optimizer=torch.optim.Adam,
        batch_size=40,
        max_epochs=5,
        train_split=None,
        verbose=0,
    ).fit(X.astype("float32"), y)
    assert len(net.history) == 2
    weight = net.module_.stages[0][0].weight
    assert weight.untyped_storage().nbytes() == weight.numel() * 4
    assert net.partial_fit(X.astype("float32"), y).predict(X.astype("float32")).shape == y.shape


def test_a_plain_net_records_each_batch():
    X, y, _ = rows()
    net = MixupENet(
        MLP,
        module__n_features=6,
        module__n_outputs=3,
        batch_size=40,
        max_epochs=2,
        train_split=None,
        verbose=0,
    ).fit(X.astype("float32"), y)
    losses, sizes = (net.history[-1, "batches", :, n] for n in ("train_loss", "train_batch_size"))
    assert sizes == [40, 40, 40, 10]
    assert net.history[-1, "train_loss"] == pytest.approx(np.average(losses, weights=sizes))


def test_a_non_finite_loss_names_its_epoch_and_batch():
    X, y, _ = rows()
    with pytest.raises(
        FloatingPointError, match=r"non-finite in epoch 1, batch [2-4]: mixup_loss="
    ):
        paper_classifier(**{**SMALL, "optimizer": "sgd", "lr": 1e30}).fit(X, y)


class OwnLoss(MixupELoss):
    """A loss of the user."""


class LastBatchNorm(torch.nn.Module):
    """A user's module that normalises its input."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.BatchNorm1d(n_features), torch.nn.Linear(n_features, n_outputs)
        )

    def forward(self, X):
        return self.layers(X)


@pytest.mark.parametrize("params", [{}, {"single_pass": False}, {"penalty_fraction": 0.4}], ids=str)
def test_epochs_without_batch_events_change_no_bit(by_autograd, has_run, params):
    X, y, weight = rows()
    estimator = paper_classifier(module=LastBatchNorm, batch_size=40, max_epochs=2, random_state=0)
    estimator.set_params(**params)
    expected = by_autograd(clone(estimator), X, y, weight)
    assert_same(estimator.fit(X, y, weight), expected, tolerance=0.0)
    assert not has_run()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"module__dropout": 0.1}, None),
        ({"module__input_scale": True}, None),
        ({"criterion__mix_at": "hidden"}, None),
        ({"criterion__method": "mixup", "criterion__penalty": "directional"}, None),
        ({"module__batch_norm": True}, "not made of layers that know their gradient"),
        ({"criterion__penalty": "directional"}, "the penalty is directional"),
        (
            {"criterion__penalty": "directional", "criterion__method": "erm+penalty"},
            "the penalty is directional",
        ),
        ({"criterion__penalty_order": 2}, "the penalty has a second-order term"),
        ({"criterion__mix_at": "hidden", "module__d_hidden": ()}, "no hidden state to mix"),
        ({"criterion": OwnLoss}, "the criterion is not MixupELoss"),
        ({"optimizer": torch.optim.LBFGS}, "optimizer is not a plain one"),
        ({"optimizer": torch.optim.Adam, "optimizer__capturable": True}, "unusual option"),
        (
            lambda net: net.module_.stages[0].register_forward_hook(lambda *args: None),
            "the module has hooks",
        ),
        (lambda net: net.module_.stages[0][0].bias.requires_grad_(False), "a weight is frozen"),
        (
            lambda net: torch.nn.utils.parametrizations.weight_norm(net.module_.stages[0][0]),
            "not made of layers that know their gradient",
        ),
        (
            lambda net: net.optimizer_.register_step_post_hook(lambda *args: None),
            "the optimizer has hooks",
        ),
        (lambda net: net.module_.compile(backend="eager"), "the module is compiled"),
        (
            lambda net: net.module_.stages[0][0].weight.register_post_accumulate_grad_hook(print),
            "a weight has hooks",
        ),
        (lambda net: net.module_.stages[0].pop(1), None),
        (lambda net: net.module_.stages[0].__setitem__(1, torch.nn.Tanh()), None),
        (
            lambda net: net.module_.stages.__setitem__(1, net.module_.stages[0]),
            "not made of layers that know their gradient",
        ),
        (
            lambda net: net.module_.stages[-1].register_parameter("bias", None),
            "the optimizer does not train all weights",
        ),
        (
            lambda net: net.module_.stages[0].__setitem__(1, torch.nn.GELU(approximate="tanh")),
            "not made of layers that know their gradient",
        ),
        (lambda net: net.module_.bfloat16(), "not of single or double precision"),
        (lambda net: net.module_.double(), "not rows of the module's floating type"),
    ],
)
def test_every_net_that_needs_autograd_has_a_reason(change, reason):
    X, y, _ = rows()
    params = change if isinstance(change, dict) else {}
    net = MixupENet(MLP, module__n_features=6, module__n_outputs=3, **params).initialize()
    if callable(change):
        change(net)
    iterator = net.get_iterator(net.get_dataset(X.astype("float32"), y), training=True)
    found = why_not_engine(net, iterator)
    assert found is None if reason is None else reason in found


def test_a_callback_that_changes_a_shape_gets_a_sentence():
    class Grow(Callback):
        def on_epoch_end(self, net, **kwargs):
            first = net.module_.stages[0][0]
            first.weight.data = torch.zeros(9, 6)

    X, y, _ = rows()
    with pytest.raises(
        ValueError,
        match=r"Got a callback that changed stages\.0\.0\.weight of the module from the shape "
        r"\(7, 6\) to \(9, 6\), but expected the same shape: callbacks may change values only\.",
    ):
        paper_classifier(**SMALL, callbacks=[Grow()]).fit(X, y)
