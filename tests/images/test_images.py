"""Images of every format become the same tensors, and invalid ones raise an error."""

import multiprocessing
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import mixupe_sklearn._images.read as read_module
import mixupe_sklearn._images.torch_datasets as datasets_module
from mixupe_sklearn._data.dataloader import Loader
from mixupe_sklearn._images.files import ImageFiles
from mixupe_sklearn._images.read import channel_statistics, read_images
from mixupe_sklearn._images.torch_datasets import DatasetImages, find_labels

RNG = np.random.default_rng(0)
COLOURS = RNG.integers(0, 256, (6, 8, 10, 3), dtype=np.uint8)  # n, h, w, c
GREYS = COLOURS[..., 0]
EXPECTED = torch.from_numpy(COLOURS).permute(0, 3, 1, 2)


@pytest.fixture
def folder(tmp_path):
    """Two classes of three PNG files each, beside what is no image."""
    for number, pixels in enumerate(COLOURS):
        path = tmp_path / "set" / ("cat" if number < 3 else "dog") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return tmp_path / "set"


@pytest.fixture
def paths(folder):
    return sorted(folder.rglob("*.png"))


class Pairs(Dataset):
    """A Dataset as users write it; counts how often an item was asked for."""

    def __init__(self, images, labels=None):
        self.images, self.own, self.n_asked = images, labels, 0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        self.n_asked += 1
        image = self.images[index]
        return image if self.own is None else (image, self.own[index])


def forms():
    """The same six colour images in all the forms that are taken."""
    first = COLOURS.transpose(0, 3, 1, 2)
    drawn = [Image.fromarray(pixels) for pixels in COLOURS]
    objects = np.empty(6, dtype=object)
    objects[:] = drawn
    return {
        "nhwc": COLOURS,
        "nchw": np.ascontiguousarray(first),
        "read-only": np.frombuffer(COLOURS.tobytes(), np.uint8).reshape(COLOURS.shape),
        "backwards": COLOURS[::-1, ::-1].copy()[::-1, ::-1],
        "int64": COLOURS.astype(np.int64),
        "uint16": COLOURS.astype(">u2"),
        "tensor-nchw": torch.from_numpy(first.copy()),
        "tensor-nhwc": torch.from_numpy(COLOURS),
        "nested": COLOURS.tolist(),
        "pillow": drawn,
        "pillow-tuple": tuple(drawn),
        "objects": objects,
        "arrays": list(COLOURS),
        "arrays-chw": list(first),
        "tensors": list(torch.from_numpy(first.copy())),
        "mixed": [*drawn[:3], *COLOURS[3:]],
    }


@pytest.mark.parametrize("form", list(forms()))
def test_every_format_gives_the_same_bytes(form):
    images = read_images(forms()[form])
    assert images.data.dtype == torch.uint8
    assert torch.equal(images.data, EXPECTED)
    assert images.labels is None
    assert images.float_range is None
    assert isinstance(images.data, torch.Tensor)


@pytest.mark.parametrize("form", ["strings", "paths", "series", "array"])
def test_every_sequence_of_paths_gives_the_same_bytes(form, paths):
    texts = [str(path) for path in paths]
    X = {"strings": texts, "paths": paths, "series": pd.Series(texts), "array": np.array(texts)}[
        form
    ]
    assert torch.equal(read_images(X).data, EXPECTED)


def test_a_folder_of_class_folders_gives_images_and_labels(folder):
    for name in (".DS_Store", "cat/Thumbs.db", "dog/.hidden.png", "cat/notes.txt", ".git/1.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("no image")
    for X in (folder, str(folder)):
        images = read_images(X)
        assert torch.equal(images.data, EXPECTED)
        assert images.labels.tolist() == ["cat"] * 3 + ["dog"] * 3


def test_bytes_are_not_copied():
    for X in (COLOURS, GREYS.copy(), COLOURS.transpose(0, 3, 1, 2)):
        assert read_images(X).data.data_ptr() == X.ctypes.data
    tensor = torch.rand(2, 1, 4, 4)
    assert read_images(tensor).data.data_ptr() == tensor.data_ptr()


def test_read_only_memory_is_not_copied_and_raises_no_warning(tmp_path):
    np.save(tmp_path / "X.npy", COLOURS)
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    torch.set_warn_always(True)  # else it warns only once in a process
    try:
        with pytest.warns(UserWarning, match="not writable"):
            torch.from_numpy(X)
        data = read_images(X).data
    finally:
        torch.set_warn_always(False)
    assert data.data_ptr() == X.ctypes.data
    assert torch.equal(data, EXPECTED)


@pytest.mark.parametrize(
    "X",
    [GREYS, GREYS[..., None], GREYS[:, None], list(GREYS), torch.from_numpy(GREYS.copy())],
    ids=["nhw", "nhwc", "nchw", "list", "tensor"],
)
def test_grey_images_have_one_channel(X):
    assert torch.equal(read_images(X).data, EXPECTED[:, :1])


def test_booleans_are_black_and_white():
    X = GREYS > 100
    assert torch.equal(read_images(X).data[:, 0], torch.from_numpy(X) * 255)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64], ids=str)
