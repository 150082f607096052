"""Programs that run in several processes; ``test_distributed.py`` starts them.

A case holds what to train and how. A test runs the same case in one process.
"""

import gc
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import torch
from skorch.callbacks import Callback, Checkpoint, EpochScoring
from skorch.dataset import Dataset, ValidSplit
from skorch.helper import predefined_split
from torch import nn

from mixupe_sklearn import MixupEImageClassifier, MixupENet
from mixupe_sklearn._distributed.net import DistributedNet
from mixupe_sklearn.callbacks import PolyakAverage, WarmupCosine
from mixupe_sklearn.modules import MLP


class SmallConv(nn.Module):
    """A convolution without BatchNorm."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.last = nn.Linear(4, 3)

    def forward(self, X):
        return self.last(self.conv(X).relu().mean(dim=(2, 3)))


class Idle(nn.Module):
    """A module with a layer that it does not use."""

    def __init__(self):
        super().__init__()
        self.used, self.idle = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, X):
        return self.used(X)


def small_mlp(**params):
    return MLP(5, 3, **{"d_hidden": (8, 6), **params}).double()


def rows(n_rows=23, shape=(5,), dtype="float64"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, *shape)).astype(dtype)
    return X, rng.integers(3, size=n_rows)


# 23 samples in batches of 8: the last batch has 7, which two processes cannot share equally.
CASES = {
    "mixupe": {},
    "mixup": {"criterion__method": "mixup"},
    "erm": {"criterion__method": "erm"},
    "erm with penalty": {"criterion__method": "erm+penalty"},
    "erm with penalty on a fraction": {
        "criterion__method": "erm+penalty",
        "criterion__penalty_fraction": 0.2,
    },
    "a fraction": {"criterion__penalty_fraction": 0.25},
    "a fraction of one sample, two passes": {
        "criterion__penalty_fraction": 0.1,
        "criterion__single_pass": False,
    },
    "a lam for each sample": {"criterion__lam_per": "sample"},
    "weights": {"has_weight": True},
    "weights, a fraction": {"has_weight": True, "criterion__penalty_fraction": 0.4},
    "directional": {"criterion__penalty": "directional"},
    "directional, two passes": {
        "criterion__penalty": "directional",
        "criterion__single_pass": False,
    },
    "a last batch of one sample": {"batch_size": 22},
    "batches of one sample": {"batch_size": 1},
    "adam": {"optimizer": torch.optim.Adam, "lr": 0.01},
    # It runs a batch more than once and soon amplifies rounding errors.
    "lbfgs": {"optimizer": torch.optim.LBFGS, "optimizer__max_iter": 2, "max_epochs": 1},
    "a convolution": {"shape": (1, 6, 6), "dtype": "float32"},
    "input transform": {"noise": 0.1},
    "a loader, erm, in order": {
        **{"is_loaded": True, "n_rows": 24, "criterion__method": "erm"},
        "iterator_train__shuffle": False,
    },
}
# Here partners are found within a shard, or layers see their own shard only.
OTHER_CASES = {
    "hidden": {"criterion__mix_at": "hidden"},
    "hidden, a fraction, weights": {
        "criterion__mix_at": "hidden",
        "criterion__penalty_fraction": 0.25,
        "has_weight": True,
    },
    "hidden, a last batch of one sample": {"criterion__mix_at": "hidden", "batch_size": 22},
    "dropout": {"module": {"dropout": 0.5}},
    "batch norm": {"module": {"batch_norm": True}},
    "batch norm, two passes": {
        "module": {"batch_norm": True},
        "criterion__single_pass": False,
    },
    "a loader": {"is_loaded": True},
    "a loader, erm": {"is_loaded": True, "criterion__method": "erm", "batch_size": 12},
}


# Cases of the image classifier; only the last two have BatchNorm.
SMALL_LENET = {"module": "lenet", "module_params": {"channels": (2, 3), "d_hidden": (5,)}}
IMAGE_CASES = {
    "augmented": {**SMALL_LENET, "augment": "crop-flip", "random_state": 0},
    "stopped early": {
        **{**SMALL_LENET, "early_stopping": True, "n_iter_no_change": 1, "tol": 1.0},
        **{"max_epochs": 9, "random_state": 0, "class_weight": "balanced", "verbose": 1},
    },
    "no seed": SMALL_LENET,
    "a dataset": {**SMALL_LENET, "is_loaded": True, "batch_size": 4, "augment": "flip"},
    "batch norm": {"module_params": {"width": 2, "blocks": (1, 1)}, "random_state": 0},
    "averaged": {
        **{"module_params": {"width": 2, "blocks": (1, 1)}, "random_state": 0, "max_epochs": 9},
        **{"callbacks": [WarmupCosine(), PolyakAverage(rate=0.8)], "lr_schedule": "constant"},
        **{"early_stopping": True, "n_iter_no_change": 2, "tol": 1.0},
    },
}

# The event at which a callback fails, and in which process.
HALVES = ValidSplit(2)
FAILURES = [("a begin", 0), ("validation", 1), ("an end", 0), ("an end", 1)]


class FromMemory(torch.utils.data.Dataset):
    """A dataset in memory, which the net does not recognise as such."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, number):
        return self.X[number], self.y[number]


