"""Base class of the classifiers for images, audio and graphs."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mixupe_sklearn._data.rows import Rows, to_numpy
from mixupe_sklearn._estimators.base import BaseMixupE, all_or_nothing
from mixupe_sklearn._estimators.fit_monitor import with_callbacks
from mixupe_sklearn._estimators.inputs import ClassTargets
from mixupe_sklearn._method.criterion import METHOD_RULES
from mixupe_sklearn._method.forward import as_logits, run_stages, set_to_predict, stages_of
from mixupe_sklearn._net.net import float_type
from mixupe_sklearn._runtime.torch_state import multiplications, threads_for
from mixupe_sklearn._training.config import BY_MEMBER, FIXED
from mixupe_sklearn._utils.parameter_rules import check_rules


class AdapterClassifier(ClassTargets, ClassifierMixin, BaseMixupE):
    """Fit and predict. The subclasses read and prepare the samples."""

    # One network, trained for ``max_epochs``: no ensemble and no minimum number of steps.
    n_members = 1
    min_steps = 0
    ema_decay = None
    time_limit = None
    scale_inputs = False
    _more_steps = "max_epochs"
    _y_is_numeric = False
    _fixed_names = tuple(name for name in FIXED if name not in ("n_members", "scale_inputs"))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.classifier_tags.multi_label = True
        return tags

    # Description of the inputs that have labels, for messages.
    _with_labels: str

    def _read(self, X: Any, name: str, *, is_new: bool, labelled: bool) -> tuple[Any, Any]:
        """Read samples, with a ``shape``, and their labels, if they have some.

        The samples of the first fit define the expected format.
        """
        raise NotImplementedError

    @with_callbacks
    def fit(self, X, y=None, sample_weight=None, *, X_val=None, y_val=None, sample_weight_val=None):
        """Train the network.

        Parameters
        ----------
        X : sequence, array, path or Dataset
            Training samples, in one of the formats that the class describes.
        y : array-like of shape (n_samples,) or (n_samples, n_labels), default=None
            Labels of any type, or a matrix of zeros and ones for multi-label data. Not needed if
            the samples have labels: a folder of class folders, or a Dataset of pairs.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each sample's loss and penalty. A mixed sample has the weights of both.
        X_val, y_val : as X and y, default=None
            Samples for the validation loss of every epoch.
        sample_weight_val : array-like or None, default=None
            Their weights.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        original, is_new = (X, y), not (self.warm_start and hasattr(self, "net_"))
        with all_or_nothing(self):
            X, y = self._labelled(X, y, is_new=is_new)
            if X_val is not None:
                X_val, y_val = self._labelled(X_val, y_val, suffix="_val")
            validation = X_val, y_val, sample_weight_val
            return self._fit(X, y, sample_weight, *validation, original=original)

    def partial_fit(self, X, y=None, classes=None, sample_weight=None):
        """Train for one epoch on the given samples, from the current weights.

        Parameters
        ----------
        X : sequence, array, path or Dataset
            Training samples, as for ``fit``.
        y : array-like, default=None
            Labels.
        classes : array-like of shape (n_classes,) or None, default=None
            All labels of all calls. Needed in the first call only.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each sample, relative to the others of this call.

        Returns
        -------
        self : object
            The estimator.
        """
        is_new = not hasattr(self, "net_")
        with all_or_nothing(self):
            X, y = self._labelled(X, y, is_new=is_new)
            learn = self._announce(classes, y, is_new=is_new)
            return self._partial_fit(X, y, sample_weight, learn=learn)

    def predict_proba(self, X):
        """Return the probability of each class, or of each label.

        Parameters
        ----------
        X : sequence, array, path or Dataset
            Samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        check_is_fitted(self, "net_")
        data, _ = self._read(X, "X", is_new=False, labelled=False)
        return self._proba(data)

    def predict_log_proba(self, X):
        """Return the logarithm of ``predict_proba``.

        Parameters
        ----------
        X : sequence, array, path or Dataset
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
        X : sequence, array, path or Dataset
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_labels)
            Predicted labels.
        """
        proba = self.predict_proba(X)  # raises if nothing is fitted
        return self._labels.decode(proba)

    def score(self, X, y=None, sample_weight=None):
        """Return the accuracy of ``predict``.

        Parameters
        ----------
        X : sequence, array, path or Dataset
            Samples.
        y : array-like, default=None
            Their labels. Not needed if the samples have labels.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each sample.

        Returns
        -------
        accuracy : float
            Fraction of correctly predicted samples.
        """
        check_is_fitted(self, "net_")
        data, y = self._labelled(X, y)
        predicted = self._labels.decode(self._proba(data))
        return accuracy_score(to_numpy(y), predicted, sample_weight=sample_weight)

    def _labelled(self, X: Any, y: Any, *, is_new=False, suffix: str = "") -> tuple[Any, Any]:
        """The samples that were read, and their labels: the given ones, or those of the samples."""
        data, labels = self._read(X, f"X{suffix}", is_new=is_new, labelled=y is None)
        y = labels if y is None else y
        if y is None:
            raise ValueError(
                f"Got y{suffix}=None and an X{suffix} without labels, but expected labels in "
                f"y{suffix}, or {self._with_labels}."
            )
        return data, y

    def _monitored_rows(self, X, y) -> Rows:
        return super()._monitored_rows(*self._labelled(X, y))

    @torch.no_grad()
    def _run_once(self, module: Any, few: Any) -> tuple[Tensor, int]:
        """Logits of a new module for a few samples, and an estimate of its work."""
        kind, stages = type(module).__name__, stages_of(module)
        try:
            output = module.eval()(few)
        except (RuntimeError, TypeError, AttributeError) as error:
            shape = f" of shape {tuple(few.shape)}" if isinstance(few, Tensor) else ""
            raise ValueError(
                f"Got a {kind} that fails on a batch{shape} ({type(error).__name__}: {error}), but "
                f"expected a module that returns logits of shape (n_samples, n_outputs)."
            ) from error
        logits = as_logits(output)
        if self.mix_at == "hidden" and len(stages) > 1:
            output = run_stages(stages, few, {})
            if output.shape != logits.shape or not torch.allclose(output, logits, atol=1e-4):
                raise ValueError(
                    f"Got a {kind} whose 'stages', or 'encode' and 'head', do not compute its "
                    f"output, but expected a forward that runs them in turn."
                )
        return logits, multiplications(module, few)

    def _settings(self) -> Mapping[str, Any]:
        # Not every classifier has these as parameters.
        constant = (
            *("n_members", "min_steps", "ema_decay", "time_limit", "mix_at", "compile"),
            "scale_inputs",
        )
        return {name: getattr(self, name) for name in constant} | vars(self)

    def _begin(self, X, y, sample_weight, *, is_new, learn) -> Rows:
        # One network has one alpha and one eta.
        check_rules(vars(self), {name: METHOD_RULES[name] for name in BY_MEMBER})
        return super()._begin(X, y, sample_weight, is_new=is_new, learn=learn)

    def _check_finite(self, X: Any, name: str) -> None:
        """Do nothing: samples are checked when they are read."""

    def _targets(self, net: Any, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Targets and weights for the criterion."""
        dtype, y = float_type(net), torch.from_numpy(rows.targets)
        y = y.to(dtype) if y.is_floating_point() else y
        return y, None if rows.weight is None else torch.as_tensor(rows.weight, dtype=dtype)

    def _proba(self, data: Any) -> np.ndarray:
        """Probabilities of samples that were read, computed in batches."""
        data, net = self._validate_rows(data, reset=False), self.net_
        set_to_predict(net.module_)
        values = []
        with torch.inference_mode(), threads_for(net.module_, self._rows_at_once, None, net._work):
            for batch in self._in_batches(data):
                logits = as_logits(net.infer(batch)).cpu().double()
                values.append(self._by_class(self._mean(logits[None])))
        return np.concatenate(values)

    # Approximate batch size of predictions.
    _rows_at_once: int

    def _in_batches(self, data: Any) -> Iterator[Any]:
        """Batches of checked samples."""
        raise NotImplementedError