def test_the_range_of_floats_is_inferred(dtype):
    small, large = read_images((COLOURS / 255).astype(dtype)), read_images(COLOURS.astype(dtype))
    assert small.float_range == (0.0, 1.0)
    assert large.float_range == (0.0, 255.0)
    for images in (small, large):
        assert images.data.dtype == torch.float32
        assert torch.allclose(images.data, EXPECTED / 255, atol=1e-3)


def test_the_range_is_inferred_from_all_images_of_a_list():
    X = [np.zeros((4, 4)), np.full((4, 4), 255.0)]
    assert read_images(X).data.amax((1, 2, 3)).tolist() == [0.0, 1.0]


def test_rounding_beyond_the_range_is_clipped():
    X = np.array([[[0.0, 1.0 + 1e-6], [-1e-7, 0.5]]])
    data = read_images(X).data
    assert data.min() == 0
    assert data.max() == 1


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64, np.uint16], ids=str)
def test_value_range_is_mapped_to_zero_and_one(dtype):
    X = np.array([[[10, 20], [30, 50]]], dtype=dtype)
    images = read_images(X, value_range=(10, 50))
    assert images.data.dtype == torch.float32
    assert torch.allclose(images.data.flatten(), torch.tensor([0.0, 0.25, 0.5, 1.0]))


def test_the_range_of_fit_applies_to_dark_images_but_not_to_bytes():
    dark = np.full((1, 2, 2), 0.51)
    assert read_images(dark, float_range=(0.0, 255.0)).data.max() == pytest.approx(0.002)
    assert torch.equal(read_images(COLOURS, float_range=(0.0, 1.0)).data, EXPECTED)
    with pytest.raises(
        ValueError,
        match="Got X\\[0\\] with a pixel of 9, but expected 0 to 1; value_range=.low, high",
    ):
        read_images(np.full((1, 2, 2), 9.0), float_range=(0.0, 1.0))


def test_value_range_applies_to_arrays_and_not_to_files(paths):
    drawn = [Image.fromarray(pixels) for pixels in COLOURS]
    for X in (drawn, paths, Pairs(drawn)):
        data = read_images(X, value_range=(-1, 1)).data
        assert torch.equal(data[0], EXPECTED[0])


