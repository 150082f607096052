"""Image datasets in their published layouts: CIFAR, SVHN, Tiny ImageNet, and class folders.

Nothing is downloaded: unpack a dataset and give the path of its folder.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.io import loadmat, whosmat

from mixupe_sklearn._images.files import list_folder
from mixupe_sklearn.datasets._decompress import check_growth
from mixupe_sklearn.datasets._restricted_unpickler import unpickle_arrays


class ImageSplits(NamedTuple):
    """Training and test images.

    Parameters
    ----------
    X_train, X_test : array of shape (n, h, w, c), or list of path
        The images, as bytes or as files. The estimators accept both.
    y_train, y_test : array of int of shape (n,)
        Positions in ``classes``.
    classes : array of str
        Names of the classes.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.zeros((2, 8, 8, 3), dtype=np.uint8), np.array([1, 0])
    >>> splits = ImageSplits(X, y, X, y, np.array(["cat", "dog"]))
    >>> splits.classes[splits.y_train].tolist()
    ['dog', 'cat']
    """

    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray
    classes: np.ndarray


class _Layout(NamedTuple):
    """Title, address and files of a dataset."""

    title: str
    address: str
    files: str

    def missing(self, path: Path) -> FileNotFoundError:
        """The error for a missing file."""
        return FileNotFoundError(
            f"Got no {str(path)!r}, but expected the folder of {self.title} with {self.files}; it "
            f"is published at {self.address}."
        )


class _Cifar(NamedTuple):
    layout: _Layout
    folder: str
    train: Sequence[str]
    test: str
    meta: str
    label: str


CIFAR_ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar.html (the Python version)"
CIFAR = {
    "cifar10": _Cifar(
        _Layout(
            "CIFAR-10", CIFAR_ADDRESS, "data_batch_1 to data_batch_5, test_batch, batches.meta"
        ),
        "cifar-10-batches-py",
        [f"data_batch_{number}" for number in range(1, 6)],
        *("test_batch", "batches.meta", "label"),
    ),
    "cifar100": _Cifar(
        _Layout("CIFAR-100", CIFAR_ADDRESS, "train, test, meta"),
        *("cifar-100-python", ["train"], "test", "meta", "fine_label"),
    ),
}
SVHN = _Layout(
    "SVHN (cropped digits)",
    "http://ufldl.stanford.edu/housenumbers",
    "train_32x32.mat, test_32x32.mat",
)
TINY_IMAGENET = _Layout(
    "Tiny ImageNet",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "train/CLASS/images/*.JPEG, val/images/*.JPEG, val/val_annotations.txt",
)
IMAGE_FOLDER = _Layout(
    "an image dataset",
    "https://image-net.org (ImageNet, for one)",
    "train/CLASS/*.jpg and val/CLASS/*.jpg (or test/CLASS/*.jpg)",
)


def load_cifar(folder: str | os.PathLike, name: str = "cifar10") -> ImageSplits:
    """Read CIFAR-10 or CIFAR-100 in its Python version.

    The files are pickles. Only arrays, text and lists are unpickled from them.

    Parameters
    ----------
    folder : str or path
        ``cifar-10-batches-py`` or ``cifar-100-python``, or the folder that it is in.
    name : {"cifar10", "cifar100"}, default="cifar10"
        The dataset.

    Returns
    -------
    splits : ImageSplits
        Images (n, 32, 32, 3) of bytes. The classes of CIFAR-100 are its 100 fine classes.

    Examples
    --------
    >>> load_cifar("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Got no 'nowhere/data_batch_1', but expected the folder of CIFAR-10 with \
data_batch_1 to data_batch_5, test_batch, batches.meta; it is published at \
https://www.cs.toronto.edu/~kriz/cifar.html (the Python version).
    """
    if name not in CIFAR:
        raise ValueError(f"Got name={name!r}, but expected one of {', '.join(map(repr, CIFAR))}.")
    kind, path = CIFAR[name], Path(folder)
    path = path / kind.folder if (path / kind.folder).is_dir() else path
    parts = [_cifar_part(path / file, kind) for file in kind.train]
    X_train = np.concatenate([X for X, _ in parts])
    y_train = np.concatenate([y for _, y in parts])
    X_test, y_test = _cifar_part(path / kind.test, kind)
    names = _unpickled(path / kind.meta, kind.layout).get(f"{kind.label}_names".encode(), [])
    classes = np.array([name.decode() for name in names if isinstance(name, bytes)])
    y = np.concatenate([y_train, y_test])
    if y.min() < 0 or y.max() >= len(classes):
        raise ValueError(
            f"Got {str(path)!r} with labels from {y.min()} to {y.max()} and {len(classes)} names "
            f"of classes, but expected a name for each label, as in {kind.layout.title}."
        )
    return ImageSplits(X_train, y_train, X_test, y_test, classes)


def _cifar_part(path: Path, kind: _Cifar) -> tuple[np.ndarray, np.ndarray]:
    content = _unpickled(path, kind.layout)
    X, y = (_as_array(content.get(key)) for key in (b"data", f"{kind.label}s".encode()))
    is_valid = X.dtype == np.uint8 and X.ndim == 2 and X.shape[1] == 3072
    if not is_valid or y.shape != X.shape[:1] or not len(y) or y.dtype.kind not in "iu":
        raise ValueError(
            f"Got {str(path)!r} with data of shape {X.shape} and labels of shape {y.shape} and "
            f"type {y.dtype}, but expected bytes (n, 3072) and n integers, as in "
            f"{kind.layout.title}."
        )
    return np.ascontiguousarray(X.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), y.astype(np.int64)


def _as_array(value: Any) -> np.ndarray:
    """An array, or a flat list as an array. Nested lists could expand beyond the memory."""
    is_flat = isinstance(value, list) and not any(isinstance(one, list | tuple) for one in value)
    return np.asarray(value) if is_flat or isinstance(value, np.ndarray) else np.empty(0, object)


def _unpickled(path: Path, layout: _Layout) -> dict:
    if not path.is_file():
        raise layout.missing(path)
    return unpickle_arrays(path, layout.title, layout.address)


def load_svhn(folder: str | os.PathLike) -> ImageSplits:
    """Read the cropped digits of SVHN.

    Parameters
    ----------
    folder : str or path
        The folder with ``train_32x32.mat`` and ``test_32x32.mat``.

    Returns
    -------
    splits : ImageSplits
        Images (n, 32, 32, 3) of bytes. The digit 0, label 10 in the files, is class 0.

    Examples
    --------
    One image in each file:

    >>> import pathlib, tempfile, numpy as np
    >>> from scipy.io import savemat
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> one = {"X": np.zeros((32, 32, 3, 1), dtype=np.uint8), "y": np.array([[10]])}
    >>> for part in ("train", "test"):
    ...     savemat(folder / f"{part}_32x32.mat", one)
    >>> load_svhn(folder).y_train
    array([0])
    """
    X_train, y_train = _svhn_part(Path(folder) / "train_32x32.mat")
    X_test, y_test = _svhn_part(Path(folder) / "test_32x32.mat")
    return ImageSplits(X_train, y_train, X_test, y_test, np.array(list("0123456789")))


def _svhn_part(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not path.is_file():
        raise SVHN.missing(path)
    try:
        for name, shape, kind in whosmat(path):  # the declared shapes, before decompression
            if name in ("X", "y") and kind not in ("double", "single") and "int" not in kind:
                raise ValueError(f"{name} is of the kind {kind}")
            check_growth(math.prod(shape), path)
        content = loadmat(path, variable_names=["X", "y"])
        X, y = content["X"], content["y"].ravel().astype(np.int64)
    except Exception as error:  # a damaged file can raise anything
        raise ValueError(
            f"Got {str(path)!r}, but expected an intact file of {SVHN.title} with X and y; "
            f"download it again ({error})."
        ) from error
    X = X[..., None] if X.ndim == 3 else X  # such files drop the axis of a single image
    if X.dtype != np.uint8 or X.ndim != 4 or X.shape[2] != 3 or X.shape[3] != len(y):
        raise ValueError(
            f"Got {str(path)!r} with X of shape {X.shape} and {len(y)} labels, but expected bytes "
            f"(32, 32, 3, n) and n labels, as in {SVHN.title}."
        )
    return np.ascontiguousarray(np.moveaxis(X, 3, 0)), y % 10


def load_tiny_imagenet(folder: str | os.PathLike) -> ImageSplits:
    """List the files of Tiny ImageNet, with its validation set as the test set.

    Parameters
    ----------
    folder : str or path
        ``tiny-imagenet-200``, or the folder that it is in.

    Returns
    -------
    splits : ImageSplits
        Paths. Classes are WordNet ids, such as ``n01443537``. Some images are grey.

    Examples
    --------
    Two training images and one test image:

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("train/n01/images", "train/n02/images", "val/images"):
    ...     (folder / name).mkdir(parents=True)
    ...     _ = (folder / name / "one.JPEG").write_bytes(b"")
    >>> line = chr(9).join(["one.JPEG", "n02"])
    >>> _ = (folder / "val" / "val_annotations.txt").write_text(line)
    >>> load_tiny_imagenet(folder).y_test
    array([1])
    """
    path = Path(folder)
    path = path / "tiny-imagenet-200" if (path / "tiny-imagenet-200").is_dir() else path
    notes = path / "val" / "val_annotations.txt"
    for needed in (path / "train", notes):
        if not needed.exists():
            raise TINY_IMAGENET.missing(needed)
    X_train, names = list_folder(path / "train", "folder")
    classes, y_train = np.unique(names, return_inverse=True)
    rows = [line.split("\t")[:2] for line in notes.read_text().splitlines() if line.strip()]
    for name in (row[0] for row in rows):
        # Such a name could point outside of the folder.
        if name in ("", ".", "..") or set(name) & set("/\\:\0"):
            raise ValueError(
                f"Got the image {name!r} in {str(notes)!r}, but expected file names without a "
                f"folder."
            )
    X_test = [path / "val" / "images" / row[0] for row in rows]
    missing = next((file for file in X_test if not file.is_file()), None)
    if missing is not None or not rows:
        raise TINY_IMAGENET.missing(missing or path / "val" / "images")
    y_test = _positions([row[-1] for row in rows], classes, notes)
    return ImageSplits(X_train, y_train, X_test, y_test, classes)


def load_image_folder(folder: str | os.PathLike) -> ImageSplits:
    """List the files of a dataset with a folder for each split, and in it one for each class.

    Parameters
    ----------
    folder : str or path
        A folder with ``train``, and ``test`` or else ``val``.

    Returns
    -------
    splits : ImageSplits
        Paths. Classes are the names of the folders.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("train/cat", "train/dog", "test/cat", "test/dog"):
    ...     (folder / name).mkdir(parents=True)
    ...     _ = (folder / name / "one.png").write_bytes(b"")
    >>> load_image_folder(folder).classes
    array(['cat', 'dog'], dtype='<U3')
    """
    path = Path(folder)
    test = path / "test" if _has_folders(path / "test") else path / "val"
    for needed in (path / "train", test):
        if not needed.is_dir():
            raise IMAGE_FOLDER.missing(needed)
    X_train, names = list_folder(path / "train", "folder")
    classes, y_train = np.unique(names, return_inverse=True)
    X_test, names = list_folder(test, "folder")
    return ImageSplits(X_train, y_train, X_test, _positions(names, classes, test), classes)


def _has_folders(path: Path) -> bool:
    """Whether there are class folders: test images of a competition have none."""
    return path.is_dir() and any(entry.is_dir() for entry in path.iterdir())


def _positions(names: Sequence[str] | np.ndarray, classes: np.ndarray, path: Path) -> np.ndarray:
    unknown = sorted(set(names) - set(classes))
    if unknown:
        raise ValueError(
            f"Got class {str(unknown[0])!r} in {str(path)!r}, but expected only those of the "
            f"training set; add its images there, or leave it out."
        )
    return np.searchsorted(classes, np.asarray(names))
