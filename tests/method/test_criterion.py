"""MixupELoss: its closed form, its special cases, its passes, and its errors."""

import numpy as np
import pytest
import torch
from torch import nn

from mixupe_sklearn import Draw, MixupELoss
from mixupe_sklearn._method.formulas import HEADS, one_minus_lam_mean
from mixupe_sklearn.modules import MLP

DRAW = Draw(0.7, np.array([3, 0, 1, 2, 5, 4, 7, 6]))


def make_step(head="softmax", seed=0, n=8, d=5, k=3):
    torch.manual_seed(seed)
    X = torch.randn(n, d, dtype=torch.float64)
    y = {
        "softmax": torch.randint(k, (n,)),
        "sigmoid": torch.randint(2, (n, k)),
        "squared": torch.randn(n, k, dtype=torch.float64),
    }[head]
    return MLP(d, k, d_hidden=(16, 16)).double(), X, y, torch.rand(n, dtype=torch.float64) + 0.5


def plain_autograd_loss(module, X, y, weight, head, *, alpha, eta, draw):
    """The definition, written with ordinary torch operations."""
    form = HEADS[head]
    y = nn.functional.one_hot(y, 3).double() if head == "softmax" else y.double()
    lam, partner = draw.lam, torch.as_tensor(draw.partner)
    weight = torch.ones(len(X), dtype=torch.float64) if weight is None else weight

    def losses(logits, targets):
        values = form.potential(logits) - (targets * logits).sum(dim=1)
        return values + 0.5 * targets.square().sum(dim=1) if head == "squared" else values

    mixed_logits = module(lam * X + (1 - lam) * X[partner])
    own = lam * weight * losses(mixed_logits, y)
    other = (1 - lam) * weight[partner] * losses(mixed_logits, y[partner])
    mixup_loss = (own + other).mean()
    if head == "squared":
        # The loss of mixed targets is measured from its minimum: subtract the constant.
        mass = lam * weight + (1 - lam) * weight[partner]
        centre = lam * weight[:, None] * y + (1 - lam) * weight[partner, None] * y[partner]
        square = lam * weight * y.square().sum(1)
        square = square + (1 - lam) * weight[partner] * y[partner].square().sum(1)
        mixup_loss = mixup_loss - 0.5 * (square - centre.square().sum(1) / mass).mean()
    logits = module(X)
    q_hat = ((y - form.mean(logits)) * logits).sum(dim=1)
    total = mixup_loss + eta * one_minus_lam_mean(alpha) * (weight * q_hat.abs()).mean()
    return total * (mixup_loss.abs() / total.abs()).detach()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("single_pass", [False, True])
def test_loss_and_gradient_equal_plain_autograd(head, weighted, single_pass):
    module, X, y, weight = make_step(head)
    weight = weight if weighted else None
    criterion = MixupELoss(alpha=1.5, eta=0.8, head=head, single_pass=single_pass)
    parts = criterion(module, X, y, weight, draw=DRAW)
    gradients = torch.autograd.grad(parts.loss, list(module.parameters()))
    expected = plain_autograd_loss(module, X, y, weight, head, alpha=1.5, eta=0.8, draw=DRAW)
    references = torch.autograd.grad(expected, list(module.parameters()))
    assert abs(parts.loss - expected) < 1e-10
    for gradient, reference in zip(gradients, references, strict=True):
        assert (gradient - reference).abs().max() < 1e-10


def test_closed_form_refuses_a_second_derivative():
    module, X, y, _ = make_step()
    loss = MixupELoss(random_state=0)(module, X, y).loss
    with pytest.raises(RuntimeError, match="MixupELoss has first derivatives only"):
        torch.autograd.grad(loss, module.stages[0][0].weight, create_graph=True)


@pytest.mark.parametrize("head", HEADS)
def test_directional_equals_logit_for_a_bias_free_relu_net_on_centred_data(head):
    _, X, y, weight = make_step(head)
    X = X - X.mean(dim=0)
    module = MLP(5, 3, bias=False).double()
    results = []
    for penalty in ("logit", "directional"):
        criterion = MixupELoss(alpha=1.0, eta=0.5, head=head, penalty=penalty)
        parts = criterion(module, X, y, weight, draw=DRAW)
        results.append((parts, torch.autograd.grad(parts.loss, list(module.parameters()))))
    (logit, logit_gradients), (directional, directional_gradients) = results
    assert abs(logit.penalty_term - directional.penalty_term) < 1e-10
    assert abs(logit.loss - directional.loss) < 1e-10
    for one, other in zip(logit_gradients, directional_gradients, strict=True):
        assert (one - other).abs().max() < 1e-10


