"""Augmentation and affine maps, compared with torch and scipy."""

import math
import pickle

import numpy as np
import pytest
import torch
from scipy import ndimage

from mixupe_sklearn._images.augment import (
    AUGMENTATIONS,
    flip,
    make_augmentation,
    pad_crop,
    resized_crop,
    rotation,
    shear,
    warp,
    zoom,
)

COS, SIN = math.cos(math.radians(20)), math.sin(math.radians(20))
DRAWN = {"flip": flip, "pad_crop": pad_crop, "resized_crop": resized_crop}


@pytest.fixture
def images():
    return torch.randn(64, 3, 6, 8)


def degrees(*values):
    return torch.tensor(values, dtype=torch.float64)


def blobs(height, width):
    """A smooth image: interpolation of it is nearly exact."""
    y, x = torch.meshgrid(
        torch.linspace(-1, 1, height, dtype=torch.float64),
        torch.linspace(-1, 1, width, dtype=torch.float64),
        indexing="ij",
    )
    return torch.exp(-4 * ((x - 0.2) ** 2 + 2 * (y + 0.1) ** 2))[None, None]


def expected_by_scipy(image, matrix):
    """The same map by scipy: (x, y) from the middle, in pixels; zeros outside."""
    height, width = image.shape
    by_row_and_column = np.asarray(matrix)[::-1, ::-1]
    middle = np.array([(height - 1) / 2, (width - 1) / 2])
    offset = middle - by_row_and_column @ middle
    padded = ndimage.affine_transform(
        np.pad(image, 1), by_row_and_column, offset + 1 - by_row_and_column @ np.ones(2), order=1
    )
    return padded[1:-1, 1:-1]


def test_a_crop_is_a_window_of_the_padded_image_and_all_windows_occur():
    X = torch.randn(2, 3, 4)  # channels, height, width
    padded = torch.nn.functional.pad(X, (2, 2, 2, 2))
    windows = [padded[:, i : i + 3, j : j + 4] for i in range(5) for j in range(5)]
    crops = pad_crop(X.expand(600, 2, 3, 4), padding=2)
    numbers = [[k for k, w in enumerate(windows) if torch.equal(crop, w)] for crop in crops]
    assert all(len(found) == 1 for found in numbers)
    assert {found[0] for found in numbers} == set(range(25))


def test_each_image_is_cropped_from_itself(images):
    marked = torch.arange(1.0, 65.0)[:, None, None, None].expand(64, 3, 6, 8)
    values = pad_crop(marked, padding=4).flatten(1)
    assert torch.equal(values.amax(1), torch.arange(1.0, 65.0))
    assert all(set(row.tolist()) <= {0.0, k + 1.0} for k, row in enumerate(values))


def test_a_flip_returns_the_image_or_its_mirror_image(images):
    flipped = flip(images)
    is_same = [torch.equal(a, b) for a, b in zip(flipped, images, strict=True)]
    is_mirror = [torch.equal(a, b.flip(-1)) for a, b in zip(flipped, images, strict=True)]
    assert all(a != b for a, b in zip(is_same, is_mirror, strict=True))
    assert 16 < sum(is_same) < 48


def test_a_resized_crop_of_a_ramp_is_the_ramp_within_the_window():
    ramp = torch.arange(16.0).expand(200, 1, 12, 16)
    crops = resized_crop(ramp, scale=(0.25, 0.5))
    assert torch.allclose(crops, crops[:, :, :1].expand_as(crops), atol=1e-4)  # rows stay equal
    steps = crops[:, 0, 0, 8] - crops[:, 0, 0, 7]
    # A share s of the width makes steps of s; here s = sqrt(share * ratio * 12 / 16), at most 1.
    low, high = math.sqrt(0.25 * 0.75 * 0.75), math.sqrt(0.5 * 4 / 3 * 0.75)
    assert low - 1e-3 <= steps.min() < low + 0.1
    assert high - 0.1 < steps.max() <= high + 1e-3
    assert crops.min() >= 0
    assert crops.max() <= 15


def test_windows_of_a_resized_crop_reach_every_edge():
    ramp = torch.arange(16.0).expand(400, 1, 16, 16)
    crops = resized_crop(ramp, scale=(0.08, 0.1))
    assert crops.min() < 0.5
    assert crops.max() > 14.5


