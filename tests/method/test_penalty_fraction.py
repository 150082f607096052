"""penalty_fraction: the penalty on a fraction of each batch, and what it estimates."""

import collections
import itertools

import numpy as np
import pytest
import torch
from paper import paper_classifier
from torch import nn

from mixupe_sklearn import Draw, MixupELoss
from mixupe_sklearn._method.formulas import HEADS, one_minus_lam_mean
from mixupe_sklearn.modules import MLP

ALPHA, ETA = 1.5, 0.8
MIXED = Draw(0.7, np.array([3, 0, 1, 2, 5, 4]))
ROWS = np.array([4, 1])


def make_step(head="softmax", n=6, d=4, k=3):
    X = torch.randn(n, d, dtype=torch.float64)
    y = {
        "softmax": torch.randint(k, (n,)),
        "sigmoid": torch.randint(2, (n, k)),
        "squared": torch.randn(n, k, dtype=torch.float64),
    }[head]
    module = MLP(d, k, d_hidden=(8, 8)).double()
    return module, X, y, torch.rand(n, dtype=torch.float64) + 0.5


def make_loss(**settings):
    return MixupELoss(**{"alpha": ALPHA, "eta": ETA, **settings})


def before_rescaling(parts, module):
    """Gradients of ``mixup_loss + eta * penalty_term``, without ``loss_scale``."""
    gradients = torch.autograd.grad(parts.loss, list(module.parameters()))
    return [gradient / parts.loss_scale for gradient in gradients]


def plain_penalty(rest, state, y, weight, head, penalty, X_mean, rows):
    """The definition on the given samples, with ordinary torch operations."""
    targets = nn.functional.one_hot(y, 3).double() if head == "softmax" else y.double()
    logits = rest(state[rows])
    residual = HEADS[head].mean(logits) - targets[rows]
    if penalty == "logit":
        q = -(residual * logits).sum(dim=1)
    else:
        jvp = torch.autograd.functional.jvp
        grad = jvp(rest, state[rows], X_mean - state[rows], create_graph=True)[1]
        q = (residual * grad).sum(dim=1)
    return one_minus_lam_mean(ALPHA) * (weight[rows] * q.abs()).mean()


def assert_same(gradients, references):
    for gradient, reference in zip(gradients, references, strict=True):
        assert (gradient - reference).abs().max() < 1e-10


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("penalty", ["logit", "directional"])
@pytest.mark.parametrize("single_pass", [False, True])
@pytest.mark.parametrize(("method", "stage"), [("mixupe", 0), ("mixupe", 2), ("erm+penalty", 0)])
def test_loss_and_gradient_equal_plain_autograd(head, penalty, single_pass, method, stage):
    module, X, y, weight = make_step(head)
    settings = {"head": head, "penalty": penalty, "single_pass": single_pass}
    settings |= {"mix_at": "hidden"} if stage else {}
    draw = (MIXED if method == "mixupe" else Draw())._replace(stage=stage, clean=ROWS)
    parts = make_loss(method=method, **settings)(module, X, y, weight, draw=draw)
    plain = {"mixupe": "mixup", "erm+penalty": "erm"}[method]
    without = make_loss(method=plain, **settings)(module, X, y, weight, draw=draw)
    state = nn.Sequential(*module.stages[:stage])(X)
    # The mean of a hidden state is over the whole batch, not over the clean samples.
    X_mean = (weight[:, None] * state).sum(dim=0) / weight.sum() if stage else torch.zeros(())
    rest = nn.Sequential(*module.stages[stage:])
    expected = plain_penalty(rest, state, y, weight, head, penalty, X_mean, torch.tensor(ROWS))
    assert abs(parts.penalty_term - expected) < 1e-12
    assert abs(parts.mixup_loss - without.mixup_loss) < 1e-12
    total = without.loss + ETA * expected
    references = torch.autograd.grad(total, list(module.parameters()))
    assert_same(before_rescaling(parts, module), references)
    assert abs(parts.loss_scale - without.mixup_loss / total) < 1e-12


@pytest.mark.parametrize("penalty", ["logit", "directional"])
@pytest.mark.parametrize(
    "draw", [MIXED, MIXED._replace(stage=1), Draw()], ids=["mixed", "mixed inside", "not mixed"]
)
@pytest.mark.parametrize("n_clean", [2, 5])
def test_the_mean_over_all_fractions_of_a_batch_is_the_full_penalty_and_gradient(
    penalty, draw, n_clean
):
    module, X, y, weight = make_step()
    method = "erm+penalty" if draw.partner is None else "mixupe"
    mix_at = "hidden" if draw.stage else "input"
    criterion = make_loss(method=method, penalty=penalty, mix_at=mix_at, X_mean=0.3)
    full = criterion(module, X, y, weight, draw=draw)
    terms, gradients = [], []
    for rows in itertools.combinations(range(len(X)), n_clean):
        parts = criterion(module, X, y, weight, draw=draw._replace(clean=np.array(rows)))
        terms.append(parts.penalty_term)
        gradients.append(before_rescaling(parts, module))
    assert torch.stack(terms).std() > 1e-3  # the shares differ
    assert abs(torch.stack(terms).mean() - full.penalty_term) < 1e-12
    means = [torch.stack(one).mean(dim=0) for one in zip(*gradients, strict=True)]
    assert_same(means, before_rescaling(full, module))


