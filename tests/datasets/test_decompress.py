"""Archives and lists of names from strangers: nothing leaves its folder, nothing grows without end."""

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
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from benchmarks._signals.data import load_npz
from benchmarks._tabular.options import folder_of, parser
from mixupe_sklearn.datasets import _decompress as _unpacking
from mixupe_sklearn.datasets import read_csv
from mixupe_sklearn.datasets._decompress import MOST_GROWTH, unpacked
from mixupe_sklearn.datasets._openml import metadata as _openml_check
from mixupe_sklearn.datasets._openml.metadata import FaultError, check_parquet
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
    """The same rule for small files."""
    monkeypatch.setattr(_unpacking, "ALWAYS_ALLOWED", 10_000)
    monkeypatch.setattr(_unpacking, "PIECE", 1_000)


@pytest.mark.parametrize("kind", PACKERS)
def test_a_file_that_grows_out_of_proportion_is_refused(kind, tmp_path, small):
    path = tmp_path / f"bomb.csv{kind}"
    path.write_bytes(PACKERS[kind](TABLE + b"\n" * 10_000_000))
    with pytest.raises(ValueError, match=r"^Got path='.*', which grows to [\d,]+ bytes or more"):
        read_csv(path, "y")


@pytest.mark.parametrize("kind", PACKERS)
def test_what_is_large_or_dense_by_itself_is_read(kind, tmp_path, small):
    content = np.random.default_rng(0).bytes(50_000)
    for name, data in {"dense": content, "empty": b"", "small": bytes(9_000)}.items():
        path = tmp_path / f"{name}{kind}"
        path.write_bytes(PACKERS[kind](data))
        assert unpacked(path) == data
    assert MOST_GROWTH > 1


def test_an_archive_that_lies_about_its_size_is_refused(tmp_path, small):
    content = bytearray(zipped(bytes(10_000_000)))
    true, told = (10_000_000).to_bytes(4, "little"), (100).to_bytes(4, "little")
    assert content.count(true) == 2
    path = tmp_path / "lie.zip"
    path.write_bytes(content.replace(true, told))
    with pytest.raises(ValueError, match="whole .zip file|grows to"):
        read_csv(path, "y")


@pytest.mark.parametrize("name", NAMES)
def test_names_in_an_archive_make_no_file(name, tmp_path, monkeypatch):
    folder = tmp_path / "deep" / "deeper"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    path = folder / "table.zip"
    path.write_bytes(zipped(TABLE, name))
    assert read_csv(path, "y").n_rows == 4
    assert [p.name for p in sorted(tmp_path.rglob("*"))] == ["deep", "deeper", "table.zip"]


def test_a_link_in_an_archive_is_no_way_out(tmp_path):
    (tmp_path / "secret.csv").write_bytes(TABLE)
    link = zipfile.ZipInfo("x.csv")
    link.create_system, link.external_attr = 3, 0o120777 << 16  # a symbolic link of Unix
    path = tmp_path / "table.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(link, str(tmp_path / "secret.csv"))
    with pytest.raises(ValueError, match="with one column in its first line"):
        read_csv(path, "y")  # the name of the file is all that it sees


def test_an_npz_that_grows_out_of_proportion_is_refused(tmp_path, small):
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez_compressed(tmp_path / "a.npz", **{name: np.zeros(2_000_000) for name in names})
    with pytest.raises(OSError, match="a.npz, but expected a readable .npz file .*grows to"):
        load_npz(tmp_path / "a.npz")


def test_a_mat_file_that_grows_out_of_proportion_is_refused(tmp_path, small):
    bomb = {"X": np.zeros((32, 32, 3, 2_000), np.uint8), "y": np.zeros((2_000, 1))}
    savemat(tmp_path / "train_32x32.mat", bomb, do_compression=True)
    with pytest.raises(ValueError, match="get it again .*grows to"):
        load_svhn(tmp_path)
    savemat(tmp_path / "train_32x32.mat", {"X": {"a": 1}, "y": np.zeros(1)})
    with pytest.raises(ValueError, match="X is of the kind struct"):
        load_svhn(tmp_path)


def test_a_pickle_of_lists_in_lists_is_not_expanded(tmp_path):
    deep = [0]
    for _ in range(40):
        deep = [deep] * 10  # 40 lists in the file, ten to the fortieth in an array
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({b"data": deep, b"labels": deep}))
    with pytest.raises(ValueError, match=r"data of shape \(0,\) and labels of shape \(0,\)"):
        load_cifar(tmp_path)


def test_a_parquet_file_is_asked_how_large_it_is_before_it_is_read(monkeypatch):
    file = io.BytesIO()
    pq.write_table(pa.table({"a": np.zeros(1_000), "b": np.zeros(1_000)}), file)
    check_parquet(file.getvalue(), 1_000, 2)
    monkeypatch.setattr(_openml_check, "MOST_CELLS", 1_999)
    monkeypatch.setattr(pq, "read_table", lambda *_: pytest.fail("it was read"))
    with pytest.raises(FaultError, match="^it has 1000 rows of 2 columns$"):
        check_parquet(file.getvalue(), None, 2)


def tiny_imagenet(folder, name):
    for part in ("train/n01/images", "train/n02/images", "val/images"):
        (folder / part).mkdir(parents=True)
        (folder / part / "one.JPEG").write_bytes(b"")
    (folder / "val" / "val_annotations.txt").write_text(f"{name}\tn01\n")


@pytest.mark.parametrize(
    "name", ["../../train/n01/images/one.JPEG", "/etc/passwd", "..", ".", "a\\b", "C:x", "a\0b"]
)
def test_a_list_of_images_names_none_elsewhere(name, tmp_path):
    tiny_imagenet(tmp_path, name)
    with pytest.raises(ValueError, match="^Got the image .*, but expected names of files"):
        load_tiny_imagenet(tmp_path)


@settings(max_examples=100, deadline=None)
@given(name=st.text(st.sampled_from("./\\~ab:\n $%"), min_size=1, max_size=30))
@example(name="../../../etc/passwd")
@example(name="..")
@example(name="/")
def test_the_folder_of_a_report_is_in_the_folder_of_reports(name):
    options = parser().parse_args(["--csv", name, "--target", "y"])
    folder = folder_of(options)
    assert folder.parts[:2] == ("build", "tabular")
    assert len(folder.parts) == 3
    assert folder.name.startswith("csv-")