def make_net(case, is_distributed, seed=0, **kwargs):
    """The net of a case, and the arguments of its ``fit``."""
    case = dict(case)
    shape, dtype = case.pop("shape", (5,)), case.pop("dtype", "float64")
    X, y = rows(case.pop("n_rows", 23), shape, dtype)
    weight = np.linspace(0, 2, len(X)) if case.pop("has_weight", False) else None
    torch.manual_seed(seed)
    module = small_mlp(**case.pop("module", {})) if dtype == "float64" else SmallConv()
    if case.pop("is_loaded", False):
        X, y = FromMemory(X, y), None
    noise = case.pop("noise", None)
    settings = {
        **{"lr": 0.1, "max_epochs": 3, "batch_size": 8, "train_split": None, "verbose": 0},
        **{"criterion__eta": 0.5, "criterion__alpha": 1.0, "criterion__random_state": 7},
    }
    net_class = DistributedNet if is_distributed else MixupENet
    net = net_class(module, **{**settings, **case, **kwargs})
    if noise:
        net._prepare = lambda X, training: X + noise * training * torch.randn_like(X)
    return net, (X, y) if weight is None else (X, y, weight)


def trained(case, is_distributed):
    """Weights and recorded losses of a case after training."""
    net, data = make_net(case, is_distributed)
    net.fit(*data)
    figures = ["train_loss", "train_mixup_loss", "train_penalty", "loss_scale"]
    return {"weights": weights_of(net), "figures": np.array(net.history[:, figures])}


def weights_of(net):
    return {name: value.numpy() for name, value in net.module_.state_dict().items()}


def images():
    rng = np.random.default_rng(0)
    return rng.integers(256, size=(21, 16, 16), dtype=np.uint8), rng.integers(3, size=21)


def fitted_classifier(case):
    """The estimator of a case, fitted."""
    case = {"max_epochs": 2, "batch_size": 5, "alpha": 0.5, "eta": 0.1, **case}
    X, y = images()
    if case.pop("is_loaded", False):
        X, y = FromMemory(torch.from_numpy(X)[:, None], torch.from_numpy(y)), None
    return MixupEImageClassifier(**case).fit(X, y)


def with_images(case):
    """Weights, losses and predictions of the estimator of a case after training."""
    model = fitted_classifier(case)
    names = [name for name in model.history_[0] if name.startswith(("train", "valid", "loss"))]
    return {
        "weights": weights_of(model.net_),
        "figures": np.array([[row[name] for name in names] for row in model.history_]),
        "net": type(model.net_).__name__,
        "proba": pickle.loads(pickle.dumps(model)).predict_proba(images()[0]),
    }


def error_of(function, *args):
    """The type and message of an error."""
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


class Failing(Callback):
    """Fails at an event, in one process only."""

    def __init__(self, event, rank):
        self.event, self.is_here = event, rank == int(os.environ["RANK"])

    def _fail(self, event):
        if self.is_here and self.event == event:
            raise ValueError(f"No luck\nat {event}.")

    def on_epoch_begin(self, net, **kwargs):
        self._fail("a begin")

    def on_batch_end(self, net, training, **kwargs):
        if not training:
            self._fail("validation")

    def on_epoch_end(self, net, **kwargs):
        self._fail("an end")


def failures():
    """The errors if one process fails."""
    return {
        (event, rank): error_of(
            fit_case, {"callbacks": [Failing(event, rank)], "train_split": HALVES}
        )
        for event, rank in FAILURES
    }


class StopAtTwo(Callback):
    """Stops after the second epoch, in one process only."""

    def __init__(self, is_here):
        self.is_here = is_here

    def on_epoch_end(self, net, **kwargs):
        if self.is_here and len(net.history) == 2:
            raise KeyboardInterrupt