@pytest.mark.parametrize("method", ["mixupe", "erm+penalty"])
def test_every_fraction_of_a_batch_is_drawn_equally_often(method):
    # So the mean over all fractions is the mean over draws.
    criterion = make_loss(method=method, penalty_fraction=0.5, random_state=0)
    n_draws = 3000
    counts = collections.Counter(tuple(sorted(criterion.draw(4).clean)) for _ in range(n_draws))
    shares = set(itertools.combinations(range(4), 2))
    assert set(counts) == shares
    assert max(abs(counts[share] / n_draws - 1 / 6) for share in shares) < 4 * np.sqrt(
        1 / 6 * 5 / 6 / n_draws
    )


@pytest.mark.parametrize(
    ("n_samples", "fraction", "n_clean"),
    [(100, 0.25, 25), (100, 0.1, 10), (3, 0.1, 1), (1, 0.1, None), (7, 0.99, None), (7, 1.0, None)],
)
def test_a_fraction_is_rounded_and_has_at_least_one_sample(n_samples, fraction, n_clean):
    clean = make_loss(penalty_fraction=fraction, random_state=0).draw(n_samples).clean
    assert n_clean == (None if clean is None else len(clean))


@pytest.mark.parametrize("settings", [{}, {"lam_per": "sample"}, {"mix_at": "hidden"}], ids=str)
def test_lam_partners_and_stages_do_not_depend_on_the_fraction(settings):
    full, half, tenth = (
        make_loss(penalty_fraction=fraction, random_state=0, **settings)
        for fraction in (1.0, 0.5, 0.1)
    )
    for n_samples in (20, 20, 7):
        draws = [criterion.draw(n_samples, 3) for criterion in (full, half, tenth)]
        for draw in draws[1:]:
            np.testing.assert_array_equal(draw.lam, draws[0].lam)
            np.testing.assert_array_equal(draw.partner, draws[0].partner)
            assert draw.stage == draws[0].stage
    assert full.rng.bit_generator.state == tenth.rng.bit_generator.state


def test_the_first_partners_run_clean_so_smaller_fractions_nest_in_larger_ones():
    full, half, tenth = (
        make_loss(penalty_fraction=fraction, random_state=0).draw(20)
        for fraction in (1.0, 0.5, 0.1)
    )
    assert full.clean is None
    np.testing.assert_array_equal(half.clean, full.partner[:10])
    np.testing.assert_array_equal(tenth.clean, full.partner[:2])


def test_clean_samples_are_drawn_if_nothing_is_mixed():
    criterion = make_loss(method="erm+penalty", penalty_fraction=0.5, random_state=0)
    draw = criterion.draw(8)
    assert draw.partner is None
    np.testing.assert_array_equal(draw.clean, np.random.default_rng(0).permutation(8)[:4])
    assert not np.array_equal(draw.clean, criterion.draw(8).clean)


@pytest.mark.parametrize(
    "settings", [{"method": "mixup"}, {"method": "erm"}, {"eta": 0.0}, {"alpha": 0.0}], ids=str
)
def test_nothing_is_drawn_without_a_penalty(settings):
    full, part = (
        make_loss(penalty_fraction=fraction, random_state=0, **settings) for fraction in (1.0, 0.5)
    )
    assert part.draw(8).clean is None
    full.draw(8)
    assert full.rng.bit_generator.state == part.rng.bit_generator.state


class Counting(nn.Module):
    """A network that records the number of samples of each pass."""

    def __init__(self):
        super().__init__()
        self.stages = MLP(4, 3, d_hidden=(8,)).double().stages
        self.n_rows = []

    def forward(self, X):
        self.n_rows.append(len(X))
        return nn.Sequential(*self.stages)(X)


@pytest.mark.parametrize(
    ("settings", "n_rows", "n_clean"),
    [
        ({"single_pass": True}, [6 + 3], 3),
        ({"single_pass": False}, [6, 3], 3),
        ({"method": "erm+penalty"}, [6], 6),
        ({"single_pass": True, "penalty_fraction": 1.0}, [12], 6),
    ],
    ids=str,
)
def test_only_the_drawn_samples_run_clean(settings, n_rows, n_clean):
    _, X, y, _ = make_step()
    module = Counting()
    criterion = make_loss(**{"penalty_fraction": 0.5, "random_state": 0, **settings})
    parts = criterion(module, X, y)
    assert module.n_rows == n_rows
    assert len(parts.clean_logits) == n_clean
    assert len(parts.mixed_logits) == 6


def test_clean_logits_are_those_of_the_drawn_samples():
    module, X, y, _ = make_step()
    parts = make_loss()(module, X, y, draw=MIXED._replace(clean=ROWS))
    assert (parts.clean_logits - module(X[ROWS])).abs().max() < 1e-12