def test_directional_uses_the_given_mean():
    module, X, y, _ = make_step()
    terms = [
        MixupELoss(penalty="directional", X_mean=X_mean)(module, X, y, draw=DRAW).penalty_term
        for X_mean in (0.0, torch.full((5,), 2.0, dtype=torch.float64))
    ]
    assert abs(terms[0] - terms[1]) > 1e-3


def same_step(first, second, **kwargs):
    """Loss and gradients of two criteria on the same batch, bit for bit."""
    results = []
    for criterion in (first, second):
        module, X, y, _ = make_step(**kwargs)
        module, X = module.float(), X.float()
        parts = criterion(module, X, y)
        parts.loss.backward()
        results.append([parts.loss, *(parameter.grad for parameter in module.parameters())])
    return all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_eta_zero_equals_plain_mixup_bit_for_bit():
    assert same_step(
        MixupELoss(method="mixupe", eta=0.0, alpha=1.0, random_state=0),
        MixupELoss(method="mixup", eta=0.7, alpha=1.0, random_state=0),
    )


@pytest.mark.parametrize("method", ["mixup", "mixupe", "erm+penalty"])
def test_alpha_zero_equals_erm_bit_for_bit(method):
    assert same_step(
        MixupELoss(method=method, alpha=0.0, eta=0.5, random_state=0),
        MixupELoss(method="erm", random_state=1),
    )


def test_eta_matters():
    # Negative control of the two tests above.
    assert not same_step(
        MixupELoss(eta=0.5, alpha=1.0, random_state=0),
        MixupELoss(eta=0.0, alpha=1.0, random_state=0),
    )
    module, X, y, _ = make_step()
    low, high = (
        MixupELoss(eta=eta, alpha=1.0)(module, X, y, draw=DRAW).loss_scale for eta in (0.1, 1.0)
    )
    assert high < low < 1


def test_a_tiny_alpha_tends_to_erm():
    module, X, y, _ = make_step()
    tiny = MixupELoss(alpha=1e-7, eta=1.0, random_state=0)(module, X, y)
    erm = MixupELoss(method="erm")(module, X, y)
    assert tiny.penalty_term < 1e-6
    # lam is 0 or 1: the batch is at most permuted.
    assert abs(tiny.loss - erm.loss) < 1e-6


def test_erm_is_torchs_cross_entropy():
    module, X, y, _ = make_step()
    parts = MixupELoss(method="erm")(module, X, y)
    assert abs(parts.loss - nn.functional.cross_entropy(module(X), y)) < 1e-12


def test_erm_with_penalty_runs_the_module_once_on_clean_samples():
    module, X, y, _ = make_step()
    calls = []
    module.register_forward_pre_hook(lambda module, inputs: calls.append(inputs[0]))
    parts = MixupELoss(method="erm+penalty", alpha=1.0, eta=0.5)(module, X, y)
    assert len(calls) == 1
    assert torch.equal(calls[0], X)
    assert parts.penalty_term > 0


def test_parts_add_up():
    module, X, y, weight = make_step()
    parts = MixupELoss(alpha=1.0, eta=0.3, random_state=0)(module, X, y, weight)
    total = parts.mixup_loss + 0.3 * parts.penalty_term
    assert abs(parts.loss - parts.loss_scale * total) < 1e-12
    assert abs(parts.loss - parts.mixup_loss) < 1e-12
    assert not parts.mixup_loss.requires_grad
    assert parts.mixed_logits.shape == (8, 3)


def test_lam_per_sample():
    module, X, y, _ = make_step()
    criterion = MixupELoss(lam_per="sample", alpha=1.0, random_state=0)
    draw = criterion.draw(8)
    assert draw.lam.shape == (8,)
    lam, partner = torch.as_tensor(draw.lam)[:, None], torch.as_tensor(draw.partner)
    onehot = nn.functional.one_hot(y, 3).double()
    mixed_logits = module(lam * X + (1 - lam) * X[partner])
    targets = lam * onehot + (1 - lam) * onehot[partner]
    expected = nn.functional.cross_entropy(mixed_logits, targets)
    assert abs(criterion(module, X, y, draw=draw).mixup_loss - expected) < 1e-12


