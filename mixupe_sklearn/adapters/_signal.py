"""What the classifiers of pictures and of sounds share: signals of one shape, (n, c, h, w)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.utils.data import Dataset

from mixupe_sklearn._base import BaseMixupE, all_or_nothing
from mixupe_sklearn._checks import Number, check_rules
from mixupe_sklearn._criterion import METHOD_RULES
from mixupe_sklearn._distributed import DistributedNet
from mixupe_sklearn._forward import as_logits, run_stages, stages_of
from mixupe_sklearn._hardware import multiplications, resolve_device, threads_for
from mixupe_sklearn._inputs import Rows, free_memory, on_device, to_numpy
from mixupe_sklearn._labels import ClassTargets, check_holes
from mixupe_sklearn._loading import Loader
from mixupe_sklearn._net import MixupENet
from mixupe_sklearn._predicting import float_type
from mixupe_sklearn._processes import own_device, same_seed, trains_together
from mixupe_sklearn._settings import BY_MEMBER, FIXED
from mixupe_sklearn._signals.pictures import channel_statistics
from mixupe_sklearn._tasks import with_callbacks
from mixupe_sklearn._training import Tensors, first_rows
from mixupe_sklearn.adapters._parameters import SignalParameters
from mixupe_sklearn.adapters._prepare import (
    FEW_CHANNELS,
    Part,
    Prepare,
    Signals,
    is_unsafe_last,
)
from mixupe_sklearn.modules import NAMED

# Signals that are predicted at once: what the layers make of them is many times their own size.
ROWS_AT_ONCE = 256
N_WORKERS = Number("a whole number >= 0", integer=True)
SWITCHES = ("amp", "channels_last", "distributed")


class SignalClassifier(SignalParameters, ClassTargets, ClassifierMixin, BaseMixupE):
    """Fit and predict; the subclasses know how signals are read."""

    # One network, trained for the epochs that are asked for: what tables have beyond is not here.
    n_members = 1
    min_steps = 0
    _more_steps = "max_epochs"
    _y_is_numeric = False
    _modules = NAMED
    _fixed_names = (*(name for name in FIXED if name != "n_members"), "amp", "channels_last")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.classifier_tags.multi_label = True
        return tags

    # What brings its labels along.
    _with_labels: str

    def _read(self, X: Any, name: str, *, is_new: bool, labelled: bool) -> Signals:
        """Read signals; the first ones settle what others are to be like."""
        raise NotImplementedError

    def _make_augmentation(self) -> Any:
        return None

    @property
    def _net_class(self) -> Any:
        return DistributedNet if trains_together(self.distributed) else MixupENet

    def _fresh_seed(self) -> int | None:
        is_shared = trains_together(self.distributed)
        return same_seed(resolve_device(self.device).type) if is_shared else None

    def _resolved_device(self) -> torch.device:
        device = resolve_device(self.device)
        return own_device(device) if trains_together(self.distributed) else device

    def _settings(self) -> Mapping[str, Any]:
        return {"n_members": self.n_members, "min_steps": self.min_steps, **vars(self)}

    @with_callbacks
    @all_or_nothing
    def fit(self, X, y=None, sample_weight=None, *, X_val=None, y_val=None, sample_weight_val=None):
        """Train the network.

        Parameters
        ----------
        X : array, list, path or Dataset
            Training samples, in one of the forms that the class describes.
        y : array-like of shape (n_samples,) or (n_samples, n_labels), default=None
            Labels of any type, or a matrix of zeros and ones for several labels a sample. Not
            needed where they come with the samples: a folder of class folders, a Dataset of pairs.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each sample's loss and penalty; a mixed sample carries the weights of both.
        X_val, y_val : as X and y, default=None
            Samples to measure the validation loss on, in every epoch.
        sample_weight_val : array-like or None, default=None
            Their weights.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        told, is_new = (X, y), not (self.warm_start and hasattr(self, "net_"))
        X, y = self._labelled(X, y, is_new=is_new)
        if X_val is not None:
            X_val, y_val = self._labelled(X_val, y_val, suffix="_val")
        return self._fit(X, y, sample_weight, X_val, y_val, sample_weight_val, told=told)

    @all_or_nothing
    def partial_fit(self, X, y=None, classes=None, sample_weight=None):
        """Train for one epoch on the given samples, going on from where the network is.

        Parameters
        ----------
        X : array, list, path or Dataset
            Training samples, as for ``fit``.
        y : array-like, default=None
            Labels.
        classes : array-like of shape (n_classes,) or None, default=None
            All labels that will ever come; needed at the first call only.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each sample, relative to the others of this call.

        Returns
        -------
        self : object
            The estimator.
        """
        is_new = not hasattr(self, "net_")
        X, y = self._labelled(X, y, is_new=is_new)
        learn = self._announce(classes, y, is_new=is_new)
        return self._partial_fit(X, y, sample_weight, learn=learn)

    def predict_proba(self, X):
        """Return the probability of each class, or of each label.

        Parameters
        ----------
        X : array, list, path or Dataset
            Samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._predicted(X, lambda logits: self._by_class(self._mean(logits)))

    def predict_log_proba(self, X):
        """Return the logarithm of ``predict_proba``.

        Parameters
        ----------
        X : array, list, path or Dataset
            Samples.

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
            Minus infinity where a probability is zero.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X):
        """Return the most probable class of each sample, or the labels above one half.

        Parameters
        ----------
        X : array, list, path or Dataset
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_labels)
            Predicted labels.
        """
        proba = self.predict_proba(X)
        return self._labels.decode(proba)

    def score(self, X, y=None, sample_weight=None):
        """Return the accuracy of ``predict``.

        Parameters
        ----------
        X : array, list, path or Dataset
            Samples.
        y : array-like, default=None
            Their labels; not needed where they come with the samples.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each sample.

        Returns
        -------
        accuracy : float
            Share of samples whose label is the predicted one.
        """
        check_is_fitted(self, "net_")
        data, y = self._labelled(X, y)
        proba = self._by_signals(data, lambda logits: self._by_class(self._mean(logits)))
        return accuracy_score(to_numpy(y), self._labels.decode(proba), sample_weight=sample_weight)

    def _labelled(self, X: Any, y: Any, *, is_new=False, suffix: str = "") -> tuple[Any, Any]:
        """Signals as they are kept, and their labels: the given ones, or those that came along."""
        signals = self._read(X, f"X{suffix}", is_new=is_new, labelled=y is None)
        y = signals.labels if y is None else y
        if y is None:
            raise ValueError(
                f"Got y{suffix}=None and an X{suffix} without labels, but expected labels in "
                f"y{suffix}, or {self._with_labels}."
            )
        self._check_labels(y, signals.data.shape[0], suffix)
        return signals.data, y

    @staticmethod
    def _check_labels(y: Any, n_samples: int, suffix: str) -> None:
        """Raise one sentence where labels are no array, too few or too many, or have holes."""
        is_one = isinstance(y, (str, bytes, Dataset)) or not hasattr(y, "__len__")
        if is_one or getattr(y, "ndim", 1) == 0:
            told = type(y).__name__ if isinstance(y, Dataset) else repr(y)
            raise ValueError(
                f"Got y{suffix}={told}, but expected an array of labels, one for each sample."
            )
        n_labels = y.shape[0] if hasattr(y, "shape") else len(y)
        if n_labels != n_samples:
            raise ValueError(
                f"Got X{suffix} of {n_samples} samples and y{suffix} of {n_labels} labels, but "
                f"expected as many labels as samples."
            )
        check_holes(y, f"y{suffix}")

    def _begin(self, X, y, sample_weight, *, is_new, learn) -> Rows:
        # One network has one alpha and one eta.
        one_value = {name: METHOD_RULES[name] for name in BY_MEMBER}
        check_rules(vars(self), {"n_workers": N_WORKERS} | one_value)
        for name in SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool) and value != "auto":
                raise ValueError(f"Got {name}={value!r}, but expected True, False or 'auto'.")
        self._make_augmentation()  # who knows no such name says so
        return super()._begin(X, y, sample_weight, is_new=is_new, learn=learn)

    def _validate_rows(self, X, *, reset, name="X"):
        """Signals of the shape that the network knows."""
        shape = tuple(X.shape[1:])
        if reset:
            self.shape_in_ = shape
        elif shape != self.shape_in_:
            raise ValueError(
                f"Got {name} of shape {_by(shape)} a sample (channels, height, width), but "
                f"expected {_by(self.shape_in_)}, as in fit."
            )
        return X

    def _check_finite(self, X: Any, name: str) -> None:
        """Nothing: who read the signals has looked at them."""

    def _select(self, X: Any, is_wanted: np.ndarray) -> Any:
        if isinstance(X, Tensor):
            return X[torch.from_numpy(is_wanted)]
        return Part(X, np.flatnonzero(is_wanted))

    def _learn_inputs(self, train: Rows) -> None:
        self.X_mean_, self.X_std_ = channel_statistics(
            train.X, train.index, train.weight, n_workers=self.n_workers
        )

    def _widths(self, train: Rows) -> dict[str, Any]:
        n_channels, *size = train.X.shape[1:]
        n_outputs = self._n_outputs()
        ours = {"n_outputs": n_outputs, "n_channels": n_channels, "image_size": tuple(size)}
        # The words of timm and torchvision.
        theirs = {"num_classes": n_outputs, "in_chans": n_channels, "img_size": tuple(size)}
        return {**ours, **theirs, "in_channels": n_channels}

    def _try_out(self, net: Any, train: Rows) -> int:
        """Run a new module on two signals: how wide its output is, and how much work it is."""
        self._equip(net)
        few = net._prepared(first_rows(train.X), training=False)
        net.module_.eval()
        try:
            with torch.no_grad():
                logits = as_logits(net.module_(few))
                net._work = multiplications(net.module_, few)
                self._check_stages(net.module_, few, logits)
        except (RuntimeError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(
                f"Got samples of shape {_by(self.shape_in_)} (channels, height, width), which the "
                f"module cannot take ({type(error).__name__}: {reason}), but expected a module for "
                f"this shape: larger samples, or other module_params."
            ) from error
        return int(logits.shape[1])

    def _check_stages(self, module: Any, few: Tensor, logits: Tensor) -> None:
        """Raise one sentence where a module's ``stages`` are something else than its forward."""
        stages = stages_of(module)
        if self.mix_at == "input" or len(stages) == 1:
            return
        output = run_stages(stages, few, {})
        if output.shape != logits.shape or not torch.allclose(output, logits, atol=1e-4):
            raise ValueError(
                f"Got mix_at='hidden' with a {type(module).__name__} whose stages, run in turn, do "
                f"not give its output, but expected stages that do; set mix_at='input'."
            )

    def _equip(self, net: Any) -> None:
        """Tell a net how inputs are made ready, and in which precision and order it computes."""
        is_last = self._is_last(net)
        if is_last:
            net.module_.to(memory_format=torch.channels_last)
        augment = self._make_augmentation()
        net._prepare = Prepare(self.X_mean_, self.X_std_, float_type(net), augment, is_last)
        net._precision = torch.bfloat16 if self._is_low_precision(net) else None
        net._n_workers = self.n_workers

    def _is_last(self, net: Any) -> bool:
        """Whether channels lie next to each other in memory."""
        device = torch.device(net.device).type
        is_unsafe = device == "cpu" and is_unsafe_last(net.module_)
        if self.channels_last == "auto":
            # A module of one's own may rely on the usual order, as flattening by ``view`` does.
            is_ours = type(net.module_).__module__.startswith("mixupe_sklearn.modules.")
            return is_ours and device in ("cpu", "cuda") and not is_unsafe
        if self.channels_last and is_unsafe:
            raise ValueError(
                f"Got channels_last=True on a processor with a 1 x 1 convolution with a stride "
                f"whose inputs have fewer than {FEW_CHANNELS} channels, but expected 'auto' or "
                f"False: torch may damage the memory of the process there."
            )
        return self.channels_last

    def _is_low_precision(self, net: Any) -> bool:
        if self.amp != "auto":
            return self.amp
        # On a processor it was measured to take two to three times as long.
        return torch.device(net.device).type == "cuda" and torch.cuda.is_bf16_supported()

    def _go_on(self) -> None:
        super()._go_on()
        self._equip(self.net_)

    def _tensors(self, net: Any, rows: Rows) -> Tensors:
        dtype, device = float_type(net), torch.device(net.device)
        y = torch.from_numpy(rows.targets)
        y = y.to(dtype) if y.is_floating_point() else y
        weight = None if rows.weight is None else torch.as_tensor(rows.weight, dtype=dtype)
        if not isinstance(rows.X, Tensor):
            return rows.X, y, weight
        X, y, weight = on_device((rows.X, y, weight), device, free_memory(device))
        return X, y, weight

    def _predicted(self, X, finish) -> Any:
        """What ``finish`` makes of the logits of a user's signals, a batch of them at a time."""
        check_is_fitted(self, "net_")
        return self._by_signals(self._read(X, "X", is_new=False, labelled=False).data, finish)

    def _by_signals(self, data: Any, finish) -> Any:
        data, net = self._validate_rows(data, reset=False), self.net_
        if net.module_.training:
            net.module_.eval()
        values = []
        with torch.inference_mode(), threads_for(net.module_, ROWS_AT_ONCE, None, net._work):
            for batch in self._in_batches(data):
                logits = as_logits(net.infer(batch)).cpu().double()
                values.append(finish(logits[None]))
        return np.concatenate(values)

    def _in_batches(self, data: Any) -> Iterator[Tensor]:
        if isinstance(data, Tensor):
            return iter(data.split(ROWS_AT_ONCE))
        # With a generator of its own: torch's global one is left as found.
        how = {"num_workers": self.n_workers, "generator": torch.Generator()}
        return iter(Loader(data, batch_size=ROWS_AT_ONCE, **how))


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
