"""Embedded tables, and tables from CSV files."""

import bz2
import gzip
import lzma
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from mixupe_sklearn.datasets.embedded import EMBEDDED, load_embedded
from mixupe_sklearn.datasets.files import read_csv

PLAIN = "size,city,class\n1.5,Oslo,a\n2,Bonn,b\n,Oslo,a\n4,,b\n"


@pytest.fixture
def write(tmp_path):
    """Write a file and return its path."""

    def write_file(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


@pytest.fixture
def read(write):
    """Read text as a table with the target 'class'."""
    return lambda content, target="class", name="data.csv": read_csv(write(content, name), target)


# Embedded tables


@pytest.mark.parametrize(
    ("name", "loader"),
    [("iris", load_iris), ("wine", load_wine), ("breast-cancer", load_breast_cancer)],
)
def test_an_embedded_table_has_the_rows_and_class_names_of_scikit_learn(name, loader):
    table, bunch = load_embedded(name), loader()
    np.testing.assert_array_equal(table.X.to_numpy(), bunch.data)
    assert list(table.X.columns) == list(bunch.feature_names)
    assert table.y.tolist() == bunch.target_names[bunch.target].tolist()


def test_digits_are_integers():
    table, bunch = load_embedded("digits"), load_digits()
    assert table.y.dtype.kind == "i"
    assert {kind.kind for kind in table.X.dtypes} == {"i"}
    np.testing.assert_array_equal(table.X, bunch.data)
    np.testing.assert_array_equal(table.y, bunch.target)


def test_the_class_of_balance_scale_is_the_side_with_the_larger_torque():
    table = load_embedded("balance-scale")
    assert len(table.X.drop_duplicates()) == table.n_rows == 625
    assert table.X.min().tolist() == [1] * 4
    assert table.X.max().tolist() == [5] * 4
    for row, side in zip(table.X.itertuples(), table.y, strict=True):
        left = row.left_weight * row.left_distance
        right = row.right_weight * row.right_distance
        assert side == ("L" if left > right else "R" if right > left else "B")
    # As in the UCI repository's description of it.
    assert dict(zip(*np.unique(table.y, return_counts=True), strict=True)) == {
        "L": 288,
        "B": 49,
        "R": 288,
    }


def test_embedded_tables_have_stable_and_distinct_fingerprints():
    prints = [load_embedded(name).fingerprint for name in EMBEDDED]
    assert prints == [load_embedded(name).fingerprint for name in EMBEDDED]
    assert len(set(prints)) == len(EMBEDDED)


def test_an_unknown_embedded_table_is_refused():
    with pytest.raises(
        ValueError, match="Got name='irsi', but expected one of iris, wine, .*scale."
    ):
        load_embedded("irsi")


# Files that can be read


def test_types_and_missing_values_are_inferred(read):
    table = read(PLAIN)
    assert (table.name, table.source, table.y.tolist()) == ("data", "csv", ["a", "b", "a", "b"])
    assert table.X["size"].tolist()[:2] == [1.5, 2.0]
    assert table.X["size"].isna().tolist() == [False, False, True, False]
    assert table.X["city"].tolist()[:3] == ["Oslo", "Bonn", "Oslo"]
    assert table.X["city"].isna().tolist() == [False, False, False, True]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiters_and_line_ends_make_no_difference(read, delimiter, end):
    other = PLAIN.replace(",", delimiter).replace("\n", end)
    assert read(other).fingerprint == read(PLAIN).fingerprint


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_byte_order_mark_makes_no_difference(read, encoding):
    text = PLAIN.replace("Oslo", "Malmö")
    table = read(text.encode(encoding))
    assert list(table.X.columns) == ["size", "city"]
    assert table.X["city"][0] == "Malmö"


def test_other_encodings_are_refused(read):
    with pytest.raises(ValueError, match="which is not text in UTF-8, but expected a CSV file"):
        read(PLAIN.replace("Oslo", "Malmö").encode("cp1252"))


def test_compressed_files_are_read(read, tmp_path):
    plain = read(PLAIN)
    packers = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}
    tables = [read(pack(PLAIN.encode()), name=f"data.csv.{end}") for end, pack in packers.items()]
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("__MACOSX/._inner.csv", "")
        archive.writestr("inner.csv", PLAIN)
    tables.append(read_csv(tmp_path / "data.zip", "class"))
    assert {(table.name, table.fingerprint) for table in tables} == {("data", plain.fingerprint)}