# Layouts


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 5, 9, 3), (2, 3, 5, 9)),
        ((2, 3, 5, 9), (2, 3, 5, 9)),
        ((2, 5, 9, 4), (2, 4, 5, 9)),
        ((2, 4, 5, 9), (2, 4, 5, 9)),
        ((2, 1, 5, 9), (2, 1, 5, 9)),
        ((7, 4, 4), (7, 1, 4, 4)),
        ((3, 32, 32), (3, 1, 32, 32)),
    ],
    ids=str,
)
def test_the_channel_axis_is_inferred(shape, expected):
    assert read_images(np.zeros(shape)).shape == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 3, 4, 4), (2, 3, 4, 4)),
        ((2, 12, 20, 30), (2, 12, 20, 30)),
        ((2, 2, 5, 5), (2, 2, 5, 5)),
        ((2, 20, 30, 3), (2, 3, 20, 30)),
    ],
    ids=str,
)
def test_tensors_have_channels_first_if_possible(shape, expected):
    assert read_images(torch.zeros(shape)).shape == expected


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (
            np.zeros((2, 3, 8, 3)),
            "Got X with images of shape (3, 8, 3), two axes of 1, 3 or 4 channels, but expected (h, w, c)",
        ),
        (
            [np.zeros((8, 8, 2))],
            "Got X[0] with images of shape (8, 8, 2), no axis of 1, 3 or 4 channels, but expected (h, w, c)",
        ),
        (
            np.zeros((2, 8, 8, 2)),
            "Got X with images of shape (8, 8, 2), no axis of 1, 3 or 4 channels, but expected",
        ),
        (
            torch.zeros(2, 8, 8, 2),
            "Got X with images of shape (8, 8, 2), no axis of 1, 3 or 4 channels, but expected",
        ),
        (
            np.zeros(5),
            "Got X of shape (5,), but expected images (n, h, w), (n, h, w, c) or (n, c, h, w).",
        ),
        (
            np.zeros((5, 64)),
            "(n, c, h, w); reshape rows of pixels, as in X.reshape(-1, 28, 28).",
        ),
        (np.zeros((5, 1, 2, 3, 4)), "Got X of shape (5, 1, 2, 3, 4), but expected images"),
        (np.zeros((32, 32, 3)), "pass a single image (h, w, c) as X[None]."),
        (np.zeros((0, 8, 8)), "Got X of shape (0, 8, 8), but expected at least one image."),
        (np.zeros((2, 8, 0)), "Got X of shape (2, 8, 0), but expected at least one image."),
        ([], "Got X without any image, but expected some."),
        (
            [np.zeros((8, 8)), np.zeros((8, 8, 3))],
            "Got X[1] with 3 channels, but expected 1 as X[0] has; make all grey or all RGB.",
        ),
        (
            [np.zeros((4, 4)), np.zeros((4, 6))],
            "Got X[1] of size (4, 6), but expected (4, 4) as X[0] has; give image_size=(height, width) to resize all.",
        ),
        (
            [GREYS[0], GREYS[1] / 255],
            "Got X[1] of torch.float32, but expected torch.uint8 as X[0] has; make all of one type.",
        ),
        (
            [GREYS[0], np.zeros(4)],
            "Got X[1] of shape (4,), but expected an image (h, w), (h, w, c) or (c, h, w).",
        ),
        (Image.fromarray(GREYS[0]), "Got X of type Image, but expected arrays, a list of images"),
        (7, "Got X of type int, but expected arrays, a list of images or of files, a folder"),
        (
            [GREYS[0], None],
            "Got X[1] of type NoneType, but expected a PIL image or an array",
        ),
        (
            [GREYS[0], "cat.png"],
            "Got X[1] of type str, but expected a PIL image or an array; a list of paths may hold nothing else.",
        ),
        (
            np.zeros((2, 4, 4), dtype=complex),
            "Got X of type complex128, but expected real numbers.",
        ),
        (
            torch.zeros(2, 4, 4, dtype=torch.complex64),
            "Got X of type torch.complex64, but expected dense real numbers.",
        ),
        (np.full((2, 4, 4), "a"), "Got X of type <U1, but expected real numbers."),
    ],
    ids=range(22),
)
def test_invalid_images_are_refused(X, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        read_images(X)
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")


# Values


def spoiled(value, number=4, dtype=np.float64, scale=1.0):
    X = (GREYS[:, :4, :4] * scale).astype(dtype)
    X[number, 1, 2] = value
    return X


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (spoiled(np.nan), "Got X[4] with a pixel of nan, but expected finite numbers."),
        (list(spoiled(np.inf)), "Got X[4] with a pixel of inf, but expected finite numbers."),
        (spoiled(-np.inf, scale=1 / 255), "Got X[4] with a pixel of -inf"),
        (
            spoiled(300.0),
            "to 300, but expected them within 0 to 1, or within 0 to 255 with some above 2; value_range=(low, high)",
        ),
        (spoiled(-0.5, scale=1 / 255), "Got X with floats from -0.5 to "),
        (spoiled(-3.0), "Got X with floats from -3 to "),
        (
            spoiled(1.3, scale=1 / 255),
            "to 1.3, but expected them within 0 to 1, or within 0 to 255 with some above 2",
        ),
        (
            spoiled(256, dtype=np.int64),
            "Got X[4] with a pixel of 256, but expected 0 to 255; value_range",
        ),
        (
            spoiled(-1, dtype=np.int32),
            "Got X[4] with a pixel of -1, but expected 0 to 255; value_range",
        ),
        (list(spoiled(256, dtype=np.int64)), "Got X[4] with a pixel of 256, but expected 0 to 255"),
    ],
    ids=range(10),
)
def test_values_out_of_range_are_refused(X, message):
    with pytest.raises(ValueError) as caught:
        read_images(X)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "X",
    [
        spoiled(2.0, scale=1 / 255),
        list(spoiled(2.0, scale=1 / 255)),
        Pairs(spoiled(2.0, scale=1 / 255)),
    ],
    ids=["array", "list", "dataset"],
)
def test_values_outside_of_value_range_are_refused(X):
    message = (
        "Got X\\[4\\] with a pixel of 2, but expected -1 to 1; value_range=.low, high. declares"
    )
    with pytest.raises(ValueError, match=message):
        read_images(X, value_range=(-1, 1)).data[4]


