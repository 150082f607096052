"""Base class of the classifiers for images and spectrograms: samples of shape (c, h, w)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from mixupe_sklearn._data.dataloader import Loader
from mixupe_sklearn._data.rows import Rows, Tensors, free_memory, on_device
from mixupe_sklearn._distributed.net import DistributedNet
from mixupe_sklearn._distributed.process_group import own_device, same_seed, trains_together
from mixupe_sklearn._images.read import channel_statistics
from mixupe_sklearn._net.autograd import first_rows
from mixupe_sklearn._net.net import MixupENet, float_type
from mixupe_sklearn._runtime.torch_state import resolve_device
from mixupe_sklearn._utils.parameter_rules import Number, check_rules
from mixupe_sklearn.adapters._base import AdapterClassifier
from mixupe_sklearn.adapters._input_transform import FEW_CHANNELS, Prepare, is_unsafe_last
from mixupe_sklearn.modules import NAMED

N_WORKERS = Number("an integer >= 0", integer=True)
SWITCHES = ("amp", "channels_last", "distributed")


class ImageLikeClassifier(AdapterClassifier):
    """Fit and predict. The subclasses read the samples."""

    _modules = NAMED
    _fixed_names = (*AdapterClassifier._fixed_names, "amp", "channels_last")
    # The activations are many times larger than the samples.
    _rows_at_once = 256

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

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

    def _begin(self, X, y, sample_weight, *, is_new, learn) -> Rows:
        check_rules(vars(self), {"n_workers": N_WORKERS})
        for name in SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, bool) and value != "auto":
                raise ValueError(f"Got {name}={value!r}, but expected True, False or 'auto'.")
        self._make_augmentation()  # raises an error for an unknown name
        return super()._begin(X, y, sample_weight, is_new=is_new, learn=learn)

    def _validate_rows(self, X, *, reset, name="X"):
        """Check that samples have the shape of the training samples."""
        shape = tuple(X.shape[1:])
        if reset:
            self.shape_in_ = shape
        elif shape != self.shape_in_:
            raise ValueError(
                f"Got {name} of shape {shape} per sample (channels, height, width), but expected "
                f"{self.shape_in_}, as in fit."
            )
        return X

    def _select(self, X: Any, is_wanted: np.ndarray) -> Any:
        if isinstance(X, Tensor):
            return X[torch.from_numpy(is_wanted)]
        part: Any = Subset(X, np.flatnonzero(is_wanted).tolist())
        part.shape = (len(part), *X.shape[1:])
        return part

    def _learn_inputs(self, train: Rows) -> None:
        self.X_mean_, self.X_std_ = channel_statistics(
            train.X, train.index, train.weight, n_workers=self.n_workers
        )

    def _widths(self) -> dict[str, Any]:
        n_channels, *size = self.shape_in_
        n_outputs = self._n_outputs()
        ours = {"n_outputs": n_outputs, "n_channels": n_channels, "image_size": tuple(size)}
        # Argument names of timm and torchvision.
        theirs = {"num_classes": n_outputs, "in_chans": n_channels, "img_size": tuple(size)}
        return {**ours, **theirs, "in_channels": n_channels}

    def _try_out(self, net: Any, train: Rows) -> int:
        """Run a new module on two samples: its output width, and an estimate of its work."""
        self._equip(net)
        few = net._prepared(first_rows(train.X), training=False)
        logits, net._work = self._run_once(net.module_, few)
        return int(logits.shape[1])

    def _equip(self, net: Any) -> None:
        """Set the input transform, precision and memory format of a net."""
        is_last = self._is_last(net)
        if is_last:
            net.module_.to(memory_format=torch.channels_last)
        augment = self._make_augmentation()
        net._prepare = Prepare(self.X_mean_, self.X_std_, float_type(net), augment, is_last)
        is_low = self.amp
        if is_low == "auto":  # on a CPU, bfloat16 took two to three times as long
            is_low = torch.device(net.device).type == "cuda" and torch.cuda.is_bf16_supported()
        net._precision = torch.bfloat16 if is_low else None
        net._n_workers = self.n_workers

    def _is_last(self, net: Any) -> bool:
        """Whether the module runs in the memory format channels last."""
        device = torch.device(net.device).type
        is_unsafe = device == "cpu" and is_unsafe_last(net.module_)
        if self.channels_last == "auto":
            # A user's module may rely on the default format, for example with ``view``.
            is_ours = type(net.module_).__module__.startswith("mixupe_sklearn.modules.")
            return is_ours and device in ("cpu", "cuda") and not is_unsafe
        if self.channels_last and is_unsafe:
            raise ValueError(
                f"Got channels_last=True on a CPU with a 1 x 1 convolution with a stride "
                f"whose inputs have fewer than {FEW_CHANNELS} channels, but expected 'auto' or "
                f"False: torch may damage the memory of the process there."
            )
        return self.channels_last

    def _continue_training(self) -> None:
        super()._continue_training()
        self._equip(self.net_)

    def _tensors(self, net: Any, rows: Rows) -> Tensors:
        y, weight = self._targets(net, rows)
        if not isinstance(rows.X, Tensor):
            return rows.X, y, weight
        device = torch.device(net.device)
        X, y, weight = on_device((rows.X, y, weight), device, free_memory(device))
        return X, y, weight

    def _in_batches(self, data: Any) -> Iterator[Tensor]:
        if isinstance(data, Tensor):
            return iter(data.split(self._rows_at_once))
        # Its own generator: torch's global one stays unchanged.
        how = {"num_workers": self.n_workers, "generator": torch.Generator()}
        return iter(Loader(data, batch_size=self._rows_at_once, **how))
