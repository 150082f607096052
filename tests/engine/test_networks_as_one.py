"""Networks that train together equal, to the bit, networks that train alone."""

import itertools
import threading

import numpy as np
import pytest
import torch
from paper import paper_classifier, paper_regressor
from sklearn.base import clone

from mixupe_sklearn import MixupEClassifier, fit_many
from mixupe_sklearn._engine import trainer as _trainer
from mixupe_sklearn._method.formulas import (
    LossMemory,
    fused_loss,
    glm_loss,
    logit_penalty,
    loss_scale,
)
from mixupe_sklearn.modules import MLP

N_ROWS = 61  # batches of 20, and a last one of a single sample


def rows(head):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, 5)).astype(np.float32)
    scores = X @ rng.normal(size=(5, 3))
    targets = {
        "softmax": scores.argmax(axis=1),
        "single logit": (scores[:, 0] > 0).astype(int),
        "labels": (scores > 0).astype(int),
        "number": scores[:, 0].astype(np.float32),
        "numbers": scores[:, :2].astype(np.float32),
    }
    return X, targets[head], rng.integers(0, 3, size=N_ROWS).astype(float)


def estimator_of(head, **params):
    params = {"batch_size": 20, "max_epochs": 2, "alpha": 0.6, "eta": 0.4, **params}
    if head in ("number", "numbers"):
        return paper_regressor(**{"n_members": 1, "early_stopping": False, **params})
    if head == "single logit":
        params["module_params"] = {**params.get("module_params", {}), "n_outputs": 1}
    return paper_classifier(**params)


def weights_of(estimator):
    nets = getattr(estimator, "nets_", None) or [estimator.net_]
    return [
        torch.cat([weight.detach().flatten() for weight in net.module_.parameters()])
        for net in nets
    ]


def assert_same_bits(one, other, X):
    for mine, theirs in zip(weights_of(one), weights_of(other), strict=True):
        assert torch.equal(mine, theirs)
    assert np.array_equal(one.predict(X), other.predict(X))
    assert one.loss_curve_ == other.loss_curve_


@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"lam_per": "sample", "penalty_fraction": 0.4},
        {"mix_at": "hidden"},
        {"method": "mixup"},
        {"method": "erm"},
        {"method": "erm+penalty"},
        {"module_params": {"d_hidden": (7, 3), "activation": "silu", "input_scale": True}},
        {"module_params": {"d_hidden": (9,), "activation": "gelu", "dropout": 0.3}},
        {"module_params": {"d_hidden": (), "bias": False}},
        {"ema_decay": 0.9, "early_stopping": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("head", ["softmax", "single logit", "labels", "number", "numbers"])
def test_together_equals_alone_to_the_bit(head, params, is_weighted):
    X, y, weight = rows(head)
    weight = weight if is_weighted else None
    params = {"module_params": {"d_hidden": (7, 5)}, **params}
    members = [estimator_of(head, **params, random_state=seed) for seed in range(5)]
    alone = [clone(member).fit(X, y, sample_weight=weight) for member in members]
    together = fit_many(members, X, y, sample_weight=weight)
    for member, single in zip(together, alone, strict=True):
        assert_same_bits(member, single, X)


@pytest.mark.parametrize("seed", range(20))
def test_ensembles_of_any_shape_equal_those_alone(seed):
    """Sizes that leave a member at unaligned memory, or a block of entries incomplete."""
    rng = np.random.default_rng(seed)
    n_rows, n_features, n_outputs = rng.integers([30, 1, 2], [200, 40, 24])
    X = rng.normal(size=(n_rows, n_features)).astype(np.float32)
    y = rng.integers(0, n_outputs, size=n_rows)
    layers = {
        "d_hidden": tuple(rng.integers(1, 40, size=rng.integers(1, 4)).tolist()),
        "activation": str(rng.choice(["relu", "gelu", "silu"])),
        "dropout": float(rng.choice([0.0, 0.2])),
        "input_scale": bool(rng.integers(2)),
    }
    params = {
        "module_params": layers,
        "batch_size": int(rng.integers(5, 70)),
        "mix_at": str(rng.choice(["input", "hidden"])),
        "n_members": int(rng.integers(1, 5)),
    }
    given = {"max_epochs": 2, "min_steps": 0, "n_threads": 1, **params}
    members = [MixupEClassifier(**given, random_state=number) for number in range(4)]
    alone = [clone(member).fit(X, y) for member in members]
    for member, single in zip(fit_many(members, X, y), alone, strict=True):
        assert_same_bits(member, single, X)
        # The default stops early, by the losses of held-out samples.
        losses = [[row["valid_loss"] for row in one.history_] for one in (member, single)]
        assert losses[0] == losses[1]


@pytest.mark.parametrize(("most", "many"), [(1, 8), (2, 8), (3, 1), (4, 8), (100, 8)])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_bits_depend_neither_on_groups_nor_on_threads(monkeypatch, most, many, n_threads):
    X, y, _ = rows("softmax")
    params = {
        "n_members": 9, "max_epochs": 2, "min_steps": 0, "batch_size": 20, "random_state": 0,
        "module_params": {"d_hidden": (11, 7), "dropout": 0.2},
    }  # fmt: skip
    expected = MixupEClassifier(**params, n_threads=1).fit(X, y)
    monkeypatch.setattr(_trainer, "GROUP_MEMBERS", most)
    monkeypatch.setattr(_trainer, "MANY_GROUPS", many)
    found = MixupEClassifier(**params, n_threads=n_threads).fit(X, y)
    assert_same_bits(found, expected, X)


@pytest.mark.parametrize("n_together", range(1, 10))
def test_any_number_of_networks(n_together):
    X, y, _ = rows("softmax")
    seeds = range(n_together)
    members = [estimator_of("softmax", random_state=seed) for seed in seeds]
    alone = clone(members[-1]).fit(X, y)
    assert_same_bits(fit_many(members, X, y)[-1], alone, X)


def test_members_that_end_early_leave_the_others_as_they_are():
    X, y, _ = rows("softmax")
    lengths = [5, 1, 3, 5, 2, 4, 5, 1, 5]
    members = [
        estimator_of("softmax", max_epochs=n, random_state=seed) for seed, n in enumerate(lengths)
    ]
    alone = [clone(member).fit(X, y) for member in members]
    for member, single in zip(fit_many(members, X, y), alone, strict=True):
        assert_same_bits(member, single, X)


def test_fits_with_dropout_in_threads_equal_fits_alone():
    X, y, _ = rows("softmax")
    params = {"module_params": {"d_hidden": (7,), "dropout": 0.4}, "n_threads": 1}
    estimators = [estimator_of("softmax", **params, random_state=seed) for seed in range(4)]
    alone = [clone(estimator).fit(X, y) for estimator in estimators]
    threads = [threading.Thread(target=estimator.fit, args=(X, y)) for estimator in estimators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(estimators, alone, strict=True):
        assert_same_bits(one, other, X)


def test_a_sequential_of_known_layers_trains_in_the_engine(monkeypatch):
    X, y, _ = rows("softmax")

    def sequential(n_features, n_outputs):
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(n_features, 7),
            torch.nn.ReLU(),
            torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.ReLU()),
            torch.nn.Linear(5, n_outputs),
        )

    def mlp(n_features, n_outputs):
        torch.manual_seed(0)
        return MLP(n_features, n_outputs, d_hidden=(7, 5))

    n_epochs = []
    run_epoch = _trainer.Trainer.run_epoch
    monkeypatch.setattr(
        _trainer.Trainer,
        "run_epoch",
        lambda self, *args: (n_epochs.append(1), run_epoch(self, *args))[1],
    )
    one, other = (
        estimator_of("softmax", module=module, random_state=0) for module in (sequential, mlp)
    )
    assert_same_bits(one.fit(X, y), other.fit(X, y), X)
    assert len(n_epochs) == 4