@pytest.mark.parametrize("form", [np.asarray, list, Pairs], ids=["array", "list", "dataset"])
def test_bytes_outside_of_value_range_are_refused(form):
    with pytest.raises(ValueError, match="but expected -1 to 1; value_range"):
        read_images(form(COLOURS), value_range=(-1, 1))


@pytest.mark.parametrize("form", [np.asarray, list, Pairs], ids=["array", "list", "dataset"])
def test_normalised_images_are_refused_with_advice(form):
    X = form((COLOURS / 255 - 0.5) / 0.25)
    with pytest.raises(ValueError, match="declares the range of the input, which fit normalises."):
        read_images(X)


def test_nan_is_refused_with_value_range():
    with pytest.raises(ValueError, match="Got X\\[4\\] with a pixel of nan, but expected finite"):
        read_images(spoiled(np.nan), value_range=(0, 255))


@pytest.mark.parametrize("value_range", [(1, 1), (0, np.inf), 255, "01", (0, 1, 2)], ids=str)
def test_an_invalid_range_is_refused(value_range):
    with pytest.raises(
        ValueError, match="Got value_range=.*, but expected None or two finite numbers"
    ):
        read_images(GREYS, value_range=value_range)


@pytest.mark.parametrize("image_size", [32, (0, 4), (4,), (4.5, 4), "44"], ids=str)
def test_an_invalid_size_is_refused(image_size):
    with pytest.raises(ValueError, match="Got image_size=.*, but expected None or two integers"):
        read_images(GREYS, image_size=image_size)


# Sizes


def test_resizing_equals_pillow_up_to_rounding():
    smooth = Image.fromarray(COLOURS[0]).resize((40, 32), Image.Resampling.BICUBIC)
    ours = read_images([smooth], image_size=(12, 30)).data[0].permute(1, 2, 0).numpy()
    theirs = np.asarray(smooth.resize((30, 12), Image.Resampling.BILINEAR))
    assert np.abs(ours.astype(int) - theirs).max() <= 1


@pytest.mark.parametrize("form", ["array", "list", "pillow", "files", "dataset"])
def test_all_formats_are_resized_alike(form, paths):
    drawn = [Image.fromarray(pixels) for pixels in COLOURS]
    X = {
        "array": COLOURS,
        "list": list(COLOURS),
        "pillow": drawn,
        "files": paths,
        "dataset": Pairs(drawn),
    }[form]
    images = read_images(X, image_size=(5, 6))
    assert images.shape == (6, 3, 5, 6)
    expected = torch.nn.functional.interpolate(EXPECTED, (5, 6), mode="bilinear", antialias=True)
    for number in range(6):
        assert (images.data[number].int() - expected[number].int()).abs().max() <= 1


def test_images_of_different_sizes_are_resized_to_one_size():
    X = [np.full((h, w), 7.0) for h, w in ((4, 4), (9, 2), (1, 1))]
    data = read_images(X, image_size=(3, 5)).data
    assert data.shape == (3, 1, 3, 5)
    assert torch.allclose(data, torch.full_like(data, 7 / 255))


# Files and images of Pillow


@pytest.mark.parametrize("mode", ["RGBA", "P", "CMYK", "YCbCr", "HSV"])
def test_colours_of_every_mode_become_rgb(mode, tmp_path):
    red = Image.new("RGB", (3, 2), (200, 30, 40)).convert(mode)
    data = read_images([red]).data
    assert data.shape == (1, 3, 2, 3)
    assert (data.float().mean((0, 2, 3)) - torch.tensor([200.0, 30.0, 40.0])).abs().max() < 8


def test_a_palette_with_transparency_is_read_without_a_warning(tmp_path):
    image = Image.new("P", (3, 2))
    image.putpalette([10, 20, 30] * 256)
    image.save(tmp_path / "a.png", transparency=bytes([0, 128, 255]))
    assert read_images([tmp_path / "a.png"]).data[0, :, 0, 0].tolist() == [10, 20, 30]


