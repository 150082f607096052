"""What a recipe is: one training as plain data, and the estimator that is trained like that."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from skorch.callbacks import LRScheduler

from mixupe_sklearn._utils.parameter_rules import Number, check_rules
from mixupe_sklearn.callbacks import PolyakAverage, WarmupCosine

SCALE = Number("a number above 0 and at most 1", high=math.nextafter(1, 2), open_low=True)
# No layer of a small trial is narrower.
LEAST_WIDTH = 8
# The widths of attention heads, which stay as they are, since widths are multiples of them.
D_HEAD_VIT, D_HEAD_COATNET = 64, 32
# By method, what the paper reports and its deviation over repetitions, where it gives one.
Figures = Mapping[str, tuple[float, float | None]]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training of the paper.

    Parameters
    ----------
    name : str
        Its name among ``RECIPES``.
    kind : {"image", "speech"}
        Which estimator it is for.
    dataset : str
        The data set, in the paper's words.
    n_outputs : int
        How many classes that has.
    image_size : tuple of int
        Height and width of a picture, or of a spectrogram.
    module : str
        The network's name.
    alpha, eta : float
        The parameters of the method.
    source : str
        Where in the paper the figures are.
    figures : dict
        What the paper reports, in percent: for each metric and each method a mean, and its standard
        deviation or None.
    notes : tuple of str, default=()
        What the paper does not say, and what was taken instead.
    module_params : dict, default={}
        Further parameters of the network.
    optimizer : {"adam", "adamw", "sgd"}, default="sgd"
        The optimizer.
    optimizer_params : dict, default={}
        Further parameters of the optimizer.
    lr, weight_decay : float
        Peak of the learning rate, and L2 penalty (decoupled for AdamW).
    batch_size : int, default=100
        Rows of a batch.
    max_epochs : int, default=None
        Length of the training, or None where the paper counts steps.
    n_steps : int, default=None
        Length of the training in steps.
    n_train : int, default=None
        Training rows of the data set, where they are needed to tell epochs from steps.
    schedule : {"constant", "milestones", "warmup-cosine"}, default="constant"
        How the learning rate moves.
    milestones : tuple of int, default=()
        Epochs after which the learning rate is divided by ten.
    n_warmup : int, default=0
        Steps in which it rises.
    final : float, default=1.0
        What is left of the peak at the end of a cosine.
    polyak_rate : float, default=None
        Rate of the moving average of weights, if there is one.
    augment : str, default=None
        How training pictures are changed at random.

    Examples
    --------
    >>> from mixupe_sklearn.recipes import recipe
    >>> found = recipe("imagenet-vit-b16")
    >>> found.optimizer, found.weight_decay, found.n_steps, found.n_epochs
    ('adamw', 0.3, 100000, 320)
    >>> found.figures["top-1 accuracy"]["mixupe"]
    (80.4, 0.1)
    """

    name: str
    kind: str
    dataset: str
    n_outputs: int
    image_size: tuple[int, int]
    module: str
    alpha: float
    eta: float
    source: str
    figures: Mapping[str, Figures]
    notes: tuple[str, ...] = ()
    module_params: Mapping[str, Any] = field(default_factory=dict)
    optimizer: str = "sgd"
    optimizer_params: Mapping[str, Any] = field(default_factory=dict)
    lr: float
    weight_decay: float
    batch_size: int = 100
    max_epochs: int | None = None
    n_steps: int | None = None
    n_train: int | None = None
    schedule: str = "constant"
    milestones: tuple[int, ...] = ()
    n_warmup: int = 0
    final: float = 1.0
    polyak_rate: float | None = None
    augment: str | None = None

    @property
    def n_epochs(self) -> int:
        """How many epochs there are; as many whole ones as the steps need, where these count."""
        if self.n_steps is None or self.n_train is None:
            return self.max_epochs or 1
        return math.ceil(self.n_steps / math.ceil(self.n_train / self.batch_size))

    def make_estimator(self, scale: float = 1.0, method: str = "mixupe", **overrides: Any) -> Any:
        """Return an estimator, not yet fitted, that is trained like this.

        Parameters
        ----------
        scale : float, default=1.0
            A scale below 1 makes a small trial of the recipe. Multiplied with it, and rounded, are
            the epochs and milestones (1 at least) and the widths of the network: its layers (8 at
            least), the widening factor of a Wide-ResNet (1 at least), the attention heads of ViT
            and CoAtNet (1 at least, each as wide as ever). A warm-up stays the same share of all
            steps. The average of weights forgets over the same share of the training: its rate is
            raised to the power ``1 / scale``. All else stays: depth, batches, learning rate, decay,
            alpha, eta and the size of pictures. A trial of an ImageNet recipe on a processor needs
            a smaller ``batch_size`` and ``image_size`` too.
        method : {"mixupe", "mixup", "erm", "erm+penalty"}, default="mixupe"
            Which of the paper's methods.
        **overrides
            Parameters of the estimator that are to be others. ``module_params`` are added to those
            of the recipe; ``callbacks`` stand in place of its schedule and average.

        Returns
        -------
        estimator : MixupEImageClassifier or MixupESpeechClassifier

        Notes
        -----
        A training whose length is given in steps is one of whole epochs: 100,000 steps of 4096 of
        1,281,167 pictures are 320 epochs of 313 steps (100,160). The schedule spans the steps that
        the estimator takes, with the warm-up as a share of them, so that it fits any data set.

        Examples
        --------
        >>> from mixupe_sklearn.recipes import recipe
        >>> trial = recipe("cifar100-preactresnet50").make_estimator(scale=0.25, random_state=0)
        >>> trial.max_epochs, trial.callbacks[0].milestones, trial.module_params
        (50, [25, 38], {'width': 16})
        """
        check_rules({"scale": scale}, {"scale": SCALE})
        settings = self._settings(scale, method)
        added = overrides.pop("module_params", None) or {}
        module_params = {**self.module_params, **narrow(self.module, scale), **added}
        settings |= {"module_params": module_params or None, **overrides}
        if self.kind == "speech":
            from mixupe_sklearn.adapters.speech import MixupESpeechClassifier

            return MixupESpeechClassifier(**settings)
        from mixupe_sklearn.adapters.image import MixupEImageClassifier

        return MixupEImageClassifier(
            **{"image_size": self.image_size, "augment": self.augment, **settings}
        )

    def _settings(self, scale: float, method: str) -> dict[str, Any]:
        names = ("module", "alpha", "eta", "optimizer", "lr", "weight_decay", "batch_size")
        return {
            **{name: getattr(self, name) for name in names},
            "method": method,
            "optimizer_params": dict(self.optimizer_params) or None,
            "lr_schedule": "constant",
            "max_epochs": _part_of(self.n_epochs, scale),
            "callbacks": list(self._callbacks(scale)) or None,
        }

    def _callbacks(self, scale: float) -> Iterator[Any]:
        if self.schedule == "milestones":
            milestones = [_part_of(epoch, scale) for epoch in self.milestones]
            yield LRScheduler(policy="MultiStepLR", milestones=milestones, gamma=0.1)
        if self.schedule == "warmup-cosine":
            yield WarmupCosine(n_warmup=self.n_warmup / (self.n_steps or 1), final=self.final)
        if self.polyak_rate is not None:
            yield PolyakAverage(rate=self.polyak_rate ** (1 / scale))