def test_what_pandas_writes_is_read_again(write, tmp_path):
    whole = load_embedded("wine")
    whole.X.assign(kind=whole.y).to_csv(tmp_path / "wine.csv", index=False)
    table = read_csv(str(tmp_path / "wine.csv"), "kind", name="mine")
    assert (table.name, table.fingerprint) == ("mine", whole.fingerprint)


def test_decimal_commas_are_read_with_semicolons(read):
    rows = "size;note;class\n1,5;1,5 m;a\n2;2 m;a\n-0,5;3;b\n1e-3;4;b\n"
    table = read(rows)
    assert table.X["size"].tolist() == [1.5, 2.0, -0.5, 0.001]
    assert table.X["note"].tolist() == ["1,5 m", "2 m", "3", "4"]


@pytest.mark.parametrize("values", [("2.125", "1,5"), ("1.000,5", "2,5")])
def test_a_column_with_decimal_commas_and_points_is_text(read, values):
    rows = "".join(f"{value};{label}\n" for value in values for label in "ab")
    assert set(read("size;class\n" + rows).X["size"]) == set(values)


def test_decimal_points_are_read_with_semicolons(read):
    table = read(
        "size;day;class\n1.125;1.2.2020;a\n2.250;2.2.2020;a\nNA ;3.2.2020;b\n3;4.2.2020;b\n"
    )
    assert table.X["size"].tolist()[:2] == [1.125, 2.25]
    assert table.X["day"][0] == "1.2.2020"


def test_commas_inside_text_do_not_hide_the_semicolons(read):
    table = read("a, in cm;class\n1, or so;x\n2, or so;x\n3, or so;y\n4, or so;y\n")
    assert list(table.X.columns) == ["a, in cm"]


def test_the_target_decides_between_two_delimiters(read):
    # Both commas and bars give three even columns.
    text = "a,b|x,class\n" + "1,2|3,u\n" * 2 + "4,5|6,v\n" * 2
    assert list(read(text).X.columns) == ["a", "b|x"]
    text = "a,b|x,z|class\n" + "1,2|3,4|u\n" * 2 + "5,6|7,8|v\n" * 2
    assert list(read(text).X.columns) == ["a,b", "x,z"]


def test_quoted_fields_may_hold_delimiters_quotes_and_new_lines(read):
    table = read('text,class\n"one, two",a\n"say ""hi""",a\n"up\ndown",b\n "spaced",b\n')
    assert table.X["text"].tolist() == ["one, two", 'say "hi"', "up\ndown", "spaced"]


@pytest.mark.parametrize(
    "missing", ["", "NA", "N/A", "NaN", "null", "NULL", "?", "none", "None", " na "]
)
def test_markers_of_missing_values_are_read(read, missing):
    table = read(f"size,city,class\n1,Oslo,a\n{missing},{missing},a\n2,Bonn,b\n3,Rome,b\n")
    assert table.X.dtypes["size"] == np.float64
    assert table.X.isna().sum().tolist() == [1, 1]


def test_blanks_around_fields_are_ignored(read):
    table = read(" size , city , class \n 1.5 , Oslo , a \n2 , Oslo, a\n ? ,Bonn ,b\n 3,  NA ,b \n")
    assert table.X["size"].tolist()[:2] == [1.5, 2.0]
    assert table.X["city"].tolist()[:3] == ["Oslo", "Oslo", "Bonn"]
    assert table.X.isna().sum().tolist() == [1, 1]
    assert table.y.tolist() == ["a", "a", "b", "b"]


def test_blank_lines_are_skipped(read):
    assert read("\n\n" + PLAIN.replace("\n", "\n\n  \n")).fingerprint == read(PLAIN).fingerprint


