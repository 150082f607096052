"""MixupENet as a skorch user uses it."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from skorch.callbacks import (
    Checkpoint,
    EarlyStopping,
    EpochScoring,
    GradientNormClipping,
    LRScheduler,
)
from skorch.dataset import Dataset
from skorch.exceptions import NotInitializedError
from skorch.helper import predefined_split

from mixupe_sklearn import MixupENet, MixupENetRegressor
from mixupe_sklearn._data.batches import Batches
from mixupe_sklearn.modules import MLP

# A net without an estimator uses all of torch's threads.
pytestmark = pytest.mark.usefixtures("one_thread")


def make_net(net_class=MixupENet, **settings):
    defaults = {
        "module__n_features": 64,
        "module__n_outputs": 10,
        "optimizer": torch.optim.Adam,
        "lr": 0.001,
        "max_epochs": 4,
        "batch_size": 50,
        "verbose": 0,
        "criterion__alpha": 1.0,
        "criterion__eta": 0.1,
    }
    return net_class(MLP, **{**defaults, **settings})


@pytest.fixture
def data(digits):
    return digits[0].astype("float32"), digits[1]


def test_it_learns_and_records_the_parts_of_its_loss(data):
    net = make_net(max_epochs=15).fit(*data)
    assert net.score(*data) > 0.93
    for row in net.history:
        assert row["train_loss"] == pytest.approx(row["train_mixup_loss"], rel=1e-4)
        assert row["train_penalty"] > 0
        assert 0 < row["loss_scale"] < 1
        assert row["valid_loss"] < row["train_loss"] + 1


def test_equal_torch_seeds_give_equal_nets(data):
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(make_net().fit(*data).module_.stages[0][0].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_skorch_callbacks_work(data, tmp_path):
    callbacks = [
        ("schedule", LRScheduler("StepLR", step_size=1, gamma=0.5)),
        ("stop", EarlyStopping(patience=2, threshold=10.0, threshold_mode="abs")),
        ("checkpoint", Checkpoint(dirname=tmp_path)),
        ("clip", GradientNormClipping(0.5)),
        ("train_acc", EpochScoring("accuracy", on_train=True, lower_is_better=False)),
    ]
    net = make_net(callbacks=callbacks, max_epochs=6).fit(*data)
    assert len(net.history) == 3  # no loss decreases by ten: two more epochs after the first
    assert (tmp_path / "params.pt").exists()
    assert [row["event_lr"] for row in net.history[:2]] == [0.001, 0.0005]
    assert net.score(*data) > 0.5


def test_gradients_are_clipped(data):
    norms = []

    class Watch(GradientNormClipping):
        def on_grad_computed(self, net, named_parameters, **kwargs):
            super().on_grad_computed(net, named_parameters, **kwargs)
            grads = [parameter.grad.norm() for parameter in net.module_.parameters()]
            norms.append(torch.stack(grads).norm().item())

    make_net(callbacks=[Watch(0.01)], max_epochs=1).fit(*data)
    assert max(norms) <= 0.0101


class Accumulating(MixupENet):
    """Gradient accumulation as skorch's documentation shows it."""

    n_steps = 2

    def get_loss(self, *args, **kwargs):
        return super().get_loss(*args, **kwargs) / self.n_steps

    def train_step(self, batch, **fit_params):
        n_batches = len(self.history[-1]["batches"])
        step = self.train_step_single(batch, **fit_params)
        if n_batches % self.n_steps == 0:
            self.optimizer_.step()
            self.optimizer_.zero_grad()
        return step


def test_gradient_accumulation_equals_larger_batches(data):
    weights = []
    for net_class, batch_size in ((Accumulating, 50), (MixupENet, 100)):
        torch.manual_seed(0)
        net = make_net(
            net_class,
            batch_size=batch_size,
            criterion__method="erm",
            iterator_train__shuffle=False,
            train_split=None,
            optimizer=torch.optim.SGD,
            lr=0.1,
            max_epochs=2,
        )
        X, y = data
        weights.append(net.fit(X[:1000], y[:1000]).module_.stages[0][0].weight)
    assert (weights[0] - weights[1]).abs().max() < 1e-5
    assert make_net(Accumulating, max_epochs=10).fit(*data).score(*data) > 0.9


def test_weights_given_to_fit_equal_weights_in_the_dict(data):
    X, y = data
    weight = np.linspace(0.5, 1.5, len(X)).astype("float32")
    nets = []
    for args, kwargs in (
        ((X, y), {"sample_weight": weight}),
        (({"X": X, "sample_weight": weight}, y), {}),
        ((X, y), {}),
    ):
        torch.manual_seed(0)
        nets.append(make_net(max_epochs=1).fit(*args, **kwargs).module_.stages[0][0].weight)
    assert torch.equal(nets[0], nets[1])
    assert not torch.equal(nets[0], nets[2])