def _part_of(number: int, scale: float, least: int = 1) -> int:
    return max(least, round(number * scale))


def narrow(module: str, scale: float) -> dict[str, Any]:
    """What makes a network narrower: its widths, multiplied with a scale.

    Parameters
    ----------
    module : str
        Name of the network.
    scale : float
        Below 1; there is nothing to do at 1.

    Returns
    -------
    module_params : dict

    Examples
    --------
    >>> narrow("vgg11", 0.25), narrow("vit-b16", 0.25), narrow("wideresnet28-10", 0.25)
    ({'width': 16, 'd_hidden': 128}, {'n_heads': 3, 'd_model': 192}, {'widening': 2})
    """
    if scale == 1:
        return {}
    if module == "lenet":
        channels, hidden = (_part_of(width, scale, LEAST_WIDTH) for width in (20, 1000))
        return {"channels": (channels, channels), "d_hidden": (hidden,)}
    if module == "wideresnet28-10":
        return {"widening": _part_of(10, scale)}
    if module == "vit-b16":
        n_heads = _part_of(12, scale)
        return {"n_heads": n_heads, "d_model": D_HEAD_VIT * n_heads}
    if module == "coatnet0":
        heads = (_part_of(n_heads, scale) for n_heads in (2, 3, 6, 12, 24))
        return {"widths": tuple(D_HEAD_COATNET * n_heads for n_heads in heads)}
    widths = {"width": 64, "d_hidden": 512} if module.startswith("vgg") else {"width": 64}
    return {name: _part_of(width, scale, LEAST_WIDTH) for name, width in widths.items()}
