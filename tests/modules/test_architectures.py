"""The paper's networks: their sizes, their stages, and that small ones learn."""

import copy
import inspect
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from mixupe_sklearn import MixupELoss
from mixupe_sklearn._method.formulas import Draw
from mixupe_sklearn.modules import NAMED, VGG, CoAtNet, LeNet, PreActResNet, ResNet, ViT, WideResNet
from mixupe_sklearn.modules._attention import SelfAttention
from mixupe_sklearn.modules.coatnet import AttentionBlock, MBConv, RelativePlaces
from mixupe_sklearn.modules.preact_resnet import PreActBlock
from mixupe_sklearn.modules.resnet import Bottleneck
from mixupe_sklearn.modules.vit import TransformerBlock

IMAGE = {"n_channels": 1, "image_size": (16, 16)}
# Each family, small, for digits of 16 x 16.
SMALL = {
    "lenet": partial(LeNet, channels=(6, 8), d_hidden=(32,), **IMAGE),
    "vgg": partial(VGG, width=8, blocks=(1, 1, 2), d_hidden=32, **IMAGE),
    "preactresnet": partial(PreActResNet, width=8, blocks=(1, 1, 1), **IMAGE),
    "preactresnet-bottleneck": partial(
        PreActResNet, depth=50, width=4, blocks=(1, 2, 1), final_norm=True, **IMAGE
    ),
    "wideresnet": partial(WideResNet, depth=10, widening=2, width=4, **IMAGE),
    "resnet": partial(ResNet, width=8, blocks=(2, 1, 1), **IMAGE),
    "vit": partial(ViT, patch_size=4, d_model=32, depth=2, n_heads=4, **IMAGE),
    "coatnet": partial(CoAtNet, widths=(16, 16, 32, 32), blocks=(2, 2, 1, 2), d_head=8, **IMAGE),
}
N_STAGES = {
    "lenet": 4,
    "vgg": 5,
    "preactresnet": 5,
    "preactresnet-bottleneck": 5,
    "wideresnet": 5,
    "resnet": 5,
    "vit": 4,
    "coatnet": 5,
}
every_family = pytest.mark.parametrize("family", list(SMALL))


@pytest.fixture(scope="module")
def images(digits):
    """64 digits, enlarged twice and centred."""
    X, y = digits
    X = torch.tensor(X[:64].reshape(-1, 1, 8, 8), dtype=torch.float32)
    X = X.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    return (X - X.mean()) / X.std(), torch.tensor(y[:64])


def n_parameters(module):
    return sum(weights.numel() for weights in module.parameters())


# Published: by the authors' or the usual implementations, to the last weight where they agree.
PUBLISHED = {
    "lenet": (30, 16_321_570),
    "preactresnet18": (10, 11_171_146),
    "preactresnet34": (10, 21_279_306),
    "preactresnet50": (10, 23_509_066),
    "preactresnet101": (10, 42_501_194),
    "wideresnet28-10": (10, 36_479_194),
    "resnet50": (1000, 25_557_032),
    "vit-b16": (1000, 86_567_656),
    "coatnet0": (1000, 25_036_820),
}


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_a_network_has_as_many_weights_as_the_published_one(name):
    n_outputs, expected = PUBLISHED[name]
    with torch.device("meta"):
        assert n_parameters(NAMED[name](n_outputs)) == expected


def test_lenet_5_has_its_61_706_weights():
    module = LeNet(10, image_size=(32, 32), channels=(6, 16), d_hidden=(120, 84))
    assert n_parameters(module) == 61_706


@pytest.mark.parametrize(("depth", "expected"), [(11, 9_225_984), (13, 9_410_880)])
def test_the_convolutions_of_vgg_have_as_many_weights_as_the_published_ones(depth, expected):
    with torch.device("meta"):
        module = VGG(30, n_channels=3, depth=depth)
        spectrograms = VGG(30, depth=depth)
    assert n_parameters(module.stages[:5]) == expected
    assert spectrograms.stages[5][1].in_features == 512 * 5 * 3