def test_sixteen_bits_become_eight(tmp_path):
    values = np.array([[0, 128, 129, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert read_images([tmp_path / "a.png"]).data.flatten().tolist() == [0, 0, 1, 255]


def test_a_photo_is_rotated_by_its_exif_orientation(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to see it upright
    pixels = np.zeros((4, 6), np.uint8)
    pixels[:, 0] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    data = read_images([tmp_path / "a.png"]).data
    assert data.shape == (1, 1, 6, 4)
    assert data[0, 0, 0].tolist() == [255] * 4


def test_grey_files_among_colours_are_read_in_colour(folder):
    Image.fromarray(GREYS[0]).save(folder / "cat" / "0.png")
    data = read_images(folder).data
    assert torch.equal(data[0], EXPECTED[0, :1].expand(3, 8, 10))
    assert torch.equal(data[1:], EXPECTED[1:])


def test_grey_images_among_colours_are_read_in_colour():
    X = [Image.fromarray(GREYS[0]), Image.fromarray(COLOURS[1])]
    assert torch.equal(read_images(X).data[0], EXPECTED[0, :1].expand(3, 8, 10))


def test_grey_files_have_one_channel_unless_three_are_requested(tmp_path):
    Image.fromarray(GREYS[0]).save(tmp_path / "a.png")
    assert read_images([tmp_path / "a.png"]).shape == (1, 1, 8, 10)
    assert read_images([tmp_path / "a.png"], n_channels=3).shape == (1, 3, 8, 10)


def test_colour_files_where_grey_is_expected_are_refused(paths):
    with pytest.raises(ValueError, match="Got file '.*0.png' in colour, but expected grey images"):
        read_images(paths, n_channels=1)


def test_an_image_of_floats_is_refused():
    with pytest.raises(
        ValueError, match="Got X\\[0\\], an image of floats, but expected 8 or 16 bits"
    ):
        read_images([Image.new("F", (2, 2))])


def test_an_image_of_more_than_sixteen_bits_is_refused():
    image = Image.fromarray(np.array([[0, 70000]], dtype=np.int32))
    with pytest.raises(
        ValueError, match="Got X\\[0\\] with values from 0 to 70000, but expected 16 bits"
    ):
        read_images([image])


def damage(path, how):
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "text": b"no image"}[how])


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "gif", "webp", "tif"])
@pytest.mark.parametrize("how", ["cut", "empty", "text"])
@pytest.mark.parametrize("number", [0, 4])
def test_a_damaged_file_is_reported(tmp_path, suffix, how, number):
    paths = [tmp_path / f"{k}.{suffix}" for k in range(6)]
    for path, pixels in zip(paths, COLOURS, strict=True):
        Image.fromarray(pixels).save(path)
    damage(paths[number], how)
    with pytest.raises(
        ValueError,
        match=f"Got file '.*{number}.{suffix}', but expected an intact image \\(.*\\); repair or remove it.",
    ):
        read_images(paths)


def test_a_small_file_of_many_pixels_is_refused(tmp_path):
    """Pillow's own limit is nearly three times as high."""
    path = tmp_path / "large.png"
    Image.new("1", (8_000, 8_000)).save(path)
    assert path.stat().st_size < 20_000
    message = "large.png' with 8000 x 8000 pixels, but expected at most 50,000,000 in an image"
    for arguments in ({}, {"image_size": (8, 8)}):
        with pytest.raises(ValueError, match=message):
            read_images([path], **arguments)


def test_a_pil_image_of_a_truncated_file_is_reported(paths):
    damage(paths[4], "cut")
    with (
        Image.open(paths[4]) as image,
        pytest.raises(ValueError, match="Got X\\[1\\], but expected an intact image \\("),
    ):
        read_images([Image.fromarray(COLOURS[0]), image])


def test_a_missing_file_is_reported(paths):
    with pytest.raises(FileNotFoundError, match="nowhere.png"):
        read_images([*paths, paths[0].parent / "nowhere.png"])


def test_files_of_unequal_size_are_reported(paths):
    Image.new("RGB", (7, 5)).save(paths[4])
    with pytest.raises(
        ValueError,
        match="Got file '.*4.png' of size \\(5, 7\\), but expected \\(8, 10\\) as file '.*0.png' has; give image_size",
    ):
        read_images(paths)


# Folders


