"""Moving average of a module's weights, as a skorch callback."""

from collections.abc import Iterable
from typing import Any

import torch
from skorch.callbacks import Callback
from torch import Tensor

from mixupe_sklearn._utils.parameter_rules import Number, Rule, check_rules

AVERAGE_RULES: dict[str, Rule] = {"rate": Number("a number >= 0 and below 1", high=1)}


class PolyakAverage(Callback):
    """Moving average of a module's weights, with which the module predicts after training.

    After each training batch ``average = rate * average + (1 - rate) * weights``. The weights are
    all parameters and all floating-point buffers, including the running statistics of BatchNorm;
    other buffers, such as counters, are copied. The module trains with its raw weights. It has the
    averaged ones after training, and from the end of an epoch's training part to the start of the
    next one: validation losses, and callbacks after this one, see the average.

    Parameters
    ----------
    rate : float, default=0.999
        The factor of the average at each step. The average covers about ``1 / (1 - rate)`` steps: a
        rate of 0.999 suits trainings of many thousands of steps.

    Notes
    -----
    The average starts from the initial weights, without bias correction: after t steps their share
    is ``rate ** t``.

    *Continued training* (``partial_fit``, ``warm_start``): training continues from the raw weights,
    and the average continues too, as if there had been no break. If the module's weights are no
    longer the average, because other weights were loaded or those of the best epoch restored, both
    start anew from the module's weights.

    *Several processes*: at the end of each epoch all processes take the average of the main one,
    since the statistics of BatchNorm differ between processes.

    *Early stopping*: the validation losses are those of the averaged weights, so the best epoch is
    that of the best average, and its weights are restored. A callback that restores weights at the
    end of training overrides this one if it comes after it, or if the last epoch was complete.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mixupe_sklearn import MixupEClassifier
    >>> from mixupe_sklearn.callbacks import PolyakAverage
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = MixupEClassifier(callbacks=[PolyakAverage(rate=0.95)], n_members=1,
    ...                               max_epochs=5, min_steps=0, random_state=0)
    >>> bool(classifier.fit(X / 16, y).score(X / 16, y) > 0.9)
    True
    """

    def __init__(self, rate: float = 0.999):
        self.rate = rate

    def initialize(self) -> "PolyakAverage":
        """Forget everything."""
        check_rules(vars(self), AVERAGE_RULES)
        self.average_: list[Tensor] | None = None
        # The raw weights while the module has the averaged ones, else None.
        self.raw_: list[Tensor] | None = None
        return self

    @property
    def tensors_(self) -> list[Tensor]:
        """All tensors of the callback, which several processes take from the main one."""
        return [*(self.average_ or ()), *(self.raw_ or ())]

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Continue the average of the last training, or start from the module's weights."""
        weights = _weights_of(net)
        if self.raw_ is not None and self.average_ is not None and _agree(weights, self.average_):
            pairs = zip(self.average_, weights, strict=True)
            self.average_ = [average.to(weight.device) for average, weight in pairs]
        else:
            self.average_, self.raw_ = [_wide_copy(weight) for weight in weights], None

    def on_batch_begin(self, net: Any, batch: Any = None, training: Any = None, **kwargs: Any):
        """Put the raw weights into the module for training, the averaged ones for validation."""
        if training:
            self._put_raw(net)
        else:
            self._put_average(net)

    def on_batch_end(self, net: Any, batch: Any = None, training: Any = None, **kwargs: Any):
        """Update the average after a step."""
        if training and self.average_ is not None:
            _move(self.average_, _weights_of(net), self.rate)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Show the average to the callbacks after this one, also without validation samples."""
        self._put_average(net)

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Leave the average in the module."""
        self._put_average(net)

    def _put_average(self, net: Any) -> None:
        if self.raw_ is None and self.average_ is not None:
            weights = _weights_of(net)
            self.raw_ = [weight.detach().clone() for weight in weights]
            _fill(weights, self.average_)

    def _put_raw(self, net: Any) -> None:
        if self.raw_ is not None:
            _fill(_weights_of(net), self.raw_)
            self.raw_ = None

    def __getstate__(self) -> dict[str, Any]:
        # On the CPU, since a net that was trained elsewhere may be loaded there.
        return {
            name: [tensor.cpu() for tensor in value] if isinstance(value, list) else value
            for name, value in vars(self).items()
        }


class MovingAverage:
    """The average of a module's weights during one training, as the engine computes it.

    After step ``t`` the factor of the average is ``min(decay, (1 + t) / (10 + t))``: it forgets the
    initial weights quickly.

    Parameters
    ----------
    module : torch.nn.Module
        The module.
    decay : float
        The largest factor.
    """

    def __init__(self, module: torch.nn.Module, decay: float):
        self.decay, self.n_steps = decay, 0
        self.average = [_wide_copy(weight) for weight in _tensors_of(module)]
        self.raw: list[Tensor] | None = None

    def resume(self, module: torch.nn.Module, average: Tensor, raw: Tensor, n_steps: int) -> None:
        """Continue an average of the engine, which the module has now; all weights are flat."""
        weights = _tensors_of(module)
        sizes = [weight.numel() for weight in weights]
        self.average, self.raw = (
            [part.view_as(own) for part, own in zip(flat.split(sizes), weights, strict=True)]
            for flat in (average, raw)
        )
        self.n_steps = n_steps

    def update(self, module: torch.nn.Module) -> None:
        """Take in the weights after a step."""
        self.n_steps += 1
        decay = min(self.decay, (1 + self.n_steps) / (10 + self.n_steps))
        _move(self.average, _tensors_of(module), decay)

    def show(self, module: torch.nn.Module) -> None:
        """Put the average into the module, for evaluations and after training."""
        if self.raw is None:
            self.raw = [weight.detach().clone() for weight in _tensors_of(module)]
            _fill(_tensors_of(module), self.average)

    def hide(self, module: torch.nn.Module) -> None:
        """Put the raw weights back, for the next steps."""
        if self.raw is not None:
            _fill(_tensors_of(module), self.raw)
            self.raw = None


def _move(averages: Iterable[Tensor], weights: Iterable[Tensor], decay: float) -> None:
    with torch.no_grad():
        for average, weight in zip(averages, weights, strict=True):
            if average.is_floating_point():
                average.lerp_(weight.to(average.dtype), 1 - decay)
            else:
                average.copy_(weight)


def _weights_of(net: Any) -> list[Tensor]:
    return _tensors_of(net.module_)


def _tensors_of(module: torch.nn.Module) -> list[Tensor]:
    # By order, not by name: a wrapper for several devices changes the names.
    return [*module.parameters(), *module.buffers()]


def _wide_copy(weight: Tensor) -> Tensor:
    """Copy in at least single precision, fine enough for small updates."""
    copy = weight.detach().clone()
    if not copy.is_floating_point():
        return copy
    return copy.to(torch.promote_types(copy.dtype, torch.float32))


def _agree(weights: list[Tensor], others: list[Tensor]) -> bool:
    return len(weights) == len(others) and all(
        weight.shape == other.shape and torch.equal(weight, other.to(weight))
        for weight, other in zip(weights, others, strict=True)
    )


def _fill(weights: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    with torch.no_grad():
        for weight, value in zip(weights, values, strict=True):
            weight.copy_(value)