@pytest.mark.parametrize("name", list(NAMED))
def test_a_named_network_runs_at_its_default_size(name):
    parameters = inspect.signature(NAMED[name]).parameters
    n_channels, size = parameters["n_channels"].default, parameters["image_size"].default
    with torch.device("meta"):
        module = NAMED[name](7, n_channels=n_channels, image_size=size)
        assert module(torch.zeros(2, n_channels, *size)).shape == (2, 7)


@every_family
def test_64_images_are_fitted_to_zero_error(family, images, one_thread):
    X, y = images
    module = SMALL[family](10)
    criterion = MixupELoss(method="erm")
    optimizer = torch.optim.Adam(module.parameters(), lr=0.005)
    for step in range(1, 301):
        optimizer.zero_grad()
        parts = criterion(module.train(), X, y)
        parts.loss.backward()
        optimizer.step()
        if step % 10 == 0 and bool((parts.mixed_logits.argmax(1) == y).all()):
            with torch.no_grad():  # BatchNorm by its running statistics, too
                if bool((module.eval()(X).argmax(1) == y).all()):
                    return
    pytest.fail("errors are left after 300 steps")


@every_family
def test_forward_runs_the_stages_in_turn(family, images):
    module = SMALL[family](10).eval()
    state = images[0][:4]
    assert len(module.stages) == N_STAGES[family]
    for stage in module.stages:
        state = stage(state)
        assert isinstance(state, torch.Tensor)
        assert state.is_floating_point()
        assert len(state) == 4
    assert torch.equal(state, module(images[0][:4]))


@every_family
def test_a_batch_can_be_mixed_after_every_stage(family, images):
    X, y = images[0][:8], images[1][:8]
    module = SMALL[family](10).eval()
    criterion = MixupELoss(method="mixup", mix_at="hidden", random_state=0)
    partner = np.roll(np.arange(8), 1)
    clean = nn.functional.cross_entropy(module(X), y)
    losses = []
    for stage in range(1, len(module.stages)):
        alone = Draw(lam=0.5, partner=np.arange(8), stage=stage)
        torch.testing.assert_close(criterion(module, X, y, draw=alone).loss, clean)
        losses.append(criterion(module, X, y, draw=Draw(0.5, partner, stage)).loss.item())
    assert len(set(losses)) == len(losses)  # the places differ


@every_family
@pytest.mark.parametrize("penalty", ["logit", "directional"])
def test_a_hidden_mix_with_penalty_reaches_every_weight(family, penalty, images):
    module = SMALL[family](10)
    criterion = MixupELoss(mix_at="hidden", penalty=penalty, eta=1.0, random_state=0)
    draw = Draw(lam=0.4, partner=np.roll(np.arange(8), 1), stage=1)
    criterion(module, images[0][:8], images[1][:8], draw=draw).loss.backward()
    for name, weights in module.named_parameters():
        assert weights.grad is not None, name
        assert bool(torch.isfinite(weights.grad).all()), name


@every_family
def test_the_seed_decides_the_weights_and_copies_keep_them(family, images):
    X = images[0][:4]

    def build(seed):
        torch.manual_seed(seed)
        return SMALL[family](10).eval()

    module = build(0)
    expected = module(X)
    for other in (build(0), copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(X), expected)
    again = build(1)
    assert not torch.equal(again(X), expected)
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(X), expected)


@every_family
def test_channels_last_and_double_precision_give_the_same_logits(family, images):
    X = images[0][:4].repeat(1, 3, 1, 1)
    module = SMALL[family](10, n_channels=3).eval()
    expected = module(X)
    double = copy.deepcopy(module).double()(X.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), expected, rtol=1e-4, atol=1e-5)
    last = module.to(memory_format=torch.channels_last)
    given = X.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(last(given), expected, rtol=1e-4, atol=1e-5)