class BagOfRows(nn.Module):
    """Irregular input: each sample is a list of vectors, encoded to their sum."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(4, 8).double(), nn.Linear(8, 3).double()

    def encode(self, bags):
        return torch.stack([self.layer(bag).sum(dim=0) for bag in bags]).relu()

    def forward(self, bags):
        return self.head(self.encode(bags))


@pytest.mark.parametrize("penalty", ["logit", "directional"])
def test_clean_samples_of_irregular_inputs_are_taken_after_the_encoder(penalty):
    module, _, y, _ = BagOfRows(), *make_step()[1:]
    bags = [torch.randn(1 + i % 3, 4, dtype=torch.float64) for i in range(6)]
    criterion = make_loss(mix_at="hidden", penalty=penalty)
    draw = MIXED._replace(stage=1, clean=ROWS)
    parts = criterion(module, bags, y, draw=draw)
    state = module.encode(bags).detach()
    alone = make_loss(penalty=penalty, X_mean=state.mean(dim=0))
    expected = alone(module.head, state, y, draw=draw._replace(stage=0))
    assert abs(parts.penalty_term - expected.penalty_term) < 1e-12
    parts.loss.backward()
    assert module.layer.weight.grad.abs().max() > 0


@pytest.mark.parametrize("n", [2, 6, 9])
@pytest.mark.parametrize("penalty", ["logit", "directional"])
def test_two_passes_with_batch_norm_run_small_fractions_and_keep_the_statistics_of_mixup(
    n, penalty
):
    def train(**settings):
        torch.manual_seed(0)
        module = MLP(4, 3, batch_norm=True).double()
        _, X, y, _ = make_step(n=n)
        for _ in range(2):
            draw = MixupELoss(alpha=1.0, random_state=3, **settings).draw(n)
            draw = draw._replace(lam=0.7, partner=np.roll(np.arange(n), 1))
            MixupELoss(alpha=1.0, **settings)(module, X, y, draw=draw).loss.backward()
        return {name: value for name, value in module.state_dict().items() if "running" in name}

    mixup = train(method="mixup")
    share = train(eta=0.5, single_pass=False, penalty=penalty, penalty_fraction=0.1)
    assert len(mixup) == 4
    assert all(torch.equal(mixup[name], share[name]) for name in mixup)


@pytest.mark.parametrize(
    "rows", [[], [6], [-1], [0, 0], [[0, 1]], [0.0], [True, False] * 3], ids=str
)
def test_wrong_clean_samples_of_a_given_draw_raise(rows):
    module, X, y, _ = make_step()
    message = (
        r"Got draw.clean=.*, but expected distinct sample indices from 0 to 5, or None for all"
    )
    with pytest.raises(ValueError, match=message):
        make_loss()(module, X, y, draw=MIXED._replace(clean=np.array(rows)))


def test_a_given_draw_decides_which_samples_run_clean():
    module, X, y, _ = make_step()
    every = make_loss()(module, X, y, draw=MIXED).penalty_term
    assert make_loss(penalty_fraction=0.5)(module, X, y, draw=MIXED).penalty_term == every
    clean = torch.tensor(ROWS, dtype=torch.int32)
    for method in ("mixupe", "erm+penalty"):  # the second has no use for the partners
        terms = [
            make_loss(method=method)(module, X, y, draw=MIXED._replace(clean=rows)).penalty_term
            for rows in (ROWS, clean)
        ]
        assert terms[0] == terms[1] != every


@pytest.mark.parametrize("value", [0, -0.5, 1.5, float("nan"), None, True, "half"], ids=str)
def test_a_wrong_fraction_raises_in_loss_and_estimator(value, iris):
    message = f"Got penalty_fraction={value!r}, but expected a number above 0 and up to 1."
    with pytest.raises(ValueError, match=message):
        MixupELoss(penalty_fraction=value)
    with pytest.raises(ValueError, match=message):
        paper_classifier(penalty_fraction=value).fit(*iris)


def fit(data, fraction):
    model = paper_classifier(penalty_fraction=fraction, max_epochs=5, batch_size=20, random_state=0)
    return model.fit(*data)


def test_a_fraction_of_all_samples_equals_the_full_penalty(small_digits):
    full, all_rows = fit(small_digits, 1.0), fit(small_digits, 0.999)
    proba = full.predict_proba(small_digits[0])
    np.testing.assert_array_equal(proba, all_rows.predict_proba(small_digits[0]))


def test_the_classifier_trains_with_a_fraction_reproducibly(small_digits):
    full, share, again = (fit(small_digits, fraction) for fraction in (1.0, 0.25, 0.25))
    proba = share.predict_proba(small_digits[0])
    np.testing.assert_array_equal(proba, again.predict_proba(small_digits[0]))
    assert not np.array_equal(proba, full.predict_proba(small_digits[0]))
    assert share.score(*small_digits) > 0.95
    # An estimate of the same quantity, on a quarter of the samples.
    ratio = share.history_[-1]["train_penalty"] / full.history_[-1]["train_penalty"]
    assert 0.8 < ratio < 1.25
