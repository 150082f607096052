"""MixupELoss: the loss of one training step, for any torch module."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mixupe_sklearn._distributed.sharding import Own, Shard, WithGradient, cut, joined, own_part
from mixupe_sklearn._method.forward import (
    as_logits,
    check_row_weights,
    differentiable,
    encode_targets,
    frozen_statistics,
    hidden_stages,
    mixable,
    run_stages,
)
from mixupe_sklearn._method.mixup import (
    Draw,
    check_clean,
    is_unmixed,
    mix,
    sample_lam,
    sample_partner,
    sample_share,
    take,
)
from mixupe_sklearn._method.parameter_rules import LOSS_RULES, METHOD_RULES
from mixupe_sklearn._method.penalties import (
    HEADS,
    directional_penalty,
    glm_loss,
    logit_penalty,
    loss_scale,
    one_minus_lam_mean,
    row_shares,
)
from mixupe_sklearn._method.second_order import on_the_way, second_term
from mixupe_sklearn._runtime.seeding import generator_like_torch
from mixupe_sklearn._utils.parameter_rules import check_rules


class LossParts(NamedTuple):
    """What one step's loss is made of; only ``loss`` carries a gradient.

    ``clean_logits`` are those of the rows that were run clean: all of the batch, or the share of
    them that the penalty saw (mixing with ``penalty_fraction`` below 1), or None (plain Mixup).

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


