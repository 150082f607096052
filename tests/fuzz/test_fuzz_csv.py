"""Random CSV files: a written table is read back, and any other text is read or refused."""

import bz2
import csv
import gzip
import io
import lzma
import zipfile

import numpy as np
import pytest
from fuzz import flipped, tried
from hypothesis import given
from hypothesis import strategies as st

from mixupe_sklearn.datasets.files import read_csv


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("csv")


def read(folder, content, name="table.csv", target="class"):
    path = folder / name
    path.write_bytes(content)
    return tried(lambda: read_csv(path, target), OSError)


PLAIN = b"size,city,class\n1.5,Oslo,a\n2,Bonn,b\n?,Oslo,a\n4,,b\n"


@given(flipped(PLAIN))
def test_a_damaged_table_is_read_or_refused(folder, content):
    found = read(folder, content)
    if found.refusal is None:
        table = found.answer
        assert len(table.X) == len(table.y)
        assert "class" not in table.X


@given(
    st.binary(max_size=80),
    st.sampled_from([b"", b"\xff\xfe", b"\xef\xbb\xbf", b"class,a\n"]),
)
def test_random_bytes_are_read_or_refused(folder, content, head):
    read(folder, head + content)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(folder, text):
    read(folder, ("class,size\n" + text).encode("utf-8", "replace"))


cells = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp", "Zs"]),
    min_size=1,
    max_size=4,
)
cells = st.one_of(cells, st.sampled_from(["a b", 'say "x"', "a,b", "a;b", "l1\nl2"]))


@given(
    st.lists(st.tuples(cells, st.integers(-9, 9), st.sampled_from("xy")), min_size=4, max_size=9),
    st.sampled_from(",;\t|"),
)
def test_a_written_table_is_read_back(folder, rows, delimiter):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(
        [["word", "number", "class"], *rows]
    )
    found = read(folder, text.getvalue().encode())
    labels = [row[2] for row in rows]
    if min(labels.count(label) for label in set(labels)) < 2 or len(set(labels)) < 2:
        assert found.refusal is not None
        return
    if found.refusal is not None:
        assert "word" in found.refusal or "no values" in found.refusal, found
        return
    table = found.answer
    assert table.y.tolist() == labels
    assert table.X["number"].tolist() == [row[1] for row in rows]
    if "word" in table.X and table.X["word"].dtype.kind not in "biuf":
        words = [word.strip() for word, _, _ in rows]
        read_words = table.X["word"].tolist()
        assert all(one == other for one, other in zip(read_words, words, strict=True) if one == one)


def packed(kind):
    if kind == ".zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("table.csv", PLAIN)
        return buffer.getvalue()
    if kind == ".gz":
        return gzip.compress(PLAIN, mtime=0)
    return {".xz": lzma.compress, ".bz2": bz2.compress}[kind](PLAIN)


PACKED = {kind: packed(kind) for kind in (".gz", ".xz", ".bz2", ".zip")}


@given(st.sampled_from(list(PACKED)), st.data())
def test_a_damaged_archive_is_read_or_refused(folder, kind, data):
    found = read(folder, data.draw(flipped(PACKED[kind])), f"table.csv{kind}")
    if found.refusal is None:
        assert np.array_equal(found.answer.y, ["a", "b", "a", "b"])
    else:
        assert "None." not in found.refusal, found
