"""Loaders of published image datasets, on small datasets with the same layouts."""

import os
import pickle

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from mixupe_sklearn._images.read import read_images
from mixupe_sklearn.datasets._restricted_unpickler import ALLOWED
from mixupe_sklearn.datasets.images import (
    load_cifar,
    load_image_folder,
    load_svhn,
    load_tiny_imagenet,
)

RNG = np.random.default_rng(0)


def rows_of(images):
    """Images (n, 32, 32, 3) as CIFAR keeps them: all red bytes, then green, then blue."""
    return np.stack(
        [images[..., channel].reshape(len(images), -1) for channel in range(3)], 1
    ).reshape(len(images), -1)


def draw(n):
    return RNG.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)


def write(path, content, protocol=2):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol))


def write_cifar10(folder, protocol=2):
    images, labels = draw(12), (np.arange(12) % 10).tolist()
    for number in range(6):
        name = f"data_batch_{number + 1}" if number < 5 else "test_batch"
        part = slice(2 * number, 2 * number + 2)
        content = {b"batch_label": b"a part", b"labels": labels[part]}
        write(folder / name, {**content, b"data": rows_of(images[part])}, protocol)
    names = [b"airplane", b"automobile", b"bird", b"cat", b"deer", b"dog", b"frog"]
    write(folder / "batches.meta", {b"label_names": [*names, b"horse", b"ship", b"truck"]})
    return images, np.array(labels)


def write_image(path, colour="red", mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (6, 4), colour).save(path)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_cifar10_is_read_as_it_was_written(tmp_path, protocol):
    images, labels = write_cifar10(tmp_path / "cifar-10-batches-py", protocol)
    splits = load_cifar(tmp_path)
    assert np.array_equal(np.concatenate([splits.X_train, splits.X_test]), images)
    assert np.array_equal(np.concatenate([splits.y_train, splits.y_test]), labels)
    assert splits.X_train.dtype == np.uint8
    assert splits.X_train.flags.c_contiguous
    assert splits.classes[splits.y_train[3]] == "cat"


def test_a_pickle_of_python_2_is_read(tmp_path):
    # The published files were written by Python 2: text is of its str type, and numpy is the old.
    write_cifar10(tmp_path)
    content = b"(dS'data'\ncnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
    content += (
        b"(I1\n(I1\nI3072\ntcnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'"
    )
    content += b"\\x07" * 3072 + b"'\ntbsS'labels'\n(lI5\nas."
    (tmp_path / "test_batch").write_bytes(content)
    splits = load_cifar(tmp_path)
    assert splits.X_test.shape == (1, 32, 32, 3)
    assert (splits.X_test == 7).all()
    assert splits.y_test.tolist() == [5]


def test_cifar100_has_its_fine_classes(tmp_path):
    images = draw(4)
    for name, part in (("train", slice(0, 3)), ("test", slice(3, 4))):
        labels = {b"fine_labels": [99, 1, 2, 3][part], b"coarse_labels": [0, 0, 0, 0][part]}
        write(tmp_path / "cifar-100-python" / name, {**labels, b"data": rows_of(images[part])})
    fine = [f"class {number}".encode() for number in range(100)]
    write(tmp_path / "cifar-100-python" / "meta", {b"fine_label_names": fine})
    splits = load_cifar(tmp_path, "cifar100")
    assert splits.y_train.tolist() == [99, 1, 2]
    assert np.array_equal(splits.X_test[0], images[3])
    assert splits.classes[99] == "class 99"