TINY = {"width": 2, "blocks": (1, 1, 1, 1)}
TINY_VIT = {"d_model": 8, "depth": 1, "n_heads": 2}
AT_ITS_SIZE = {
    "spectrograms in LeNet": (partial(LeNet, channels=(2, 2), d_hidden=(8,)), (1, 160, 101)),
    "spectrograms in VGG": (partial(VGG, width=2, d_hidden=8), (1, 160, 101)),
    "a wide image in LeNet without hidden layers": (
        partial(LeNet, image_size=(16, 21), channels=(2, 2), d_hidden=()),
        (1, 16, 21),
    ),
    "a wide image in VGG-13": (
        partial(VGG, n_channels=2, image_size=(33, 70), depth=13, width=2, d_hidden=8),
        (2, 33, 70),
    ),
    "CIFAR in PreActResNet": (partial(PreActResNet, **TINY), (3, 32, 32)),
    "a high image in PreActResNet with a stride": (
        partial(PreActResNet, stem_stride=2, **TINY),
        (3, 64, 40),
    ),
    "a wide image in WideResNet with dropout": (
        partial(WideResNet, depth=10, widening=1, width=2, dropout=0.5),
        (3, 32, 48),
    ),
    "ImageNet in ResNet": (partial(ResNet, **TINY), (3, 224, 224)),
    "ImageNet in ViT": (partial(ViT, **TINY_VIT), (3, 224, 224)),
    "a wide image in ViT": (
        partial(ViT, image_size=(16, 48), patch_size=8, **TINY_VIT),
        (3, 16, 48),
    ),
    "ImageNet in CoAtNet": (
        partial(CoAtNet, widths=(2, 2, 2, 4, 4), blocks=(1, 1, 1, 1, 1), d_head=2),
        (3, 224, 224),
    ),
    "odd sizes in CoAtNet": (
        partial(CoAtNet, image_size=(33, 50), widths=(2, 2, 4, 4), blocks=(1, 1, 1, 1), d_head=2),
        (3, 33, 50),
    ),
}


@pytest.mark.parametrize("case", list(AT_ITS_SIZE))
def test_a_small_network_runs_at_its_size(case):
    build, shape = AT_ITS_SIZE[case]
    logits = build(5)(torch.randn(2, *shape))
    assert logits.shape == (2, 5)
    assert bool(torch.isfinite(logits).all())