class Rows(torch.utils.data.Dataset):
    """A user's dataset, read sample by sample."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


def test_any_dataset_works_through_a_data_loader(data):
    X, y = data
    net = make_net(train_split=predefined_split(Rows(X[1500:], y[1500:])), max_epochs=10)
    net.fit(Rows(X[:1500], y[:1500]), None)
    assert net.history[-1]["valid_acc"] > 0.8
    assert isinstance(net.get_iterator(Rows(X, y)), torch.utils.data.DataLoader)
    assert isinstance(net.get_iterator(Dataset(X, y)), Batches)


@pytest.mark.parametrize(
    "settings",
    [{"iterator_train__num_workers": 0}, {"iterator_valid__pin_memory": False}],
    ids=str,
)
def test_arguments_of_a_data_loader_select_one(data, settings):
    net = make_net(max_epochs=1, **settings).fit(*data)
    iterators = [net.get_iterator(net.get_dataset(*data), training=t) for t in (True, False)]
    assert sum(isinstance(it, torch.utils.data.DataLoader) for it in iterators) == 1


def test_an_unfitted_net_raises(data):
    for method in ("predict", "predict_proba"):
        with pytest.raises(NotInitializedError, match="not initialized yet"):
            getattr(make_net(), method)(data[0])


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")
def test_wrong_weights_and_data_frames_raise_one_sentence(data):
    X, y = data
    weight = np.ones(len(X), dtype="float32")
    with pytest.raises(
        ValueError, match=r"Got sample_weight of shape \(50, 1\), but expected \(50,\)"
    ):
        make_net().fit(X, y, sample_weight=weight[:, None])
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(
            ValueError, match=f"Got sample_weight={bad}, but expected finite numbers"
        ):
            make_net().fit(X, y, sample_weight=[bad] * len(X))
    with pytest.raises(ValueError, match="Got sample_weight beside a Dataset, but expected arrays"):
        make_net().fit(Dataset(X, y), None, sample_weight=weight)
    with pytest.raises(TypeError, match="pass a data frame as a float array"):
        MixupENet(Columns, verbose=0).fit(pd.DataFrame(X), y)


class Columns(torch.nn.Module):
    """Takes a keyword for each column, as skorch passes a data frame."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, **columns):
        return self.layer(torch.cat(list(columns.values()), dim=1))


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_sigmoid_heads(data, n_outputs):
    X, y = data
    Y = np.column_stack([y > 4, y % 2 == 0, y < 2]).astype("float32")
    Y = Y[:, 0] if n_outputs == 1 else Y
    net = make_net(
        module__n_outputs=n_outputs, criterion__head="sigmoid", train_split=None, max_epochs=10
    ).fit(X, Y)
    assert net.predict_proba(X).shape == (len(X), 2 if n_outputs == 1 else 3)
    assert net.predict(X).shape == Y.shape
    assert (net.predict(X) == Y).mean() > 0.9


def test_the_regression_net(diabetes):
    X, y = diabetes
    X, y = X.astype("float32"), ((y - y.mean()) / y.std()).astype("float32")[:, None]
    net = make_net(MixupENetRegressor, module__n_features=10, module__n_outputs=1, max_epochs=20)
    assert net.fit(X, y).score(X, y) > 0.4


def test_clone_pickle_copy_and_search(data):
    X, y = data
    net = make_net(max_epochs=2)
    assert clone(net).get_params()["criterion__alpha"] == 1.0
    net.fit(X, y)
    for same in (pickle.loads(pickle.dumps(net)), copy.deepcopy(net)):
        assert np.array_equal(same.predict_proba(X), net.predict_proba(X))
    # With a tiny learning rate the net learns nothing, and the search must find out.
    search = GridSearchCV(make_net(max_epochs=2), {"lr": [1e-9, 0.001]}, cv=2)
    assert search.fit(X, y).best_params_ == {"lr": 0.001}


@pytest.mark.parametrize(("n_rows", "n_batches"), [(101, 2), (100, 2), (102, 3)])
def test_a_last_batch_of_one_sample_joins_the_one_before_with_batch_norm(data, n_rows, n_batches):
    X, y = data
    net = make_net(module__batch_norm=True, max_epochs=1, train_split=None)
    net.fit(X[:n_rows], y[:n_rows])
    assert len(net.history[0]["batches"]) == n_batches


def test_a_non_finite_loss_raises_with_epoch_batch_and_parts(data):
    net = make_net(lr=1e30, optimizer=torch.optim.SGD)
    pattern = (
        r"non-finite in epoch \d+, batch \d+: mixup_loss=\S+, penalty_term=\S+; lower lr or eta"
    )
    with pytest.raises(FloatingPointError, match=pattern):
        net.fit(*data)


class SumOfSteps(torch.nn.Module):
    """Sequences of different length, encoded to the last state of a GRU."""

    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(1, 16, batch_first=True)
        self.head = torch.nn.Linear(16, 2)

    def encode(self, values, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            values[:, :, None], lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.gru(packed)[1][0]

    def forward(self, values, lengths):
        return self.head(self.encode(values, lengths))


def test_sequences_of_different_length_are_mixed_after_encoding():
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 10, size=400)
    values = np.zeros((400, 9), dtype="float32")
    for row, length in enumerate(lengths):
        values[row, :length] = rng.normal(size=length)
    y = (values.sum(axis=1) > 0).astype("int64")
    net = MixupENet(
        SumOfSteps, criterion__mix_at="hidden", criterion__alpha=0.2, optimizer=torch.optim.Adam,
        lr=0.01, max_epochs=15, batch_size=40, verbose=0,
    )  # fmt: skip
    inputs = {"values": values, "lengths": lengths}
    assert net.fit(inputs, y).score(inputs, y) > 0.9