def test_a_long_line_with_another_delimiter_is_read(read):
    names = ",".join(f"a_rather_long_column_name_{number}" for number in range(6000))
    rows = "".join(",".join(["1"] * 6000) + f",{label}\n" for label in "xxyy")
    assert read(f"{names},class\n{rows}").X.shape == (4, 6000)


@pytest.mark.skipif(pd.__version__ < "3", reason="pandas 2 takes them for text")
def test_huge_integers_are_numbers(read):
    table = read("size,class\n123456789012345678901234567890,a\n1,a\n2,b\n3,b\n")
    assert table.X["size"].tolist() == [123456789012345678901234567890.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("written", "classes"),
    [
        ("1 1 2 2", [1, 1, 2, 2]),
        ("1.0 1 2 2", [1, 1, 2, 2]),
        ("yes yes no no", ["yes", "yes", "no", "no"]),
        ("True True False False", ["True", "True", "False", "False"]),
        ("1 1 b b", ["1", "1", "b", "b"]),
    ],
)
def test_classes_are_text_or_integers(read, written, classes):
    rows = "".join(f"{row},{label}\n" for row, label in enumerate(written.split()))
    table = read("size,class\n" + rows)
    assert table.y.tolist() == classes
    assert table.y.dtype == np.array(classes).dtype


def test_many_integer_classes_are_accepted_if_they_have_enough_rows(read):
    rows = "".join(f"{row},{row % 150}\n" for row in range(1500))
    assert read("size,class\n" + rows).n_classes == 150


# What is left out


def test_rows_without_a_class_are_dropped_with_a_warning(read):
    with pytest.warns(
        UserWarning,
        match="Got column 'class' of .* with 2 missing values, such as .*; these rows are dropped",
    ):
        table = read("size,class\n1,7\n2,\n3,8\n4,7\n5,?\n6,8\n")
    assert table.X["size"].tolist() == [1, 3, 4, 6]
    assert table.X.index.tolist() == [0, 1, 2, 3]
    assert table.y.tolist() == [7, 8, 7, 8]
    assert table.y.dtype == np.int64


def test_empty_columns_are_dropped_with_a_warning(read):
    with pytest.warns(UserWarning, match="empty columns, which are dropped: 'note', 'Unnamed: 3'"):
        table = read("size,note,class,\n1,,a,\n2,NA,a,\n3,?,b,\n4, ,b,\n")
    assert list(table.X.columns) == ["size"]