INVALID = {
    "an image too small for the poolings": (
        partial(VGG, 10, image_size=(8, 8)),
        "Got image_size=(8, 8), but VGG expected at least 32 x 32: its 5 poolings halve the image each.",
    ),
    "an image too small for the convolutions": (
        partial(LeNet, 10, image_size=(32, 15)),
        "Got image_size=(32, 15), but LeNet expected at least 16 x 16: its 2 convolutions of 5 x 5 cut 4 each, and are halved.",
    ),
    "an image too small for the groups": (
        partial(PreActResNet, 10, image_size=(4, 4)),
        "Got image_size=(4, 4), but PreActResNet expected at least 8 x 8: each of its 4 groups but the first halves the image.",
    ),
    "an image too small for two groups": (
        partial(WideResNet, 10, image_size=(3, 9)),
        "Got image_size=(3, 9), but WideResNet expected at least 4 x 4: two of its groups halve the image.",
    ),
    "an image too small for the stem": (
        partial(ResNet, 10, image_size=(28, 28)),
        "Got image_size=(28, 28), but ResNet expected at least 32 x 32: its stem and 4 groups reduce that to 1 x 1.",
    ),
    "an image too small for a patch": (
        partial(ViT, 10, image_size=(8, 8)),
        "Got image_size=(8, 8), but ViT expected at least 16 x 16: a patch has that size.",
    ),
    "an image too small for attention": (
        partial(CoAtNet, 10, image_size=(28, 28)),
        "Got image_size=(28, 28), but CoAtNet expected at least 32 x 32: its stem and 4 groups halve the image each.",
    ),
    "an image that patches do not fill": (
        partial(ViT, 10, image_size=(224, 100)),
        "Got image_size=(224, 100), but ViT expected multiples of patch_size=16.",
    ),
    "a size that is no pair": (
        partial(VGG, 10, image_size=32),
        "Got image_size=32, but expected two integers: height and width.",
    ),
    "an unknown depth of vgg": (
        partial(VGG, 10, depth=12),
        "Got depth=12, but VGG expected one of 11, 13, 16, 19: give blocks for another one.",
    ),
    "an unknown depth of preactresnet": (
        partial(PreActResNet, 10, depth=20),
        "Got depth=20, but PreActResNet expected one of 18, 34, 50, 101: give blocks for another one.",
    ),
    "an unknown depth of resnet": (
        partial(ResNet, 10, depth=18),
        "Got depth=18, but ResNet expected one of 50, 101, 152: give blocks for another one.",
    ),
    "a depth without a complete block": (
        partial(WideResNet, 10, depth=30),
        "Got depth=30, but WideResNet expected 4 plus a multiple of 6, such as 10, 16, 22, 28 or 40.",
    ),
    "heads that do not divide the width": (
        partial(ViT, 10, n_heads=7),
        "Got d_model=768, but ViT expected a multiple of n_heads=7.",
    ),
    "a head width that does not divide the last widths": (
        partial(CoAtNet, 10, d_head=36),
        "Got widths=(64, 96, 192, 384, 768), but expected the last 2 to be multiples of d_head=36.",
    ),
    "too few blocks": (
        partial(CoAtNet, 10, blocks=(1, 1, 1)),
        "Got blocks=(1, 1, 1), but expected 5 numbers, one for each of widths.",
    ),
    "blocks that are no sequence": (
        partial(PreActResNet, 10, blocks=2),
        "Got blocks=2, but expected a sequence of at least 1 integers >= 1.",
    ),
    "no outputs": (
        partial(ResNet, 0),
        "Got n_outputs=0, but expected an integer >= 1.",
    ),
    "a width that is no number": (
        partial(ViT, 10, d_model="768"),
        "Got d_model='768', but expected an integer >= 1.",
    ),
}


@pytest.mark.parametrize("case", list(INVALID))
def test_an_invalid_size_is_refused(case):
    build, message = INVALID[case]
    with torch.device("meta"), pytest.raises(ValueError) as caught:
        build()
    assert str(caught.value) == message


@every_family
def test_another_number_of_channels_is_refused(family):
    with pytest.raises(
        ValueError, match=r"^Got a batch of shape \(2, 3, 16, 16\), but \w+ expected"
    ):
        SMALL[family](10)(torch.zeros(2, 3, 16, 16))


@pytest.mark.parametrize("family", ["lenet", "vgg", "vit", "coatnet"])
def test_another_size_is_refused_by_modules_of_one_size(family):
    with pytest.raises(
        ValueError, match=r"expected \(n, 1, 16, 16\): build it with the n_channels"
    ):
        SMALL[family](10)(torch.zeros(2, 1, 20, 16))


@pytest.mark.parametrize("family", ["preactresnet", "wideresnet", "resnet"])
def test_networks_with_global_pooling_accept_other_sizes(family):
    module = SMALL[family](10)
    assert module(torch.randn(2, 1, 40, 23)).shape == (2, 10)
    with pytest.raises(ValueError, match=r"expected \(n, 1, \d+, \d+\) or larger: build it"):
        module(torch.zeros(2, 1, 16, 2))