def empty(folder):
    for path in folder.rglob("*.png"):
        path.unlink()
    for path in folder.iterdir():
        path.rmdir()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (empty, "with no folder in it, but expected a folder for each class"),
        (
            lambda f: (f / "dog").rename(f.parent / "dog"),
            "with one class only, 'cat', but expected two.",
        ),
        (
            lambda f: (f / "cat" / "0.png").rename(f / "0.png"),
            "with '0.png' directly in it, but expected a folder for each class; for files without classes, give a list",
        ),
        (
            lambda f: (f / "eel").mkdir(),
            "without any image in 'eel', but expected some in every class folder",
        ),
        (
            lambda f: [(f / a).rename(f / b) for a, b in (("cat", "train"), ("dog", "Test"))],
            "with the folders 'Test', 'train', which are splits of a dataset",
        ),
    ],
    ids=["empty", "one-class", "directly", "empty-class", "parts"],
)
def test_an_invalid_folder_of_classes_is_refused(folder, change, message):
    change(folder)
    with pytest.raises(ValueError) as caught:
        read_images(folder)
    assert str(caught.value).startswith(f"Got X={str(folder)!r} ")
    assert message in str(caught.value)


def test_a_cycle_of_links_is_followed_once(folder):
    (folder / "cat" / "again").symlink_to(folder / "cat", target_is_directory=True)
    assert len(read_images(folder).data) == len(EXPECTED)


def test_pairs_in_a_list_are_refused():
    with pytest.raises(ValueError, match=r"Got X\[0\], a pair, but expected an image alone; give"):
        read_images([(image, 1) for image in COLOURS])


def test_a_path_that_is_not_a_folder_is_refused(folder, paths):
    with pytest.raises(
        FileNotFoundError, match="Got X='', but expected an existing folder, or a list"
    ):
        read_images("")
    with pytest.raises(
        FileNotFoundError,
        match="Got X='no such folder', but expected an existing folder, or a list of files; the current",
    ):
        read_images("no such folder")
    with pytest.raises(FileNotFoundError, match="Got X='.*0.png', but expected an existing folder"):
        read_images(str(paths[0]))


def test_any_folder_with_images_is_read_without_labels(folder, tmp_path):
    assert torch.equal(read_images(folder, labelled=False).data, EXPECTED)
    assert read_images(folder / "cat", labelled=False).shape == (3, 3, 8, 10)
    (tmp_path / "void").mkdir()
    with pytest.raises(ValueError, match="Got X='.*void' without any image, but expected some."):
        read_images(tmp_path / "void", labelled=False)


# Lazy images


@pytest.fixture
def lazy_files(folder, monkeypatch):
    monkeypatch.setattr(read_module, "IN_MEMORY", 6 * 240 - 1)
    return read_images(folder)


def test_many_files_are_read_on_access(lazy_files):
    assert not isinstance(lazy_files.data, torch.Tensor)
    assert isinstance(lazy_files.data, ImageFiles)
    assert lazy_files.shape == (6, 3, 8, 10)
    assert lazy_files.labels.tolist() == ["cat"] * 3 + ["dog"] * 3
    assert torch.equal(torch.stack([lazy_files.data[k] for k in range(6)]), EXPECTED)


def test_files_at_the_limit_are_read_into_memory(folder, monkeypatch):
    monkeypatch.setattr(read_module, "IN_MEMORY", 6 * 240)
    assert isinstance(read_images(folder).data, torch.Tensor)


def test_lazy_files_that_change_are_reported(lazy_files, paths):
    Image.new("RGB", (7, 5)).save(paths[5])
    damage(paths[3], "cut")
    with pytest.raises(ValueError, match="Got file '.*5.png' of size \\(5, 7\\)"):
        lazy_files.data[5]
    with pytest.raises(ValueError, match="Got file '.*3.png', but expected an intact image"):
        lazy_files.data[3]


@pytest.mark.parametrize("kind", ["files", "dataset"])
def test_lazy_images_can_be_pickled_and_read_by_workers(kind, paths):
    data = ImageFiles(paths) if kind == "files" else DatasetImages(Pairs(COLOURS))
    again = pickle.loads(pickle.dumps(data))
    assert again.shape == (6, 3, 8, 10)
    batches = list(DataLoader(again, batch_size=4, num_workers=1))
    assert torch.equal(torch.cat(batches), EXPECTED)


@pytest.fixture
def new_processes():
    """Those that a test has begun and that still run."""
    before = set(multiprocessing.active_children())
    return lambda: set(multiprocessing.active_children()) - before


def test_workers_read_the_same_images_and_report_a_damaged_file(folder, paths, new_processes):
    assert torch.equal(read_images(folder, n_workers=1).data, EXPECTED)
    damage(paths[4], "cut")
    with pytest.raises(
        ValueError, match="^Got file '.*4.png', but expected an intact .*it.$"
    ) as caught:
        read_images(folder, n_workers=1)
    assert caught.value.__context__ is None
    assert new_processes() == set()


