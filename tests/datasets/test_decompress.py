"""Untrusted archives and file lists: decompression bombs and paths outside of the folder."""

import bz2
import gzip
import io
import lzma
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.io import savemat

from mixupe_sklearn.datasets import _decompress, read_csv
from mixupe_sklearn.datasets._decompress import MAX_RATIO, decompressed
from mixupe_sklearn.datasets._openml import load
from mixupe_sklearn.datasets._openml.metadata import InvalidFileError
from mixupe_sklearn.datasets.images import load_cifar, load_svhn, load_tiny_imagenet

TABLE = b"x,y\n1,a\n2,b\n3,a\n4,b\n"
NAMES = ["../../x.csv", "/x.csv", "..\\..\\x.csv", "C:\\x.csv", "a\0b.csv", "n" * 300 + ".csv"]


def zipped(content, name="x.csv"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


PACKERS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zip": zipped}


@pytest.fixture
def small(monkeypatch):
    """The same limits for small files."""
    monkeypatch.setattr(_decompress, "ALWAYS_ALLOWED", 10_000)
    monkeypatch.setattr(_decompress, "CHUNK_BYTES", 1_000)


@pytest.mark.parametrize("kind", PACKERS)
def test_a_decompression_bomb_is_refused(kind, tmp_path, small):
    path = tmp_path / f"bomb.csv{kind}"
    path.write_bytes(PACKERS[kind](TABLE + b"\n" * 10_000_000))
    with pytest.raises(
        ValueError, match=r"^Got path='.*', which decompresses to at least [\d,]+ bytes"
    ):
        read_csv(path, "y")


@pytest.mark.parametrize("kind", PACKERS)
def test_small_and_incompressible_files_are_read(kind, tmp_path, small):
    content = np.random.default_rng(0).bytes(50_000)
    for name, data in {"dense": content, "empty": b"", "small": bytes(9_000)}.items():
        path = tmp_path / f"{name}{kind}"
        path.write_bytes(PACKERS[kind](data))
        assert decompressed(path) == data
    assert MAX_RATIO > 1


def test_an_archive_with_a_wrong_size_is_refused(tmp_path, small):
    content = bytearray(zipped(bytes(10_000_000)))
    true, declared = (10_000_000).to_bytes(4, "little"), (100).to_bytes(4, "little")
    assert content.count(true) == 2
    path = tmp_path / "lie.zip"
    path.write_bytes(content.replace(true, declared))
    with pytest.raises(ValueError, match="intact .zip file|decompresses to"):
        read_csv(path, "y")


@pytest.mark.parametrize("name", NAMES)
def test_an_archive_writes_no_file(name, tmp_path, monkeypatch):
    folder = tmp_path / "deep" / "deeper"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    path = folder / "table.zip"
    path.write_bytes(zipped(TABLE, name))
    assert read_csv(path, "y").n_rows == 4
    assert [p.name for p in sorted(tmp_path.rglob("*"))] == ["deep", "deeper", "table.zip"]


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    (tmp_path / "secret.csv").write_bytes(TABLE)
    link = zipfile.ZipInfo("x.csv")
    link.create_system, link.external_attr = 3, 0o120777 << 16  # a symbolic link of Unix
    path = tmp_path / "table.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(link, str(tmp_path / "secret.csv"))
    with pytest.raises(ValueError, match="with one column in its first line"):
        read_csv(path, "y")  # it reads the target of the link as text


def test_a_decompression_bomb_in_a_mat_file_is_refused(tmp_path, small):
    bomb = {"X": np.zeros((32, 32, 3, 2_000), np.uint8), "y": np.zeros((2_000, 1))}
    savemat(tmp_path / "train_32x32.mat", bomb, do_compression=True)
    with pytest.raises(ValueError, match="download it again .*decompresses to"):
        load_svhn(tmp_path)
    savemat(tmp_path / "train_32x32.mat", {"X": {"a": 1}, "y": np.zeros(1)})
    with pytest.raises(ValueError, match="X is of the kind struct"):
        load_svhn(tmp_path)


def test_a_pickle_of_nested_lists_is_not_expanded(tmp_path):
    deep = [0]
    for _ in range(40):
        deep = [deep] * 10  # 40 lists in the file, ten to the fortieth in an array
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": deep, b"labels": deep}))
    with pytest.raises(ValueError, match=r"data of shape \(0,\) and labels of shape \(0,\)"):
        load_cifar(tmp_path)


def test_the_size_of_a_parquet_file_is_checked_before_it_is_read(monkeypatch):
    file = io.BytesIO()
    pq.write_table(pa.table({"a": np.zeros(1_000), "b": np.zeros(1_000)}), file)
    load.read_parquet(file.getvalue(), 1_000, 2)
    monkeypatch.setattr(load, "MAX_CELLS", 1_999)
    monkeypatch.setattr(load.pd, "read_parquet", lambda *_: pytest.fail("it was read"))
    with pytest.raises(InvalidFileError, match="1000 rows of 2 columns are too many"):
        load.read_parquet(file.getvalue(), None, 2)


def tiny_imagenet(folder, name):
    for part in ("train/n01/images", "train/n02/images", "val/images"):
        (folder / part).mkdir(parents=True)
        (folder / part / "one.JPEG").write_bytes(b"")
    (folder / "val" / "val_annotations.txt").write_text(f"{name}\tn01\n")


@pytest.mark.parametrize(
    "name", ["../../train/n01/images/one.JPEG", "/etc/passwd", "..", ".", "a\\b", "C:x", "a\0b"]
)
def test_a_list_of_images_names_no_file_outside_of_the_folder(name, tmp_path):
    tiny_imagenet(tmp_path, name)
    with pytest.raises(ValueError, match="^Got the image .*, but expected file names"):
        load_tiny_imagenet(tmp_path)
