"""MixupESpeechClassifier: MixupE for short audio clips, such as spoken words."""

from typing import Any

import numpy as np
import torch

from mixupe_sklearn._audio.spectrogram import Spectrogram
from mixupe_sklearn._audio.waveforms import read_waveforms
from mixupe_sklearn._images.arrays import as_tensor
from mixupe_sklearn.adapters._image_like import ImageLikeClassifier

# An axis of at most this size holds the channels of waveforms, mono or stereo.
CHANNELS = 2


class MixupESpeechClassifier(ImageLikeClassifier):
    """Neural network classifier for short audio clips, trained with MixupE.

    ``X`` is a list of waveforms, of equal length or not; a list of files; or the path of a folder
    with a folder for each word. Each waveform becomes a normalised spectrogram of 160 frequencies
    and 101 frames, as in the paper (see :class:`Spectrogram`). An array ``(n, h, w)`` of
    precomputed spectrograms is used unchanged.

    Parameters
    ----------
    method : {"mixupe", "mixup", "erm", "erm+penalty"}, default="mixupe"
        The training method: the paper's MixupE, plain Mixup, no mixing, or the penalty alone.
    penalty : {"logit", "directional"}, default="logit"
        The paper's fast penalty from the logits, or its exact form, the derivative of the loss
        along the direction to the mean, which is zero in each channel.
    penalty_order : {1, 2}, default=1
        2 adds the second-order directional term, exact; experimental, and slower. See
        :class:`MixupELoss`.
    alpha : float, default=0.2
        Parameter of the Beta distribution that mixing weights are drawn from, *not* an L2 penalty
        (that is ``weight_decay``). 0 means no mixing; larger values mix more.
    beta : float or None, default=None
        Second parameter of the Beta distribution; None means ``alpha``.
    eta : float, default=0.01
        Weight of the penalty; 0 is plain Mixup, exactly.
    penalty_fraction : float, default=1.0
        Fraction of each batch, drawn at random, that the penalty is computed on: an unbiased
        estimate at a fraction of the extra time.
    lam_per : {"batch", "sample"}, default="batch"
        One mixing weight for each batch (the paper) or for each sample.
    mix_at : {"input", "hidden"}, default="input"
        Where samples are mixed. ``"hidden"`` is Manifold Mixup, after a stage of the module that
        is drawn for each batch.
    single_pass : bool, default=True
        Whether mixed and clean samples share one forward pass, in which BatchNorm uses both. False
        runs two passes, and only the mixed one updates the running statistics, as in plain Mixup.
    module : str, class or callable, default="lenet"
        The network: ``"lenet"``, ``"vgg11"``, ``"vgg13"``, or another name of
        :class:`MixupEImageClassifier`; or a torch module class, or a function that returns a new
        module. Arguments named ``n_outputs`` or ``num_classes``, ``n_channels``, ``in_chans`` or
        ``in_channels``, ``image_size`` or ``img_size`` are set automatically. It returns logits.
    module_params : dict or None, default=None
        Further arguments of the module, for instance ``{"width": 16}`` for a small network.
    sampling_rate : int, default=16000
        Sampling rate of the waveforms in Hz. Files with other rates are resampled.
    cache : str, pathlib.Path or None, default=None
        Folder that caches spectrograms. None computes them each time.
    optimizer : {"adam", "adamw", "nadam", "rmsprop", "sgd"} or class, default="adam"
        The optimizer, by name or as a torch class.
    optimizer_params : dict or None, default=None
        Further arguments of the optimizer, for instance ``{"momentum": 0.9}``.
    lr : float, default=0.001
        Learning rate.
    lr_schedule : {"constant", "cosine", "onecycle"}, default="constant"
        The learning-rate schedule over the steps of ``fit``. Callbacks provide others.
    weight_decay : float, default=0.0
        L2 penalty of the optimizer.
    max_epochs : int, default=20
        Number of passes over the samples.
    batch_size : int, default=100
        Samples per step.
    class_weight : dict, list of dicts, "balanced" or None, default=None
        Weight of each class, multiplied with ``sample_weight``.
    early_stopping : bool, default=False
        Whether training stops when the validation loss no longer decreases, and keeps the weights
        of the best epoch. It is computed on ``X_val``, else on held-out samples.
    validation_fraction : float, default=0.1
        The held-out fraction, if ``early_stopping`` and no ``X_val`` is given.
    n_iter_no_change : int, default=10
        Epochs without an improvement of at least ``tol`` before training stops early.
    tol : float, default=1e-4
        Smallest decrease of the validation loss that counts as an improvement.
    warm_start : bool, default=False
        Whether ``fit`` continues from the weights of the last fit.
    callbacks : list of skorch callbacks or None, default=None
        Added to the net, for instance :class:`mixupe_sklearn.callbacks.PolyakAverage`.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        Where to train. ``"auto"`` uses a CUDA device if there is one.
    n_threads : int or None, default=None
        Threads of torch during training. None chooses by the work of a batch, within the limit that
        the user or joblib has set.
    compile : bool, default=False
        Whether the module is compiled with ``torch.compile`` for training.
    amp : bool or "auto", default="auto"
        Whether the module computes in bfloat16, with weights in single precision. ``"auto"`` does
        so on CUDA devices that support it.
    channels_last : bool or "auto", default="auto"
        Whether to use the memory format channels last, in which convolutions are faster. ``"auto"``
        does so for the modules of this package where it is safe.
    n_workers : int, default=0
        Number of processes that read samples which are not in memory.
    distributed : bool or "auto", default="auto"
        Whether all processes that ``torchrun`` has started train one network (extra
        ``distributed``). ``"auto"`` does so if there is more than one.
    random_state : int, RandomState instance or None, default=None
        Seed of initial weights, order, mixing, augmentation and dropout.
    verbose : int, default=0
        1 shows a progress bar, 2 prints a line for each epoch.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    net_ : MixupENet
        The skorch net; ``net_.module_`` is the trained torch module.
    shape_in_ : tuple
        Channels, height and width of a sample.
    X_mean_, X_std_ : ndarray of shape (n_channels,)
        Mean and standard deviation of the spectrograms, for normalising inputs. The derivation of
        the method assumes a zero mean.
    history_ : list of dict
        The record of each epoch, including ``train_loss``, ``train_mixup_loss``,
        ``train_penalty``, ``loss_scale``, ``dur`` (seconds), and ``valid_loss`` if there are
        validation samples.
    loss_curve_ : list of float
        Training loss of each epoch.
    n_iter_ : int
        Number of epochs run.

    See Also
    --------
    MixupEImageClassifier : MixupE for images.
    Spectrogram : The transformer that this classifier uses.

    References
    ----------
    Zou et al., "MixupE: Understanding and Improving Mixup from Directional Derivative
    Perspective", UAI 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from mixupe_sklearn import MixupESpeechClassifier
    >>> rng, time = np.random.default_rng(0), np.arange(8000) / 16000
    >>> pitch = rng.choice([400.0, 1600.0], 40)
    >>> X = [np.sin(2 * np.pi * (f + rng.normal(0, 20)) * time) for f in pitch]
    >>> small = {"channels": (4, 4), "d_hidden": (16,)}
    >>> classifier = MixupESpeechClassifier(module_params=small, lr=0.01, max_epochs=4,
    ...                                     batch_size=6, random_state=0)
    >>> bool(classifier.fit(X[:30], pitch[:30]).score(X[30:], pitch[30:]) > 0.9)
    True
    """

    def __init__(
        self,
        *,
        method="mixupe",
        penalty="logit",
        penalty_order=1,
        alpha=0.2,
        beta=None,
        eta=0.01,
        penalty_fraction=1.0,
        lam_per="batch",
        mix_at="input",
        single_pass=True,
        module="lenet",
        module_params=None,
        sampling_rate=16000,
        cache=None,
        optimizer="adam",
        optimizer_params=None,
        lr=0.001,
        lr_schedule="constant",
        weight_decay=0.0,
        max_epochs=20,
        batch_size=100,
        class_weight=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        warm_start=False,
        callbacks=None,
        device="auto",
        n_threads=None,
        compile=False,
        amp="auto",
        channels_last="auto",
        n_workers=0,
        distributed="auto",
        random_state=None,
        verbose=0,
    ):
        self.method = method
        self.penalty = penalty
        self.penalty_order = penalty_order
        self.alpha = alpha
        self.beta = beta
        self.eta = eta
        self.penalty_fraction = penalty_fraction
        self.lam_per = lam_per
        self.mix_at = mix_at
        self.single_pass = single_pass
        self.module = module
        self.module_params = module_params
        self.sampling_rate = sampling_rate
        self.cache = cache
        self.optimizer = optimizer
        self.optimizer_params = optimizer_params
        self.lr = lr
        self.lr_schedule = lr_schedule
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.device = device
        self.n_threads = n_threads
        self.compile = compile
        self.amp = amp
        self.channels_last = channels_last
        self.n_workers = n_workers
        self.distributed = distributed
        self.random_state = random_state
        self.verbose = verbose

    _fixed_names = (*ImageLikeClassifier._fixed_names, "sampling_rate")
    _with_labels = "a folder of word folders"
    # The sampling rate in fit, even if the parameter changes later.
    _rate: int

    def _read(self, X: Any, name: str, *, is_new: bool, labelled: bool) -> tuple[Any, Any]:
        if is_new:
            self._rate = self.sampling_rate
        spectrograms = _precomputed(X, name)
        if spectrograms is not None:
            return spectrograms, None
        n_words = 2 if is_new else 1
        audio = read_waveforms(
            X, sampling_rate=self._rate, name=name, labelled=labelled, n_words=n_words
        )
        transformer = Spectrogram(sampling_rate=self._rate, cache=self.cache)
        spectrograms = as_tensor(transformer.transform(audio), name)
        return spectrograms[:, None], audio.labels


def _precomputed(X: Any, name: str) -> torch.Tensor | None:
    """Precomputed spectrograms as a tensor with one channel, or None for other input."""
    n_axes = getattr(X, "ndim", 0)
    if n_axes not in (3, 4) or (n_axes == 4 and X.shape[1] != 1):
        return None
    if min(X.shape[-2:]) <= CHANNELS:
        raise ValueError(
            f"Got {name} of shape {tuple(X.shape)}, but expected waveforms (n, n_values), averaged "
            f"over their channels, or spectrograms with a height and width above {CHANNELS}."
        )
    is_torch = isinstance(X, torch.Tensor)
    tensor = as_tensor(X if is_torch else np.asarray(X), name)
    if not tensor.is_floating_point():
        raise ValueError(
            f"Got {name} of {tensor.dtype} in {n_axes} dimensions, but expected spectrograms of "
            f"floats (the logarithm of magnitudes), or waveforms in a list."
        )
    tensor = tensor if is_torch else tensor.float().contiguous()
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"Got {name} with NaN or infinity, but expected finite spectrograms.")
    return tensor[:, None] if tensor.ndim == 3 else tensor