class MixupELoss(nn.Module):
    """Loss of one training step: Mixup, plus the penalty of MixupE, at Mixup's own scale.

    With ``lam ~ Beta(alpha, beta)``, a permuted partner for each row, logits ``f`` and predicted
    mean ``g``::

        mixup_loss   = mean loss of module(lam X + (1-lam) X[partner]) against the mixed targets
        penalty_term = E[1-lam] * mean |q|,   q = (y - g(f(X)))' f(X)  on the clean batch
        total        = mixup_loss + eta * penalty_term
        loss         = total * loss_scale,    loss_scale = |mixup_loss| / |total|, a constant

    Parameters
    ----------
    method : {"mixupe", "mixup", "erm", "erm+penalty"}, default="mixupe"
        The four cells of the paper's ablation: mixing or not, penalty or not.
    penalty : {"logit", "directional"}, default="logit"
        ``"logit"`` is the paper's fast ``q_hat``, as above; ``"directional"`` its exact ``q``, the
        derivative of the loss along ``X_mean - X``.
    penalty_order : {1, 2}, default=1
        2 adds ``E[(1-lam)^2] / 2 * mean |q2|``, with ``q2`` the exact second derivative of each
        row's loss along the way to its partner. Experimental: future work of the paper.
    alpha : float, default=0.2
        First parameter of the Beta distribution of ``lam``, *not* an L2 penalty; 0 means no mixing.
    beta : float or None, default=None
        Second parameter; None means ``alpha``.
    eta : float, default=0.01
        Weight of the penalty; 0 is plain Mixup, exactly.
    penalty_fraction : float, default=1.0
        Share of each batch's rows, at random, that the penalty is measured on: an unbiased
        estimate at a fraction of its extra time. The first of the partners are the share, so that
        ``lam`` and partners are the same whatever it is. ``clean_logits`` are then those of these
        rows. One is the least, and two for a clean pass of its own (``single_pass=False``).
    lam_per : {"batch", "sample"}, default="batch"
        One ``lam`` for the batch (the paper), or one for each sample.
    mix_at : {"input", "hidden"}, default="input"
        ``"hidden"`` is Manifold Mixup: the module offers ``stages`` (run in turn by its forward) or
        ``encode`` and ``head``, and each batch is mixed after a stage drawn at random. The
        directional penalty and its ``E[x']`` then refer to that hidden state, the mean taken over
        the batch. Stages are called one by one: hooks on the whole module do not run.
    head : {"softmax", "sigmoid", "squared"}, default="softmax"
        What the logits mean: classes; one or several yes/no labels; numbers.
    single_pass : bool, default=True
        Whether the clean batch rides in the same forward pass as the mixed one. BatchNorm then
        sees both together; False runs two passes, and only the mixed one moves its running
        statistics.
    X_mean : float or Tensor, default=0.0
        ``E[x']`` for the directional penalty; zero for centred data, which the method wants.
    random_state : int, numpy.random.Generator or None, default=None
        Source of ``lam``, partners, stages and shares. None takes a seed from torch's global
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
        """Whether rows are mixed at all."""
        beta = self.alpha if self.beta is None else self.beta
        return self.method in ("mixup", "mixupe") and not is_unmixed(self.alpha, beta)

    @property
    def has_penalty(self) -> bool:
        """Whether the penalty has any weight; without it the clean pass is not run."""
        wanted = self.method in ("mixupe", "erm+penalty")
        return wanted and self.eta * one_minus_lam_mean(self.alpha, self.beta) > 0

    def draw(self, n_samples: int, n_stages: int = 1) -> Draw:
        """Draw one step's ``lam``, partners, stage and clean rows, as far as the method uses them.

        The first partners are the clean rows; only where nothing is mixed is a share drawn.
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
        least = self._least_clean
        share = sample_share(n_samples, self.penalty_fraction, self.rng, least, draw.partner)
        return draw._replace(clean=share)

    def forward(
        self,
        module: Any,
        X: Any,
        y: Tensor,
        sample_weight: Tensor | None = None,
        *,
        draw: Draw | None = None,
        shard: Shard | None = None,
        **module_params: Any,
    ) -> LossParts:
        """Run the module on a batch and return the loss and its parts.

        Parameters
        ----------
        module : torch.nn.Module
            The network, in training mode.
        X : Tensor of shape (n_samples, ...)
            Inputs; or anything that ``module.encode`` takes when mixing at the hidden state.
        y : Tensor of shape (n_samples,) or (n_samples, n_outputs)
            Class numbers, one-hot or soft targets, labels, or numbers, as the head asks for.
        sample_weight : Tensor of shape (n_samples,) or None, default=None
            Weight of each sample's loss and penalty; they should average one over the training
            set, since the batch is averaged by its number of rows.
        draw : Draw or None, default=None
            Use this draw instead of a new one, its ``clean`` rows included: None there is all
            rows, whatever ``penalty_fraction`` says.
        portion : Portion or None, default=None
            This process's place among those that train together; it then runs the module on its
            portion of the rows. The parts are those of the whole batch in each process, and
            gradients such that their mean over the processes is the batch's.
        **module_params
            Passed on to the module's forward.

        Returns
        -------
        parts : LossParts
            ``loss`` (call ``backward`` on it), ``mixup_loss``, ``penalty_term``, ``loss_scale``,
            and the logits.
        """
        stages = self._stages(module)
        if shard is not None and len(stages) > 1:
            X, y, sample_weight, shard = cut(X, y, sample_weight, shard)
        n_samples = len(y) if shard is None else shard.n_samples(len(y))
        draw = self._settled(draw, n_samples, len(stages))
        own = own_part(draw, n_samples, shard, self._least_clean)
        draw = own.draw
        encode, rest = stages[: draw.stage], stages[draw.stage :]
        state = run_stages(encode, X, module_params) if encode else X
        is_mixed = draw.partner is not None
        mixed = mix(mixable(state), draw.lam, draw.partner, own.mixed) if is_mixed else None
        # Without mixing all rows run clean anyway.
        clean = take(state, own.clean)
        clean = differentiable(clean) if self._needs_input_gradient else clean
        step = None
        if self._has_second_order:
            clean, step = on_the_way(clean, mixable(state), draw.way_of(own.clean))

        def run_rest(rows: Any) -> Tensor:
            return as_logits(run_stages(rest, rows, {} if encode else module_params))

        mixed_logits, clean_logits = self._logits(module, run_rest, mixed, clean)
        like = mixed_logits if own.mixed is None else mixed_logits[:1].expand(len(y), -1)
        targets = encode_targets(y, like, self.head)
        weight = check_row_weights(sample_weight, like)
        mixup_part = self._mixup_part(mixed_logits, targets, weight, own)
        whole = clean if own.clean is None else state
        penalty_part = self._penalty_part(clean_logits, clean, whole, targets, weight, own, step)
        if shard is not None:
            mixup_part, penalty_part = joined(shard, own, mixup_part, penalty_part)
        return self._parts(mixed_logits, clean_logits, mixup_part, penalty_part)

    def _parts(
        self,
        mixed_logits: Tensor,
        clean_logits: Tensor | None,
        mixup_part: tuple[Tensor, Tensor],
        penalty_part: tuple[Tensor, Tensor | None],
    ) -> LossParts:
        """Put loss and penalty together, at the scale of the first."""
        (mixup_loss, gradient), (penalty_term, grad) = mixup_part, penalty_part
        total = mixup_loss + self.eta * penalty_term
        scale = loss_scale(mixup_loss, total.detach())
        if grad is None:  # no penalty, or one whose gradient autograd carries
            plain = WithGradient.apply(mixed_logits, None, mixup_loss, gradient, None)
            loss = scale * (plain + self.eta * penalty_term)
        else:
            loss = WithGradient.apply(
                mixed_logits, clean_logits, scale * total, scale * gradient, scale * grad
            )
        if clean_logits is not None:
            clean_logits = clean_logits.detach()
        mixed_logits, penalty_term = mixed_logits.detach(), penalty_term.detach()
        return LossParts(loss, mixup_loss, penalty_term, scale, mixed_logits, clean_logits)

    def clean_loss(self, logits: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Mean loss of given logits, unmixed and without penalty: what validation measures."""
        logits = as_logits(logits)
        targets = encode_targets(y, logits, self.head)
        weight = check_row_weights(sample_weight, logits)
        targets = targets if weight is None else weight[:, None] * targets
        return glm_loss(logits, targets, weight, self.head)[0].mean()

    def predicted_mean(self, logits: Tensor) -> Tensor:
        """Turn logits into probabilities (classes and labels) or leave them (numbers)."""
        return HEADS[self.head].mean(as_logits(logits))

    @property
    def _least_clean(self) -> int:
        # A row that runs by itself has no variance, which BatchNorm asks for.
        return 1 if self.single_pass else 2

    def _settled(self, given: Draw | None, n_samples: int, n_stages: int) -> Draw:
        """The draw of this step: a given one, checked, as far as the method can use it."""
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

    def _stages(self, module: Any) -> list[Callable[..., Any]]:
        if self.mix_at == "input" or not (self.has_mixing or self._needs_input_gradient):
            return [module]
        return hidden_stages(module)

    @property
    def _has_second_order(self) -> bool:
        return self.has_penalty and self.penalty_order == 2

    @property
    def _needs_input_gradient(self) -> bool:
        return self.has_penalty and (self.penalty == "directional" or self.penalty_order == 2)

    def _logits(
        self, module: Any, run_rest: Callable[[Any], Tensor], mixed: Tensor | None, clean: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the mixed and of the clean rows; None where clean rows need not run."""
        if mixed is None:
            logits = run_rest(clean)
            return logits, logits
        if not self.has_penalty:
            return run_rest(mixed), None
        if self.single_pass:
            both = run_rest(torch.cat([mixed, clean]))
            return both[: len(mixed)], both[len(mixed) :]
        mixed_logits = run_rest(mixed)
        with frozen_statistics(module):
            return mixed_logits, run_rest(clean)

    @torch.no_grad()
    def _mixup_part(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None, own: Own
    ) -> tuple[Tensor, Tensor]:
        """Mean loss of the mixed rows and its gradient with respect to their logits."""
        how = (own.draw.lam, own.draw.partner, own.mixed)
        targets = mix(targets if weight is None else weight[:, None] * targets, *how)
        weight = None if weight is None else mix(weight, *how)
        losses, gradient = glm_loss(logits, targets, weight, self.head)
        return losses.mean(), gradient / len(losses)

    def _penalty_part(
        self,
        logits: Tensor | None,
        clean: Any,
        whole: Any,
        targets: Tensor,
        weight: Tensor | None,
        own: Own,
        step: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """``E[1-lam] * mean |q|``, and the gradient of ``eta`` times it in closed form, if any."""
        if logits is None or not self.has_penalty:
            return torch.zeros((), dtype=targets.dtype, device=targets.device), None
        weight = torch.ones_like(targets[:, 0]) if weight is None else weight
        X_mean = self.X_mean
        if self.penalty == "directional" and own.draw.stage:
            # What a hidden state's mean is, only this batch can tell.
            X_mean = torch.tensordot(weight, whole.to(weight.dtype), dims=1) / weight.sum()
        share = row_shares(one_minus_lam_mean(self.alpha, self.beta), weight, own.draw.clean)
        targets, share = take(targets, own.clean), take(share, own.clean)  # those that have run
        if not self._needs_input_gradient:
            with torch.no_grad():
                q_hat, grad = logit_penalty(logits, targets, self.head)
                grad = (self.eta * share * q_hat.sign())[:, None] * grad
                return (share * q_hat.abs()).sum(), grad
        q = logit_penalty(logits, targets, self.head)[0]
        if self.penalty == "directional":
            q = directional_penalty(logits, clean, targets, X_mean, self.head)
        term = (share * q.abs()).sum()
        if step is None:
            return term, None
        how = (self.alpha, self.beta, self.head)
        return term + second_term(logits, targets, share, step, *how), None