def stops(rank):
    """Let one process stop after its second epoch; the outcome in this one."""
    is_here = rank == int(os.environ["RANK"])
    net, data = make_net({}, True, max_epochs=4, callbacks=[StopAtTwo(is_here)])
    net.fit(*data)
    return {"n_epochs": len(net.history)}


def differences():
    """The errors if something differs between the processes."""
    rank = int(os.environ["RANK"])
    X, y = rows()
    n_rows = 20 + rank

    def fit(X=X, y=y, case=None, **kwargs):
        return error_of(make_net(case or {}, True, **kwargs)[0].fit, X, y)

    return {
        "samples": fit(X[:n_rows], y[:n_rows]),
        "targets": fit(y=np.roll(y, rank)),
        "inputs": fit(np.roll(X, rank)),
        "rounding": fit(X * (1 + 1e-7 * rank)),
        "epochs": fit(max_epochs=1 + rank),
        "batches": fit(batch_size=8 + rank),
        "method": fit(criterion__alpha=0.5 * rank),
        "optimizer": fit(lr=0.1 * (1 + rank)),
        "network": fit(case={"module": {"d_hidden": (8, 6 + rank)}}),
        "validation": fit(train_split=predefined_split(Dataset(X, np.roll(y, rank)))),
    }


def refusals():
    """The errors for unsupported settings."""
    X, y = rows()
    hidden = {"criterion__mix_at": "hidden", "criterion__penalty": "directional"}
    few = {"module": {"batch_norm": True}, "batch_size": 2}
    idle = DistributedNet(Idle().double(), train_split=None, verbose=0)
    scoring = EpochScoring("accuracy", on_train=True, name="score")
    return {
        "hidden": error_of(fit_case, hidden),
        "second order": error_of(fit_case, {"criterion__penalty_order": 2}),
        "batch norm": error_of(fit_case, few),
        "idle": error_of(idle.fit, X, y),
        "loader": error_of(fit_case, {"is_loaded": True, "batch_size": 7}),
        "scoring": error_of(fit_case, {"callbacks": [("score", scoring)]}),
    }


def fit_case(case):
    net, data = make_net(case, is_distributed=True)
    return net.fit(*data)


def keeping(folder):
    """Train with a checkpoint, continue, and collect the results."""
    rank = int(os.environ["RANK"])
    X, y = rows()
    # Different seeds: all processes use the draws of the main one.
    own = folder / f"process{rank}"
    own.mkdir()
    net, _ = make_net({}, True, seed=rank, criterion__random_state=None, max_epochs=2)
    net.set_params(callbacks=[Checkpoint(monitor=None, dirname=str(own))], verbose=1)
    net.fit(X, y)
    net.partial_fit(X, y)
    if rank == 0:  # no process waits for the other
        net.save_params(f_params=own / "alone.pt")
    again = pickle.loads(pickle.dumps(net))
    return {
        "weights": weights_of(net),
        "written": sorted(path.name for path in own.iterdir()),
        "module": type(net.module_).__name__,
        "is_same": bool((again.predict_proba(X) == net.predict_proba(X)).all()),
        "optimizer": type(net.optimizer_).__name__,
        "history": len(net.history),
    }


def run_all(folder):
    """Run all cases and write the results, one file per process."""
    torch.set_num_threads(1)
    gc.freeze()  # accelerate collects garbage after each training
    found = {name: trained(case, True) for name, case in {**CASES, **OTHER_CASES}.items()}
    found["images"] = {name: with_images(case) for name, case in IMAGE_CASES.items()}
    found["dropout again"] = trained(OTHER_CASES["dropout"], True)
    found["keeping"] = keeping(folder)
    found["stops"] = [stops(rank) for rank in (0, 1)]
    found["failures"] = failures()
    found["differences"] = differences()
    found["refusals"] = refusals()
    (folder / f"found{os.environ['RANK']}.pickle").write_bytes(pickle.dumps(found))


def train_for_ever(folder):
    """Train until the process is ended; a file marks the start."""

    class Begun(Callback):
        def on_epoch_end(self, net, **kwargs):
            if len(net.history) == 2:
                (folder / f"begun{os.environ['RANK']}").touch()

    torch.set_num_threads(1)
    net, data = make_net({}, True, max_epochs=10**6, callbacks=[Begun()])
    net.fit(*data)


if __name__ == "__main__":
    assert int(os.environ["WORLD_SIZE"]) > 1
    {"all": run_all, "for ever": train_for_ever}[sys.argv[1]](Path(sys.argv[2]))