def test_a_full_window_is_the_image(images):
    square = images[..., :6]
    whole = resized_crop(square, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    assert torch.allclose(whole, square, atol=1e-5)


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_equal_seeds_give_equal_images_and_leave_the_input_alone(name, images):
    before = images.clone()
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(DRAWN[name](images))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(images, before)


@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", [*sorted(DRAWN), "warp"])
def test_type_shape_and_layout_are_kept(name, dtype, layout, images):
    order = getattr(torch, layout)
    X = images.to(dtype).contiguous(memory_format=order)
    function = DRAWN.get(name, lambda X: warp(X, rotation(torch.full((64,), 10.0))))
    result = function(X)
    assert (result.shape, result.dtype, result.device) == (X.shape, dtype, X.device)
    assert result.is_contiguous(memory_format=order)


@pytest.mark.parametrize("theta", [rotation(degrees(0)), shear(degrees(0)), zoom(degrees(1))])
def test_identity_maps_return_the_image(theta):
    X = torch.randn(5, 2, 7, 4, dtype=torch.float64)
    assert torch.allclose(warp(X, theta), X, atol=1e-12)


@pytest.mark.parametrize("quarter", [1, 2, 3])
def test_a_rotation_by_quarters_equals_that_of_torch(quarter):
    X = torch.randn(3, 2, 5, 5, dtype=torch.float64)
    expected = torch.rot90(X, quarter, (-2, -1))
    assert torch.allclose(warp(X, rotation(degrees(90.0 * quarter))), expected, atol=1e-12)


@pytest.mark.parametrize("size", [(12, 12), (9, 14)], ids=str)
@pytest.mark.parametrize(
    ("make", "value", "matrix"),
    [
        (rotation, 20.0, [[COS, -SIN], [SIN, COS]]),
        (shear, 28.6, [[1, math.tan(math.radians(28.6))], [0, 1]]),
        (zoom, 0.6, [[0.6, 0], [0, 0.6]]),
        (zoom, 1.4, [[1.4, 0], [0, 1.4]]),
    ],
    ids=["rotation", "shear", "zoom-in", "zoom-out"],
)
def test_maps_equal_those_of_scipy(make, value, matrix, size):
    X = torch.randn(1, 1, *size, dtype=torch.float64)
    mapped = warp(X, make(degrees(value)))[0, 0]
    assert np.allclose(mapped, expected_by_scipy(X[0, 0].numpy(), matrix), atol=1e-9)


def test_each_image_has_its_own_map():
    X = torch.randn(3, 1, 8, 8, dtype=torch.float64)
    angles = degrees(-30, 0, 45)
    together = warp(X, rotation(angles))
    alone = [warp(X[k : k + 1], rotation(angles[k : k + 1])) for k in range(3)]
    assert torch.allclose(together, torch.cat(alone))


@pytest.mark.parametrize("size", [(40, 40), (30, 50)], ids=str)
def test_zooming_in_by_half_and_back_gives_the_inner_half(size):
    X = blobs(*size)
    there_and_back = warp(warp(X, zoom(degrees(0.5))), zoom(degrees(2.0)))
    top, left = size[0] // 4 + 1, size[1] // 4 + 1
    inner = (slice(None), slice(None), slice(top, -top), slice(left, -left))
    assert torch.allclose(there_and_back[inner], X[inner], atol=0.02)
    assert there_and_back[..., : top - 2, :].abs().max() == 0


def test_a_rotated_wide_image_is_not_distorted():
    # A square in a wide image, turned by 90 degrees, is the same square.
    X = torch.zeros(1, 1, 9, 21, dtype=torch.float64)
    X[..., 2:7, 8:13] = 1
    assert torch.allclose(warp(X, rotation(degrees(90))), X, atol=1e-9)


@pytest.mark.parametrize("name", list(AUGMENTATIONS))
def test_every_named_augmentation_runs_and_is_picklable(name, images):
    augmentation = make_augmentation(name)
    result = augmentation(images)
    assert result.shape == images.shape
    assert not torch.equal(result, images)
    assert pickle.loads(pickle.dumps(augmentation)) is augmentation


def test_a_function_and_none_are_returned_unchanged():
    assert make_augmentation(torch.neg) is torch.neg
    assert make_augmentation(None) is None


@pytest.mark.parametrize("augment", ["rotate", 4, ["flip"]], ids=str)
def test_an_unknown_augmentation_is_refused(augment):
    with pytest.raises(ValueError, match="Got augment=.*'crop-flip', 'resized-crop-flip' or a fun"):
        make_augmentation(augment)