def test_a_transformer_block_equals_that_of_torch():
    ours = TransformerBlock(8, n_heads=2, d_hidden=16)
    same = {"dropout": 0.0, "activation": "gelu", "layer_norm_eps": 1e-6}
    theirs = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, **same)
    (norm, attention), (feed_norm, widen, _, narrow) = ours.attention, ours.feed
    pairs = [
        (theirs.norm1, norm),
        (theirs.self_attn.out_proj, attention.out),
        (theirs.norm2, feed_norm),
        (theirs.linear1, widen),
        (theirs.linear2, narrow),
    ]
    for other, own in pairs:
        other.load_state_dict(own.state_dict())
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(attention.query_key_value.weight)
        theirs.self_attn.in_proj_bias.copy_(attention.query_key_value.bias)
    tokens = torch.randn(3, 5, 8)
    torch.testing.assert_close(ours(tokens), theirs(tokens), rtol=1e-4, atol=1e-5)


def test_attention_adds_one_bias_per_offset():
    places = RelativePlaces((3, 4), n_heads=2)()
    at = {}
    for i in range(12):
        for j in range(12):
            offset = (i // 4 - j // 4, i % 4 - j % 4)
            at.setdefault(offset, []).append(places[:, i, j].tolist())
    assert all(number == numbers[0] for numbers in at.values() for number in numbers)
    assert len({tuple(numbers[0]) for numbers in at.values()}) == len(at) == 5 * 7


def test_attention_selects_a_position_with_a_far_higher_score():
    attention = SelfAttention(4, 4, 1, places=RelativePlaces((1, 3), n_heads=1))
    with torch.no_grad():
        attention.places.scores.zero_()[0, 3] = 1e4  # the offset from a place to the one before
    tokens = torch.randn(2, 3, 4)
    value = attention.query_key_value(tokens)[..., 8:]
    torch.testing.assert_close(attention(tokens)[:, 1:], attention.out(value[:, :-1]))


@pytest.mark.parametrize("bottleneck", [False, True])
def test_a_preactivation_block_without_branch_is_its_shortcut(bottleneck):
    X = torch.randn(2, 8, 6, 6)
    same = PreActBlock(8, 8, stride=1, bottleneck=bottleneck)
    other = PreActBlock(8, 16, stride=2, bottleneck=bottleneck)
    for block in (same, other):
        nn.init.zeros_(block.branch[-1].weight)
    assert torch.equal(same(X), X)
    normed = nn.functional.batch_norm(X, None, None, training=True)
    expected = nn.functional.conv2d(normed.relu(), other.shortcut.weight, stride=2)
    torch.testing.assert_close(other(X), expected)


def test_a_residual_block_without_branch_is_the_relu_of_its_input():
    block = Bottleneck(8, 8, stride=1)
    nn.init.zeros_(block.branch[-1][1].weight)
    X = torch.randn(2, 8, 6, 6)
    assert torch.equal(block(X), X.relu())


def test_blocks_of_coatnet_without_branches_are_their_shortcuts():
    X = torch.randn(2, 8, 6, 5)
    convolution = MBConv(8, 8, stride=1)
    attention = AttentionBlock(8, 8, stride=1, map_size=(6, 5), d_head=4)
    for layer in (convolution.branch[-1], attention.attention.out, attention.feed[-1]):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    assert torch.equal(convolution(X), X)
    assert torch.equal(attention(X), X)


@pytest.mark.parametrize("name", ["vgg11", "preactresnet18", "resnet50"])
def test_convolutions_are_initialized_by_fan_out(name):
    for layer in NAMED[name](10, image_size=(32, 32)).modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 1e5:
            deviation = (2 / (layer.out_channels * layer.kernel_size[0] ** 2)) ** 0.5
            assert layer.weight.std().item() == pytest.approx(deviation, rel=0.02)


def test_a_vision_transformer_is_initialized_with_small_weights():
    module = ViT(10, d_model=192, depth=1, n_heads=3)
    dense = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    for layer in dense:
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert not layer.bias.any()
    assert module.stages[0].places.std().item() == pytest.approx(0.02, rel=0.1)