@pytest.mark.parametrize("stay", [False, True], ids=["for-one-epoch", "persistent"])
def test_an_error_in_a_worker_is_raised_alone_and_ends_all_workers(stay, new_processes):
    data = DatasetImages(Pairs([*COLOURS[:5], GREYS[5]]))
    loader = Loader(data, batch_size=2, num_workers=2, persistent_workers=stay)
    with pytest.raises(ValueError, match="^Got X.5. with 1 channel, but .* grey or all RGB.$"):
        list(loader)
    assert new_processes() == set()


class Faulty(Pairs):
    def __getitem__(self, index):
        return self.nowhere


def test_an_error_in_a_users_dataset_keeps_its_traceback(new_processes):
    with pytest.raises(AttributeError, match="Caught AttributeError in (?s:.*)in __getitem__"):
        list(Loader(Faulty(COLOURS), num_workers=1))
    assert new_processes() == set()


@pytest.mark.parametrize(
    "labels", [np.arange(6), list("aabbcc"), torch.arange(6)], ids=["array", "list", "tensor"]
)
def test_a_dataset_gives_images_and_labels(labels):
    images = read_images(Pairs(COLOURS, labels))
    assert not isinstance(images.data, torch.Tensor)
    assert images.shape == (6, 3, 8, 10)
    assert images.labels.tolist() == list(np.asarray(labels))
    assert torch.equal(images.data[5], EXPECTED[5])


@pytest.mark.parametrize(
    "form", [torch.from_numpy, np.asarray, np.ndarray.tolist], ids=["tensor", "array", "list"]
)
def test_multi_label_items_become_a_matrix(form):
    labels = RNG.integers(0, 2, (6, 3))
    found = find_labels(Pairs(COLOURS, [form(own) for own in labels]))
    assert np.array_equal(found, labels)


def test_a_label_in_an_array_of_size_one_is_a_scalar():
    assert find_labels(Pairs(COLOURS, torch.arange(6)[:, None])).tolist() == list(range(6))


def test_items_with_different_numbers_of_labels_are_refused():
    labels = [[0, 1], [1, 1], [0], [1, 0], [1], [0, 0]]
    with pytest.raises(ValueError, match="Got X_val.2. with 1 labels, but expected 2 as X_val.0."):
        read_images(Pairs(COLOURS, labels), name="X_val")


@pytest.mark.parametrize("name", ["targets", "labels"])
def test_stored_labels_are_used_without_reading_images(name):
    pairs = Pairs(COLOURS, [0] * 6)
    setattr(pairs, name, [5, 4, 3, 2, 1, 0])
    assert find_labels(pairs).tolist() == [5, 4, 3, 2, 1, 0]
    assert find_labels(Subset(pairs, [1, 0])).tolist() == [4, 5]
    assert pairs.n_asked == 0


def test_transformed_labels_are_read_from_the_items():
    pairs = Pairs(COLOURS, [k % 2 for k in range(6)])
    pairs.targets, pairs.target_transform = list(range(6)), lambda label: label % 2
    assert find_labels(pairs).tolist() == [0, 1, 0, 1, 0, 1]


def test_a_dataset_without_labels_has_none():
    for X in (Pairs(COLOURS), TensorDataset(EXPECTED), Pairs(COLOURS, [None] * 6)):
        assert read_images(X).labels is None


def test_labels_are_read_only_if_needed():
    pairs = Pairs(COLOURS, [0] * 6)
    assert read_images(pairs, labelled=False).labels is None
    assert pairs.n_asked == 1


def test_floats_of_a_dataset_are_from_zero_to_one():
    images = read_images(Pairs(COLOURS / 255))
    assert images.float_range == (0.0, 1.0)
    assert torch.allclose(images.data[2], EXPECTED[2] / 255)
    with pytest.raises(
        ValueError,
        match="Got X\\[0\\] with a pixel of .*, but expected 0 to 1; value_range",
    ):
        read_images(Pairs(COLOURS.astype(float)))
    assert torch.allclose(
        read_images(Pairs(COLOURS.astype(float)), value_range=(0, 255)).data[2], EXPECTED[2] / 255
    )


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            COLOURS[0, :5],
            "Got X[5] of size (5, 10), but expected (8, 10) as X[0] has; give image_size",
        ),
        (
            GREYS[0],
            "Got X[5] with 1 channel, but expected 3 as X[0] has; make all grey or all RGB.",
        ),
        (COLOURS[0] / 255, "Got X[5] of torch.float32, but expected torch.uint8 as X[0] has"),
        (np.full((8, 10, 3), np.nan), "Got X[5] with a pixel of nan, but expected finite numbers."),
        ("5.png", "Got X[5] of type str, but expected a PIL image or an array"),
        ({"image": 5}, "Got X[5] of type dict, but expected a PIL image or an array"),
    ],
    ids=["size", "channels", "type", "nan", "path", "dict"],
)
def test_a_different_item_of_a_dataset_is_reported(item, message):
    images = read_images(Pairs([*COLOURS[:5], item]))
    assert images.data[4].shape == (3, 8, 10)
    with pytest.raises((ValueError, TypeError)) as caught:
        images.data[5]
    assert message in str(caught.value)