def test_a_network_that_does_not_fit_into_memory_gets_a_sentence(monkeypatch):
    monkeypatch.setattr(_trainer, "memory_of_machine", lambda: 2**20)
    X, y, _ = rows("softmax")
    sentence = (
        r"Got a network of [\d,]+ weights with batches of 20 samples, which need [\d.]+ GiB to "
        r"train, but this machine has 0\.0 GiB: lower d_hidden or batch_size\."
    )
    with pytest.raises(MemoryError, match=sentence):
        estimator_of("softmax", module_params={"d_hidden": (500, 500)}).fit(X, y)


def test_weights_that_do_not_fit_into_memory_get_a_sentence():
    X, y, _ = rows("softmax")
    sentence = (
        r"Got module_params=.*, whose weights do not fit into the memory of this machine: lower "
        r"d_hidden or the number of features\."
    )
    with pytest.raises(MemoryError, match=sentence):  # two petabytes
        estimator_of("softmax", module_params={"d_hidden": (2**24, 2**25)}).fit(X, y)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    ("head", "n_outputs", "has_mass", "penalised"),
    list(
        itertools.product(
            ["softmax", "sigmoid", "squared"],
            [1, 3, 20],
            [False, True],
            ["none", "the same samples", "others"],
        )
    ),
)
def test_the_fused_loss_equals_the_formulas(head, n_outputs, has_mass, penalised):
    n_members, n_rows, n_clean = 2, 6, {"none": 0, "the same samples": 6, "others": 4}[penalised]
    n_extra = n_clean if penalised == "others" else 0
    logits = torch.randn(n_members, n_rows + n_extra, n_outputs)
    mass = torch.rand(n_members, n_rows) if has_mass else None
    plain = torch.rand(n_members, n_rows + n_extra, n_outputs)
    plain /= plain.sum(dim=-1, keepdim=True)
    targets = plain.clone()
    if mass is not None:
        targets[:, :n_rows] *= mass[..., None]
    weights = torch.rand(n_members, n_clean, 1) if n_clean else None
    memory = LossMemory(logits, n_rows, n_clean)
    clean = plain[:, :n_rows] if penalised == "the same samples" else None
    found_loss, found_penalty = fused_loss(memory, targets, mass, clean, weights, head)

    own = logits.clone().requires_grad_()
    loss = glm_loss(own[:, :n_rows], targets[:, :n_rows], mass, head)[0].sum(dim=-1)
    total = loss
    if weights is not None:
        q, _ = logit_penalty(own[:, -n_clean:], plain[:, -n_clean:], head)
        penalty = (q.abs() * weights[..., 0]).sum(dim=-1)
        torch.testing.assert_close(found_penalty, penalty, rtol=1e-10, atol=1e-10)
        total = loss_scale(loss, loss + penalty) * (loss + penalty)
    (expected,) = torch.autograd.grad(total.sum() / n_rows, own)
    torch.testing.assert_close(found_loss, loss, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(memory.grad, expected, rtol=1e-10, atol=1e-10)