@pytest.mark.parametrize(
    ("method", "penalty"),
    [("mixupe", "logit"), ("mixupe", "directional"), ("erm+penalty", "directional")],
)
@pytest.mark.parametrize("stage", [1, 2])
def test_hidden_mixing_equals_mixing_the_input_of_the_rest_of_the_network(method, penalty, stage):
    # The method applies to the network after the stage, with hidden states as its inputs.
    module, X, y, weight = make_step()
    criterion = MixupELoss(method=method, mix_at="hidden", alpha=1.0, eta=0.4, penalty=penalty)
    draw = DRAW if method == "mixupe" else Draw()
    parts = criterion(module, X, y, weight, draw=draw._replace(stage=stage))
    state = nn.Sequential(*module.stages[:stage])(X).detach()
    rest = nn.Sequential(*module.stages[stage:])
    X_mean = (weight[:, None] * state).sum(dim=0) / weight.sum()
    alone = MixupELoss(method=method, alpha=1.0, eta=0.4, penalty=penalty, X_mean=X_mean)
    expected = alone(rest, state, y, weight, draw=DRAW)
    assert abs(parts.mixup_loss - expected.mixup_loss) < 1e-12
    assert abs(parts.penalty_term - expected.penalty_term) < 1e-12
    assert abs(parts.loss - expected.loss) < 1e-12


def test_hidden_stages_are_drawn_for_each_batch_and_never_the_input():
    criterion = MixupELoss(mix_at="hidden", alpha=1.0, random_state=0)
    stages = {criterion.draw(8, n_stages=3).stage for _ in range(50)}
    assert stages == {1, 2}