# Files that cannot be read


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "which is empty, but expected a line of column names and rows."),
        ("\ufeff \n\n", "which is empty"),
        (
            "size,class\n",
            "which ends after its first line, but expected rows below the column names",
        ),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "which is not text in UTF-8, but expected a CSV file"),
        # The time is part of it, and of the name of the test: all processes must agree on that.
        (gzip.compress(PLAIN.encode() * 99, mtime=0), "which is not text"),
        (
            "class\na\nb\n",
            "with one column in its first line, but expected at least two, separated",
        ),
        ("class size\na 1\nb 2\n", "with one column in its first line"),
        ("size,size,class\n1,2,a\n", "Got column 'size' more than once in .*; rename one."),
        (
            "size,class\n1,a\n2\n",
            "Got 1 fields in line 3 of .*, but expected 2, as in its first line",
        ),
        ("size,class\n1,a\n\n2,b,c\n", "Got 3 fields in line 4 of"),
        ("size,class\n7,1,a\n8,2,b\n", "Got 3 fields in line 2 of"),
        ('size,class\n"1\n2",a\n3\n', "Got 1 fields in line 4 of"),
        ('size,class\n1,a\n"2,b\n3,a\n', "Got 1 fields in line 3 of .*; is a quotation mark or a"),
        (
            'size,class\n1,a\n"2,b\n' + "3,a\n" * 50_000,
            "Got a field in line 3 of .* more than 131,072",
        ),
        (
            "size,class\n1,\n2,NA\n",
            "Got column 'class' of .* without any value, but expected a class in each row",
        ),
        ("size,class\n,a\n?,b\n,a\n,b\n", "Got no values besides column 'class'"),
        ("size,class\n1,a\n2,a\n", "with one class only, 'a', but expected two."),
        ("size,class\n1,3\n2,3\n", "with one class only, 3, but expected two."),
        (
            "size,class\n1,a\n2,b\n3,a\n4,c\n",
            "with a single row of 'b', 'c', but expected at least two of each class, .* merge classes.",
        ),
        (
            "size,class\n" + "".join(f"1,{row / 7}\n" for row in range(1, 60)),
            "with numbers such as 0.142857, but expected classes; use MixupERegressor",
        ),
        ("size;class\n1;0,5\n2;0,5\n3;1\n4;1\n", "with numbers such as 0.5, but expected"),
        (
            "size,class\n" + "".join(f"1,{row}\n" for row in range(500)),
            "with 500 distinct numbers, .* text for classes, such as 'c17'.",
        ),
    ],
)
def test_an_invalid_table_is_refused(read, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(content)
    assert "\n" not in str(caught.value)


def test_a_name_is_found_twice_among_many_columns(read):
    """Searching each name in all others took quadratic time."""
    header = ",".join(f"c{i}" for i in range(300_000))
    with pytest.raises(ValueError, match="Got column 'c7' more than once"):
        read(f"{header},c7\n" + "," * 300_000 + "\n", "c7")


def test_many_columns_are_read(read):
    columns = range(2_000)
    rows = [[f"{(row + i) % 3}" if i % 3 else "ab"[row % 2] for i in columns] for row in range(4)]
    lines = [",".join(f"c{i}" for i in columns), *map(",".join, rows)]
    table = read("\n".join(lines), "c0")
    assert table.X.shape == (4, 1_999)


def test_an_unknown_target_is_refused_with_the_closest_names(read):
    with pytest.raises(
        ValueError, match="Got target='Clas', but expected .*; did you mean 'class'?"
    ):
        read(PLAIN, target="Clas")
    with pytest.raises(ValueError, match="; its first line has 'size', 'city', 'class'."):
        read(PLAIN, target="zzz")
    wide = ",".join(f"x{number}" for number in range(30))
    with pytest.raises(ValueError, match="'x9' and 20 more."):
        read(f"{wide}\n{wide.replace('x', '')}\n", target="zzz")


def test_a_path_without_a_file_is_refused(tmp_path):
    for path in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(FileNotFoundError, match="but expected an existing file; the current"):
            read_csv(path, "class")


@pytest.mark.parametrize("name", ["data.csv.gz", "data.csv.xz", "data.zip"])
def test_a_damaged_archive_is_refused(read, name):
    packed = {"z": gzip.compress, "xz": lzma.compress}.get(name[-2:].lstrip("."), gzip.compress)
    for content in (PLAIN.encode(), packed(PLAIN.encode())[:-10]):
        with pytest.raises(ValueError, match="but expected an intact .* file: .*"):
            read(content, name=name)


def test_an_archive_of_several_files_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("one.csv", PLAIN)
        archive.writestr("two.csv", PLAIN)
    with pytest.raises(
        ValueError, match="with 2 files in it, but expected one; unpack it and give"
    ):
        read_csv(tmp_path / "data.zip", "class")


def test_reading_does_not_change_the_file(write):
    path = write(PLAIN)
    before = path.stat().st_mtime_ns
    read_csv(path, "class")
    assert (path.read_text(), path.stat().st_mtime_ns) == (PLAIN, before)


def test_a_table_from_a_file_can_be_preprocessed(read):
    from mixupe_sklearn import make_preprocessor

    table = read("flag,size,city,class\nTrue,1,Oslo,a\nFalse,?,Bonn,a\n,3,NA,b\nTrue,4,Oslo,b\n")
    features = make_preprocessor().fit_transform(table.X)
    assert features.shape == (4, 9)
    assert np.isfinite(np.asarray(pd.DataFrame(features))).all()
