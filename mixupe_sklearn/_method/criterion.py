"""MixupELoss: the loss of one training step, Algorithm 1 of the paper, for any torch module."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mixupe_sklearn._method.formulas import (
    HEADS,
    Draw,
    check_clean,
    directional_penalty,
    glm_loss,
    is_unmixed,
    logit_penalty,
    loss_scale,
    one_minus_lam_mean,
    penalty_weights,
    sample_lam,
    sample_partner,
    sample_share,
)
from mixupe_sklearn._method.forward import (
    as_logits,
    check_weights,
    differentiable,
    encode_targets,
    frozen_statistics,
    hidden_stages,
    mixable,
    run_stages,
)
from mixupe_sklearn._method.second_order import second_order_term, step_toward
from mixupe_sklearn._runtime.torch_state import generator_like_torch
from mixupe_sklearn._utils.parameter_rules import FLAG, Choice, Kind, Number, Rule, check_rules

# The rules of the method's parameters. The estimators check the same ones in ``fit``.
METHOD_RULES: dict[str, Rule] = {
    "method": Choice(("mixupe", "mixup", "erm", "erm+penalty")),
    "penalty": Choice(("logit", "directional")),
    "penalty_order": Number("1 or 2", low=1, high=3, integer=True),
    "alpha": Number("a number >= 0"),
    "beta": Number("a number >= 0, or None for alpha", or_none=True),
    "eta": Number("a number >= 0"),
    "penalty_fraction": Number(
        "a number above 0 and up to 1", high=math.nextafter(1.0, 2.0), open_low=True
    ),
    "lam_per": Choice(("batch", "sample")),
    "mix_at": Choice(("input", "hidden")),
    "single_pass": FLAG,
}
LOSS_RULES: dict[str, Rule] = {
    "head": Choice(tuple(HEADS)),
    "random_state": Kind(
        "an integer, a numpy Generator or None", (int, np.integer, np.random.Generator), True
    ),
}


class LossParts(NamedTuple):
    """The loss of one step and its parts; only ``loss`` carries a gradient.

    ``clean_logits`` are the logits of the samples that ran clean: all of the batch, or the
    fraction that the penalty is computed on (mixing with ``penalty_fraction`` below 1), or None
    (plain Mixup).

    Examples
    --------
    >>> parts = MixupELoss(method="erm")(torch.nn.Identity(), torch.eye(2), torch.tensor([0, 1]))
    >>> round(parts.loss.item(), 4), parts.penalty_term.item(), parts.loss_scale.item()
    (0.3133, 0.0, 1.0)
    """

    loss: Tensor
    mixup_loss: Tensor
    penalty_term: Tensor
    loss_scale: Tensor
    mixed_logits: Tensor
    clean_logits: Tensor | None


class Term(NamedTuple):
    """A term of the loss, and its gradient with respect to the logits that it comes from.

    ``grad`` is a Tensor, or None if the term is constant or autograd carries its gradient.
    """

    value: Tensor
    grad: Any = None


class CleanSamples(NamedTuple):
    """The samples that run clean.

    ``X`` is the input of the clean pass. ``batch`` holds all samples of the batch: the mean of a
    hidden state is taken over them. ``step`` is the step of the second-order penalty, or None.
    """

    X: Any
    batch: Any
    step: Tensor | None = None


class WithGradient(torch.autograd.Function):
    """A value whose gradient with respect to two tensors is already known."""

    @staticmethod
    def forward(ctx, mixed_logits, clean_logits, value, mixed_grad, clean_grad):
        ctx.save_for_backward(mixed_grad, clean_grad)
        return value.clone()

    @staticmethod
    def backward(ctx, upstream):
        if torch.is_grad_enabled():  # create_graph=True would treat the gradients as constants
            raise RuntimeError("MixupELoss has first derivatives only, but a second was asked for.")
        mixed_grad, clean_grad = ctx.saved_tensors
        clean = None if clean_grad is None else upstream * clean_grad
        return upstream * mixed_grad, clean, None, None, None


class MixupELoss(nn.Module):
    """Loss of one training step: Mixup, plus the penalty of MixupE, at the scale of Mixup.

    With ``lam ~ Beta(alpha, beta)``, a random partner for each sample, logits ``f`` and predicted
    mean ``g``::

        mixup_loss   = mean loss of module(lam X + (1-lam) X[partner]) against the mixed targets
        penalty_term = E[1-lam] * mean |q|,   q = (y - g(f(X)))' f(X)  on the clean batch
        total        = mixup_loss + eta * penalty_term
        loss         = total * loss_scale,    loss_scale = |mixup_loss| / |total|, a constant

    These are equations (7), (5), (8) and (9) of the paper.

    Parameters
    ----------
    method : {"mixupe", "mixup", "erm", "erm+penalty"}, default="mixupe"
        The four cells of the paper's ablation: mixing or not, penalty or not.
    penalty : {"logit", "directional"}, default="logit"
        ``"logit"`` is the paper's fast ``q_hat``, equation (5), as above. ``"directional"`` is its
        exact ``q``, equation (4): the derivative of the loss along ``X_mean - X``.
    penalty_order : {1, 2}, default=1
        2 adds ``E[(1-lam)^2] / 2 * mean |q2|``, where ``q2`` is the exact second derivative of
        each sample's loss toward its partner. Experimental: future work of the paper.
    alpha : float, default=0.2
        First parameter of the Beta distribution of ``lam``, *not* an L2 penalty; 0 means no mixing.
    beta : float or None, default=None
        Second parameter; None means ``alpha``.
    eta : float, default=0.01
        Weight of the penalty; 0 is plain Mixup, exactly.
    penalty_fraction : float, default=1.0
        Random fraction of each batch that the penalty is computed on: an unbiased estimate at a
        fraction of the extra time. The first partners are taken, so ``lam`` and partners do not
        depend on it. ``clean_logits`` then hold these samples only. The minimum is one sample, or
        two for a separate clean pass (``single_pass=False``).
    lam_per : {"batch", "sample"}, default="batch"
        One ``lam`` for the batch (the paper), or one for each sample.
    mix_at : {"input", "hidden"}, default="input"
        ``"hidden"`` is Manifold Mixup: the module offers ``stages`` (which its forward runs in
        order) or ``encode`` and ``head``, and each batch is mixed after a random stage. The
        directional penalty and its ``E[x']`` then refer to that hidden state, with the mean taken
        over the batch. Stages are called one by one: hooks on the module itself do not run.
    head : {"softmax", "sigmoid", "squared"}, default="softmax"
        What the logits mean: classes; one or several binary labels; real targets.
    single_pass : bool, default=True
        Whether the clean batch shares one forward pass with the mixed one. BatchNorm then
        sees both together. False runs two passes, and only the mixed one updates its running
        statistics.
    X_mean : float or Tensor, default=0.0
        ``E[x']`` for the directional penalty; zero for centred data, which the method assumes.
    random_state : int, numpy.random.Generator or None, default=None
        Source of ``lam``, partners, stages and fractions. None draws a seed from torch's global
        generator.

    References
    ----------
    Zou et al., "MixupE: Understanding and Improving Mixup from Directional Derivative
    Perspective", UAI 2023, Algorithm 1 and equations (4) to (9).

    Examples
    --------
    >>> import torch
    >>> from mixupe_sklearn import MixupELoss
    >>> module = torch.nn.Linear(4, 3)
    >>> X, y = torch.randn(8, 4), torch.randint(3, (8,))
    >>> criterion = MixupELoss(alpha=1.0, eta=0.1, random_state=0)
    >>> parts = criterion(module, X, y)
    >>> parts.loss.backward()
    >>> bool(torch.isclose(parts.loss, parts.mixup_loss))
    True
    """

    X_mean: Tensor

    def __init__(
        self,
        *,
        method: str = "mixupe",
        penalty: str = "logit",
        penalty_order: int = 1,
        alpha: float = 0.2,
        beta: float | None = None,
        eta: float = 0.01,
        penalty_fraction: float = 1.0,
        lam_per: str = "batch",
        mix_at: str = "input",
        head: str = "softmax",
        single_pass: bool = True,
        X_mean: float | Tensor = 0.0,
        random_state: int | np.random.Generator | None = None,
    ):
        super().__init__()
        check_rules(locals(), {**METHOD_RULES, **LOSS_RULES})
        self.method = method
        self.penalty = penalty
        self.penalty_order = penalty_order
        self.alpha = alpha
        self.beta = beta
        self.eta = eta
        self.penalty_fraction = penalty_fraction
        self.lam_per = lam_per
        self.mix_at = mix_at
        self.head = head
        self.single_pass = single_pass
        self.register_buffer("X_mean", torch.as_tensor(X_mean), persistent=False)
        self.rng = generator_like_torch(random_state)

    @property
    def has_mixing(self) -> bool:
        """Whether samples are mixed."""
        beta = self.alpha if self.beta is None else self.beta
        return self.method in ("mixup", "mixupe") and not is_unmixed(self.alpha, beta)

    @property
    def has_penalty(self) -> bool:
        """Whether the penalty has a positive weight; without it there is no clean pass."""
        wanted = self.method in ("mixupe", "erm+penalty")
        return wanted and self.eta * one_minus_lam_mean(self.alpha, self.beta) > 0

    @property
    def min_clean(self) -> int:
        """Minimum number of samples of a clean pass."""
        # BatchNorm needs a variance, which a single sample in a separate pass does not have.
        return 1 if self.single_pass else 2

    def forward(
        self,
        module: Any,
        X: Any,
        y: Tensor,
        sample_weight: Tensor | None = None,
        *,
        draw: Draw | None = None,
        **module_params: Any,
    ) -> LossParts:
        """Run the module on a batch and return the loss and its parts: Algorithm 1, lines 3 to 8.

        Parameters
        ----------
        module : torch.nn.Module
            The network, in training mode.
        X : Tensor of shape (n_samples, ...)
            Inputs; for ``mix_at="hidden"``, anything that ``module.encode`` takes.
        y : Tensor of shape (n_samples,) or (n_samples, n_outputs)
            Class indices, one-hot or soft targets, labels, or real targets, as the head expects.
        sample_weight : Tensor of shape (n_samples,) or None, default=None
            Weight of each sample's loss and penalty. Weights should average one over the training
            set, since a batch is averaged over its number of samples.
        draw : Draw or None, default=None
            Use this draw instead of a new one, including its ``clean`` samples: None there means
            all samples, whatever ``penalty_fraction`` is.
        **module_params
            Passed on to the module's forward.

        Returns
        -------
        parts : LossParts
            ``loss`` (call ``backward`` on it), ``mixup_loss``, ``penalty_term``, ``loss_scale``,
            and the logits.
        """
        # Line 3: sample lam, and a partner for each sample.
        stages = self.stages_of(module)
        draw = self.resolve_draw(draw, len(y), len(stages))

        # Line 4: mix the inputs, or the hidden state after some stages of the module.
        encode, rest = stages[: draw.stage], stages[draw.stage :]
        state = run_stages(encode, X, module_params) if encode else X
        X_mixed = None if draw.partner is None else draw.mix(mixable(state))
        clean = self._clean_samples(state, draw)

        def run(samples: Any) -> Tensor:
            return as_logits(run_stages(rest, samples, {} if encode else module_params))

        # Line 5: the Mixup loss.
        mixed_logits, clean_logits = self._logits(module, run, X_mixed, clean.X)
        like = draw.expand(mixed_logits, len(y))
        targets = encode_targets(y, like, self.head)
        weight = check_weights(sample_weight, like)
        mixup = self._mixup_loss(mixed_logits, targets, weight, draw)
        # Lines 6 and 7: q on the clean samples, and the penalty R of equation (7).
        penalty = self._penalty(clean_logits, clean, targets, weight, draw)
        # Line 8: both at the scale of the Mixup loss, equations (8) and (9).
        return self._scaled(*draw.reduce(mixup, penalty), mixed_logits, clean_logits)

    def draw(self, n_samples: int, n_stages: int = 1) -> Draw:
        """Draw ``lam``, partners, stage and clean samples of one step, as the method needs them.

        The first partners are the clean samples; they are drawn only if nothing is mixed.
        """
        draw = Draw(stage=int(self.rng.integers(1, n_stages)) if n_stages > 1 else 0)
        if self.has_mixing:
            beta = self.alpha if self.beta is None else self.beta
            size = n_samples if self.lam_per == "sample" else None
            lam = sample_lam(self.alpha, beta, self.rng, size)
            draw = draw._replace(lam=lam, partner=sample_partner(n_samples, self.rng))
        elif self._has_second_order:
            draw = draw._replace(toward=sample_partner(n_samples, self.rng))
        if self.penalty_fraction == 1 or not self.has_penalty:
            return draw
        fraction, least = self.penalty_fraction, self.min_clean
        clean = sample_share(n_samples, fraction, self.rng, least, draw.partner)
        return draw._replace(clean=clean)

    def resolve_draw(self, given: Draw | None, n_samples: int, n_stages: int) -> Draw:
        """The draw of a step: a new one, or a given one, checked and adapted to the method."""
        if given is None:
            return self.draw(n_samples, n_stages)
        draw = given
        if given.partner is not None and not self.has_mixing:
            draw = self.draw(n_samples, n_stages)._replace(clean=given.clean)
        elif given.partner is None and given.toward is None and self._has_second_order:
            draw = given._replace(toward=sample_partner(n_samples, self.rng))
        if draw.stage >= n_stages:
            raise ValueError(f"Got draw.stage={draw.stage}, but expected below {n_stages}.")
        check_clean(draw.clean, n_samples)
        return draw

    def stages_of(self, module: Any) -> list[Callable[..., Any]]:
        """The stages that a step runs: the module, or its parts if a hidden state is mixed."""
        if self.mix_at == "input" or not (self.has_mixing or self._needs_input_grad):
            return [module]
        return hidden_stages(module)

    def clean_loss(self, logits: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Mean loss of given logits, unmixed and without penalty: the validation loss."""
        logits = as_logits(logits)
        targets = encode_targets(y, logits, self.head)
        weight = check_weights(sample_weight, logits)
        targets = targets if weight is None else weight[:, None] * targets
        return glm_loss(logits, targets, weight, self.head)[0].mean()

    def predicted_mean(self, logits: Tensor) -> Tensor:
        """Turn logits into probabilities (classes and labels) or return them (real targets)."""
        return HEADS[self.head].mean(as_logits(logits))

    @property
    def _has_second_order(self) -> bool:
        return self.has_penalty and self.penalty_order == 2

    @property
    def _needs_input_grad(self) -> bool:
        return self.has_penalty and (self.penalty == "directional" or self.penalty_order == 2)

    def _clean_samples(self, state: Any, draw: Draw) -> CleanSamples:
        """The samples that run clean: all of them if nothing is mixed."""
        X, step = draw.take_clean(state), None
        is_all = X is state
        X = differentiable(X) if self._needs_input_grad else X
        if self._has_second_order:
            X, step = step_toward(X, mixable(state), draw.others())
        return CleanSamples(X, X if is_all else state, step)

    def _logits(
        self, module: Any, run: Callable[[Any], Tensor], X_mixed: Tensor | None, X_clean: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the mixed and of the clean samples; None if no clean samples need to run."""
        if X_mixed is None:
            logits = run(X_clean)
            return logits, logits
        if not self.has_penalty:
            return run(X_mixed), None
        if self.single_pass:
            both = run(torch.cat([X_mixed, X_clean]))
            return both[: len(X_mixed)], both[len(X_mixed) :]
        mixed_logits = run(X_mixed)
        with frozen_statistics(module):
            return mixed_logits, run(X_clean)

    @torch.no_grad()
    def _mixup_loss(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None, draw: Draw
    ) -> Term:
        """Mean loss of the mixed samples, with its gradient with respect to their logits."""
        targets = draw.mix(targets if weight is None else weight[:, None] * targets)
        weight = None if weight is None else draw.mix(weight)
        losses, grad = glm_loss(logits, targets, weight, self.head)
        return Term(losses.mean(), grad / len(losses))

    def _penalty(
        self,
        logits: Tensor | None,
        clean: CleanSamples,
        targets: Tensor,
        weight: Tensor | None,
        draw: Draw,
    ) -> Term:
        """``R`` of equation (7), with the gradient of ``eta * R`` if it has a closed form."""
        if logits is None or not self.has_penalty:
            return Term(torch.zeros((), dtype=targets.dtype, device=targets.device))
        weight = torch.ones_like(targets[:, 0]) if weight is None else weight
        weights = penalty_weights(one_minus_lam_mean(self.alpha, self.beta), weight, draw.clean)
        targets, weights = draw.take_clean(targets), draw.take_clean(weights)
        if not self._needs_input_grad:
            with torch.no_grad():
                q_hat, grad = logit_penalty(logits, targets, self.head)
                grad = (self.eta * weights * q_hat.sign())[:, None] * grad
                return Term((weights * q_hat.abs()).sum(), grad)
        if self.penalty == "directional":
            X_mean = self._mean_of(clean.batch, weight) if draw.stage else self.X_mean
            q = directional_penalty(logits, clean.X, targets, X_mean, self.head)
        else:
            q = logit_penalty(logits, targets, self.head)[0]
        value = (weights * q.abs()).sum()
        if clean.step is not None:
            mixing = (self.alpha, self.beta, self.head)
            value = value + second_order_term(logits, targets, weights, clean.step, *mixing)
        return Term(value)

    @staticmethod
    def _mean_of(state: Tensor, weight: Tensor) -> Tensor:
        """``E[x']`` of a hidden state, which is known for this batch only."""
        return torch.tensordot(weight, state.to(weight.dtype), dims=1) / weight.sum()

    def _scaled(
        self, mixup: Term, penalty: Term, mixed_logits: Tensor, clean_logits: Tensor | None
    ) -> LossParts:
        """``mixup_loss + eta * R`` at the scale of the first, equations (8) and (9)."""
        total = mixup.value + self.eta * penalty.value
        scale = loss_scale(mixup.value, total.detach())
        if penalty.grad is None:  # no penalty, or autograd carries its gradient
            mixup_loss = WithGradient.apply(mixed_logits, None, mixup.value, mixup.grad, None)
            loss = scale * (mixup_loss + self.eta * penalty.value)
        else:
            grads = (scale * mixup.grad, scale * penalty.grad)
            loss = WithGradient.apply(mixed_logits, clean_logits, scale * total, *grads)
        if clean_logits is not None:
            clean_logits = clean_logits.detach()
        mixed_logits, penalty_term = mixed_logits.detach(), penalty.value.detach()
        return LossParts(loss, mixup.value, penalty_term, scale, mixed_logits, clean_logits)