class BagOfVectors(nn.Module):
    """Irregular input: each sample is a list of vectors, encoded to their sum."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 16).double()
        self.head = nn.Linear(16, 3).double()
        self.n_encoded = 0

    def encode(self, bags):
        self.n_encoded += 1
        return torch.stack([self.layer(bag).sum(dim=0) for bag in bags]).relu()

    def forward(self, bags):
        return self.head(self.encode(bags))


@pytest.mark.parametrize("penalty", ["logit", "directional"])
def test_irregular_inputs_are_mixed_between_encode_and_head_in_one_encoder_pass(penalty):
    torch.manual_seed(0)
    bags = [torch.randn(1 + i % 3, 5, dtype=torch.float64) for i in range(8)]
    y = torch.randint(3, (8,))
    module = BagOfVectors()
    criterion = MixupELoss(mix_at="hidden", alpha=1.0, eta=0.5, penalty=penalty, random_state=0)
    criterion(module, bags, y).loss.backward()
    assert module.n_encoded == 1
    assert module.layer.weight.grad.abs().max() > 0


def test_one_and_two_passes_agree_without_batch_norm():
    module, X, y, weight = make_step()
    one, two = (
        MixupELoss(alpha=1.0, eta=0.5, single_pass=single)(module, X, y, weight, draw=DRAW)
        for single in (True, False)
    )
    assert abs(one.loss - two.loss) < 1e-12


@pytest.mark.parametrize("penalty", ["logit", "directional"])
def test_two_passes_update_the_statistics_of_batch_norm_as_mixup_does(penalty):
    def statistics(**settings):
        torch.manual_seed(0)
        module = MLP(5, 3, batch_norm=True).double()
        _, X, y, _ = make_step()
        for _ in range(3):
            MixupELoss(alpha=1.0, **settings)(module, X, y, draw=DRAW).loss.backward()
        return module.state_dict()

    mixup = statistics(method="mixup")
    two_passes = statistics(eta=0.5, single_pass=False, penalty=penalty)
    one_pass = statistics(eta=0.5, single_pass=True, penalty=penalty)
    buffers = [name for name in mixup if "running" in name or "tracked" in name]
    assert len(buffers) == 6
    assert all(torch.equal(mixup[name], two_passes[name]) for name in buffers)
    # The documented difference: in a single pass BatchNorm sees the clean samples too.
    assert not all(torch.equal(mixup[name], one_pass[name]) for name in buffers)


def test_layers_in_evaluation_mode_keep_their_statistics_in_a_clean_pass():
    _, X, y, _ = make_step()
    norm = nn.BatchNorm1d(5).double().eval()
    norm.running_mean.fill_(3.0)
    module = nn.Sequential(norm, nn.Linear(5, 3).double())
    one, two = (
        MixupELoss(alpha=1.0, eta=0.5, single_pass=single)(module, X, y, draw=DRAW).loss
        for single in (True, False)
    )
    assert abs(one - two) < 1e-12


def test_batch_norm_tracks_again_after_a_clean_pass():
    module = MLP(5, 3, batch_norm=True).double()
    _, X, y, _ = make_step()
    MixupELoss(alpha=1.0, eta=0.5, single_pass=False)(module, X, y, draw=DRAW)
    layers = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm1d)]
    assert all(layer.track_running_stats for layer in layers)


def test_images_and_flat_single_logits():
    X = torch.randn(8, 3, 6, 6)
    y = torch.randint(2, (8,))
    module = nn.Sequential(nn.Flatten(), nn.Linear(108, 1), nn.Flatten(0))
    parts = MixupELoss(head="sigmoid", alpha=1.0, random_state=0)(module, X, y)
    parts.loss.backward()
    assert torch.isfinite(parts.loss)


def test_equal_seeds_draw_equally_and_none_follows_torchs_generator():
    first, second = (MixupELoss(random_state=3, alpha=1.0).draw(10) for _ in range(2))
    assert first.lam == second.lam
    assert (first.partner == second.partner).all()
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append(MixupELoss(alpha=1.0).draw(10).lam)
    assert draws[0] == draws[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "mixupp"},
            "Got method='mixupp', but expected one of 'mixupe', 'mixup', 'erm', 'erm\\+penalty'.",
        ),
        ({"penalty": "q"}, "Got penalty='q', but expected one of 'logit', 'directional'."),
        ({"alpha": -1.0}, "Got alpha=-1.0, but expected a number >= 0."),
        ({"alpha": float("nan")}, "Got alpha=nan, but expected a number >= 0."),
        ({"beta": -0.5}, "Got beta=-0.5, but expected a number >= 0, or None for alpha."),
        ({"eta": float("inf")}, "Got eta=inf, but expected a number >= 0."),
        ({"eta": "big"}, "Got eta='big', but expected a number >= 0."),
        (
            {"head": "logit"},
            "Got head='logit', but expected one of 'softmax', 'sigmoid', 'squared'.",
        ),
        (
            {"random_state": "a"},
            "Got random_state='a', but expected an integer, a numpy Generator or None.",
        ),
        ({"single_pass": "no"}, "Got single_pass='no', but expected True or False."),
    ],
)
def test_wrong_settings_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        MixupELoss(**settings)


def test_wrong_batches_raise():
    module, X, y, _ = make_step()
    with pytest.raises(ValueError, match="Got class numbers from 0 to 9, but expected 0 to 2"):
        MixupELoss()(module, X, torch.arange(8) + (torch.arange(8) == 7) * 2)
    with pytest.raises(ValueError, match=r"Got targets of shape \(8, 2\), but expected \(8, 3\)"):
        MixupELoss()(module, X, torch.zeros(8, 2))
    with pytest.raises(
        ValueError, match="Got mix_at='hidden' with a Linear, but expected a module"
    ):
        MixupELoss(mix_at="hidden")(nn.Linear(5, 3).double(), X, y)
    with pytest.raises(TypeError, match="Got a torch.int64 tensor to mix"):
        MixupELoss()(module, torch.ones(8, 5, dtype=torch.int64), y)
    with pytest.raises(ValueError, match=r"Got module output \(8, 1, 5\)"):
        MixupELoss(method="erm")(nn.Unflatten(1, (1, 5)), X, y)
    for weight in (torch.ones(8, 1), torch.ones(1), torch.ones(7)):
        with pytest.raises(
            ValueError, match=r"Got sample_weight of shape \(.*\), but expected \(8,\)"
        ):
            MixupELoss()(module, X, y, weight)
        with pytest.raises(ValueError, match="Got sample_weight of shape"):
            MixupELoss().clean_loss(module(X), y, weight)
    with pytest.raises(ValueError, match="Got 1 targets for 8 samples, but expected one each."):
        MixupELoss(method="erm")(module, X, y[:1])
    with pytest.raises(ValueError, match="Got 0 targets for 0 samples"):
        MixupELoss(method="erm")(module, X[:0], y[:0])
    with pytest.raises(ValueError, match="Got targets from -1.0 to 1.0, but expected 0 to 1."):
        MixupELoss(head="sigmoid")(module, X, 2.0 * torch.eye(8)[:, :3] - 1)
    with pytest.raises(ValueError, match="Got draw.stage=1, but expected below 1."):
        MixupELoss()(module, X, y, draw=DRAW._replace(stage=1))