class Harm:
    """What an attacker puts into a pickle: a call when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_calls_a_function_is_refused_and_not_executed(tmp_path):
    write_cifar10(tmp_path)
    write(tmp_path / "test_batch", {b"data": Harm(tmp_path / "harm"), b"labels": []})
    with pytest.raises(
        ValueError,
        match="Got '.*test_batch', a pickle that names .*mkdir, but expected arrays and text only; download it from https",
    ):
        load_cifar(tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", ["numpy ndarray", "numpy dtype", "_codecs encode"])
@pytest.mark.parametrize("state", ["a dict", "slots"])
def test_a_pickle_cannot_change_an_attribute_of_the_library(tmp_path, name, state):
    """BUILD sets attributes of whatever object is on the stack, such as a function."""
    before = {key: dict(vars(value)) for key, value in ALLOWED.items() if value}
    content = pickle.dumps({"__defaults__": (1,), "hello": 2}, 2)[2:-1]
    if state == "slots":
        content = b"N" + content + b"\x86"  # the pair (None, attributes)
    write_cifar10(tmp_path)
    global_ = b"c" + name.replace(" ", "\n").encode() + b"\n"
    (tmp_path / "test_batch").write_bytes(b"\x80\x02" + global_ + content + b"b.")
    with pytest.raises(ValueError, match=r"test_batch', a pickle that names a state of "):
        load_cifar(tmp_path)
    assert {key: dict(vars(value)) for key, value in ALLOWED.items() if value} == before


def test_a_truncated_pickle_is_reported(tmp_path):
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_3"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(
        ValueError, match="Got '.*data_batch_3', but expected an intact file of CIFAR-10"
    ):
        load_cifar(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]},
        {b"data": np.zeros((1, 3)), b"labels": [1]},
        {b"labels": [1]},
    ],
    ids=["labels", "size", "no-data"],
)
def test_a_batch_of_another_shape_is_refused(tmp_path, content):
    write_cifar10(tmp_path)
    write(tmp_path / "data_batch_2", content)
    with pytest.raises(
        ValueError,
        match="Got '.*data_batch_2' with data of shape .* but expected bytes \\(n, 3072\\)",
    ):
        load_cifar(tmp_path)


def test_a_pickle_that_is_not_a_dict_is_refused(tmp_path):
    write_cifar10(tmp_path)
    write(tmp_path / "data_batch_1", [1, 2])
    with pytest.raises(ValueError, match="expected a dict, as in CIFAR-10."):
        load_cifar(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("batches.meta", {b"num_vis": 1}, "and 0 names of classes, but expected a name for"),
        ("test_batch", {b"labels": ["a", "b"]}, "type <U1, but expected bytes .* integers"),
        ("test_batch", {b"labels": [77, -3]}, "labels from -3 to 77 and 10 names"),
    ],
)
def test_invalid_classes_of_cifar_are_refused(tmp_path, file, content, message):
    write_cifar10(tmp_path)
    write(tmp_path / file, {b"data": rows_of(draw(2)), **content})
    with pytest.raises(ValueError, match=message):
        load_cifar(tmp_path)


def test_an_unknown_cifar_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="Got name='cifar1', but expected one of 'cifar10', 'cifar100'."
    ):
        load_cifar(tmp_path, "cifar1")


def write_svhn(folder):
    images, digits = draw(5), np.array([10, 1, 9, 10, 3])
    for name, part in (("train", slice(0, 3)), ("test", slice(3, 5))):
        content = {"X": np.moveaxis(images[part], 0, 3), "y": digits[part, None].astype(np.uint8)}
        savemat(folder / f"{name}_32x32.mat", content)
    return images


def test_svhn_is_read_and_label_ten_is_zero(tmp_path):
    images = write_svhn(tmp_path)
    splits = load_svhn(tmp_path)
    assert np.array_equal(np.concatenate([splits.X_train, splits.X_test]), images)
    assert splits.y_train.tolist() == [0, 1, 9]
    assert splits.y_test.tolist() == [0, 3]
    assert splits.classes.tolist() == list("0123456789")


def test_a_truncated_or_inconsistent_file_of_svhn_is_reported(tmp_path):
    write_svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(
        ValueError, match="Got '.*test_32x32.mat', but expected an intact file of SVHN"
    ):
        load_svhn(tmp_path)
    savemat(path, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1))})
    with pytest.raises(ValueError, match="with X of shape \\(32, 32, 3, 2\\) and 3 labels"):
        load_svhn(tmp_path)


def write_tiny_imagenet(folder):
    for number, name in enumerate(["n02", "n01"]):
        for k in range(2):
            write_image(folder / "train" / name / "images" / f"{name}_{k}.JPEG")
        (folder / "train" / name / f"{name}_boxes.txt").write_text("n_0.JPEG\t0\t0\t1\t1\n")
        write_image(folder / "val" / "images" / f"val_{number}.JPEG")
    write_image(folder / "val" / "images" / "val_2.JPEG", 100, "L")
    lines = [
        "val_0.JPEG\tn02\t0\t0\t1\t1",
        "val_1.JPEG\tn01\t0\t0\t1\t1",
        "val_2.JPEG\tn01\t0\t0\t1\t1",
    ]
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")


def test_tiny_imagenet_is_listed_and_read(tmp_path):
    write_tiny_imagenet(tmp_path / "tiny-imagenet-200")
    splits = load_tiny_imagenet(tmp_path)
    assert [path.name for path in splits.X_train] == [
        f"{n}_{k}.JPEG" for n in ("n01", "n02") for k in (0, 1)
    ]
    assert splits.y_train.tolist() == [0, 0, 1, 1]
    assert [path.name for path in splits.X_test] == ["val_0.JPEG", "val_1.JPEG", "val_2.JPEG"]
    assert splits.classes[splits.y_test].tolist() == ["n02", "n01", "n01"]
    assert read_images(splits.X_test).shape == (3, 3, 4, 6)


def test_a_missing_image_of_tiny_imagenet_is_reported(tmp_path):
    write_tiny_imagenet(tmp_path)
    (tmp_path / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(
        FileNotFoundError, match="Got no '.*val_1.JPEG', but expected the folder of Tiny"
    ):
        load_tiny_imagenet(tmp_path)


def write_folders(folder, **parts):
    for part, classes in parts.items():
        for name in classes:
            write_image(folder / part / name / "a.png")


def test_training_and_test_folders_are_listed(tmp_path):
    write_folders(tmp_path, train=["dog", "cat", "eel"], val=["dog", "cat"])
    splits = load_image_folder(tmp_path)
    assert splits.classes.tolist() == ["cat", "dog", "eel"]
    assert splits.y_train.tolist() == [0, 1, 2]
    assert splits.y_test.tolist() == [0, 1]
    assert splits.X_test[1] == tmp_path / "val" / "dog" / "a.png"


def test_a_test_folder_with_classes_is_preferred_to_the_validation_folder(tmp_path):
    write_folders(tmp_path, train=["cat", "dog"], val=["cat", "dog"], test=["cat", "dog"])
    assert load_image_folder(tmp_path).X_test[0].parts[-3] == "test"


def test_a_test_folder_without_classes_is_ignored(tmp_path):
    write_folders(tmp_path, train=["cat", "dog"], val=["cat", "dog"])
    write_image(tmp_path / "test" / "1.png")
    assert load_image_folder(tmp_path).X_test[0].parts[-3] == "val"


def test_a_class_of_the_test_set_only_is_refused(tmp_path):
    write_folders(tmp_path, train=["cat", "dog"], val=["cat", "eel"])
    with pytest.raises(
        ValueError, match="Got class 'eel' in '.*val', but expected only those of the training set"
    ):
        load_image_folder(tmp_path)


@pytest.mark.parametrize(
    ("load", "address"),
    [
        (load_cifar, "https://www.cs.toronto.edu/~kriz/cifar.html"),
        (
            lambda folder: load_cifar(folder, "cifar100"),
            "train, test, meta; it is published at https",
        ),
        (load_svhn, "http://ufldl.stanford.edu/housenumbers"),
        (load_tiny_imagenet, "http://cs231n.stanford.edu/tiny-imagenet-200.zip"),
        (load_image_folder, "https://image-net.org"),
    ],
    ids=["cifar10", "cifar100", "svhn", "tiny-imagenet", "folder"],
)
def test_a_missing_dataset_is_reported_with_its_layout_and_address(tmp_path, load, address):
    with pytest.raises(
        FileNotFoundError, match="Got no '.*', but expected the folder of .* with"
    ) as caught:
        load(tmp_path / "nowhere")
    assert address in str(caught.value)
