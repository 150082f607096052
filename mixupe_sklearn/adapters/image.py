"""MixupEImageClassifier: MixupE for images."""

from typing import Any

from mixupe_sklearn._images.augment import make_augmentation
from mixupe_sklearn._images.read import read_images
from mixupe_sklearn.adapters._image_like import ImageLikeClassifier


class MixupEImageClassifier(ImageLikeClassifier):
    """Neural network classifier for images, trained with MixupE.

    ``X`` is an array ``(n, h, w)``, ``(n, h, w, c)`` or ``(n, c, h, w)`` of bytes or of floats in
    [0, 1] or [0, 255]; a list of arrays, of PIL images or of files; the path of a folder with a
    folder for each class; or a torch ``Dataset`` of images and labels, for data larger than the
    memory.

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
    alpha : float, default=1.0
        Parameter of the Beta distribution that mixing weights are drawn from, *not* an L2 penalty
        (that is ``weight_decay``). 0 means no mixing; larger values mix more.
    beta : float or None, default=None
        Second parameter of the Beta distribution; None means ``alpha``.
    eta : float, default=0.001
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
    module : str, class or callable, default="preactresnet18"
        The network: ``"preactresnet18"``, ``"preactresnet34"``, ``"preactresnet50"``,
        ``"preactresnet101"``, ``"wideresnet28-10"``, ``"resnet50"``, ``"vit-b16"``,
        ``"coatnet0"``, ``"lenet"``, ``"vgg11"`` or ``"vgg13"``; or a torch module class, from timm
        or elsewhere, or a function that returns a new module. Arguments named ``n_outputs`` or
        ``num_classes``, ``n_channels``, ``in_chans`` or ``in_channels``, ``image_size`` or
        ``img_size`` are filled in. It returns logits.
    module_params : dict or None, default=None
        Further arguments of the module, for instance ``{"width": 16}`` for a small network.
    image_size : tuple of int or None, default=None
        Height and width to which images are resized. None requires images of one size.
    value_range : tuple of float or None, default=None
        The minimum and maximum value of a pixel. None means 0 to 255 for integers, 0 to 1 for
        floats within [0, 1], and 0 to 255 for other floats within [0, 255].
    augment : {"flip", "crop-flip", "resized-crop-flip"}, callable or None, default=None
        Augmentation of a training batch before mixing: horizontal flips; crops after padding by
        four pixels, and flips; resized crops, and flips; or a function of a tensor
        ``(n, c, h, w)`` of normalised images that returns a tensor of the same shape.
    optimizer : {"adam", "adamw", "nadam", "rmsprop", "sgd"} or class, default="adam"
        The optimizer, by name or as a torch class.
    optimizer_params : dict or None, default=None
        Further arguments of the optimizer, for instance ``{"momentum": 0.9}``.
    lr : float, default=0.001
        Learning rate.
    lr_schedule : {"constant", "cosine", "onecycle"}, default="cosine"
        The learning-rate schedule over the steps of ``fit``. Callbacks provide others.
    weight_decay : float, default=0.0
        L2 penalty of the optimizer.
    max_epochs : int, default=30
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
        Mean and standard deviation of each channel on the scale of [0, 1], for normalising inputs.
        The derivation of the method assumes a zero mean.
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
    MixupESpeechClassifier : MixupE for audio.
    mixupe_sklearn.recipes.recipe : The paper's settings for its image datasets.

    References
    ----------
    Zou et al., "MixupE: Understanding and Improving Mixup from Directional Derivative
    Perspective", UAI 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mixupe_sklearn import MixupEImageClassifier
    >>> digits = load_digits()
    >>> X, y = digits.images[:500] / 16, digits.target[:500]
    >>> small = {"width": 8, "blocks": (1, 1)}
    >>> classifier = MixupEImageClassifier(module_params=small, lr=0.01, batch_size=10,
    ...                                    max_epochs=6, random_state=0)
    >>> bool(classifier.fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.5)
    True
    """

    def __init__(
        self,
        *,
        method="mixupe",
        penalty="logit",
        penalty_order=1,
        alpha=1.0,
        beta=None,
        eta=0.001,
        penalty_fraction=1.0,
        lam_per="batch",
        mix_at="input",
        single_pass=True,
        module="preactresnet18",
        module_params=None,
        image_size=None,
        value_range=None,
        augment=None,
        optimizer="adam",
        optimizer_params=None,
        lr=0.001,
        lr_schedule="cosine",
        weight_decay=0.0,
        max_epochs=30,
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
        self.image_size = image_size
        self.value_range = value_range
        self.augment = augment
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

    _fixed_names = (*ImageLikeClassifier._fixed_names, "image_size", "value_range")
    _with_labels = "a folder of class folders, or a Dataset of pairs (image, label)"
    # Size, value range and channels of the images in fit.
    _known: dict[str, Any]

    def _read(self, X: Any, name: str, *, is_new: bool, labelled: bool) -> tuple[Any, Any]:
        own = {"image_size": self.image_size, "value_range": self.value_range}
        known = own if is_new else self._known
        read = read_images(X, **known, labelled=labelled, n_workers=self.n_workers, name=name)
        if is_new:
            n_channels = read.shape[1] if read.shape[1] in (1, 3) else None
            known = {"float_range": read.float_range, "n_channels": n_channels}
            self._known = own | known | {"n_classes": 1}
        return read.data, read.labels

    def _make_augmentation(self) -> Any:
        return make_augmentation(self.augment)