def test_pil_images_of_a_dataset_have_the_channels_of_the_first():
    colour, grey = Image.fromarray(COLOURS[0]), Image.fromarray(GREYS[0])
    assert read_images(Pairs([colour, grey])).data[1].shape == (3, 8, 10)
    with pytest.raises(ValueError, match="Got X\\[1\\] in colour, but expected grey images"):
        read_images(Pairs([grey, colour])).data[1]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(COLOURS)


def test_a_dataset_without_length_or_items_is_refused():
    with pytest.raises(
        TypeError,
        match="Got X=Stream without a length, but expected a map-style Dataset.",
    ):
        read_images(Stream())
    with pytest.raises(ValueError, match="Got X without any image, but expected some."):
        read_images(Pairs([]))


def test_reading_draws_nothing_from_the_global_generator(paths):
    before = torch.get_rng_state()
    read_images(paths)
    channel_statistics(read_images(Pairs(COLOURS, [0] * 6)).data)
    assert torch.equal(torch.get_rng_state(), before)


# Statistics


def expected_statistics(images, weight):
    values = (images.double() / (255 if images.dtype == torch.uint8 else 1)).flatten(2).numpy()
    mean = np.average(values.mean(2), axis=0, weights=weight)
    variance = np.average(((values - mean[:, None]) ** 2).mean(2), axis=0, weights=weight)
    return mean, np.sqrt(variance)


@pytest.mark.parametrize("form", ["bytes", "floats", "files", "dataset"])
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_equal_those_of_all_pixels_at_once(form, weighted, paths, monkeypatch):
    monkeypatch.setattr(read_module, "CHUNK", 2)
    monkeypatch.setattr(datasets_module, "CHUNK", 2)
    data = {
        "bytes": EXPECTED,
        "floats": EXPECTED / 255,
        "files": ImageFiles(paths),
        "dataset": DatasetImages(Pairs(COLOURS)),
    }[form]
    index = np.array([5, 0, 1, 3, 4])
    weight = np.array([1.0, 0.0, 9.0, 2.0, 3.0, 0.5]) if weighted else None
    mean, std = channel_statistics(data, index, weight)
    own = None if weight is None else weight[index]
    expected = expected_statistics(EXPECTED[index], own)
    assert mean.dtype == std.dtype == np.float64
    assert np.allclose(mean, expected[0], atol=1e-7)
    assert np.allclose(std, expected[1], atol=1e-7)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0], ids=str)
def test_a_constant_channel_has_a_deviation_of_one(value):
    X = torch.rand(700, 2, 5, 5)
    X[:, 1] = value
    mean, std = channel_statistics(X)
    assert std[0] == pytest.approx(12**-0.5, abs=0.01)
    assert std[1] == 1.0
    assert mean[1] == pytest.approx(value)


def test_an_image_of_weight_zero_has_no_effect():
    X = torch.rand(6, 1, 3, 3)
    X[2] = torch.nan
    weight = np.array([1, 1, 0, 1, 1, 1])
    assert np.isfinite(channel_statistics(X, weight=weight)).all()
    with pytest.raises(ValueError, match="Got images of weight 0 only, but expected at least one"):
        channel_statistics(X, weight=np.zeros(6))


def test_arrays_need_no_pillow_and_the_error_for_files_names_the_extra(monkeypatch, paths):
    for name in [name for name in sys.modules if name.startswith("PIL.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "PIL", None)  # as if it were not installed
    assert torch.equal(read_images(COLOURS).data, EXPECTED)
    assert torch.equal(read_images(list(COLOURS)).data, EXPECTED)
    assert torch.equal(read_images(Pairs(COLOURS)).data[3], EXPECTED[3])
    with pytest.raises(ImportError, match="needs Pillow: pip install mixupe-sklearn\\[images\\]."):
        read_images(paths)
