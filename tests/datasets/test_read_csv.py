"""Ambiguous CSV files: read in the more likely way, with a warning or an error if in doubt."""

import pandas as pd
import pytest

from mixupe_sklearn.datasets.files import read_csv


@pytest.fixture
def read(tmp_path):
    """Read text as a table with the target 'class'."""

    def read_text(content, target="class"):
        path = tmp_path / "data.csv"
        path.write_text(content, newline="")
        return read_csv(path, target)

    return read_text


def column(*values):
    """A file with these values in a column, separated by semicolons."""
    return "size;class\n" + "".join(f"{value};{'ab'[i % 2]}\n" for i, value in enumerate(values))


@pytest.mark.parametrize(
    "values",
    [("2.125", "1,5", "3.250", "4"), ("2.5", "1,5", "3", "4"), ("1.000,5", "2.5", "3", "4")],
)
def test_a_column_with_decimal_commas_and_points_is_text_with_a_warning(read, values):
    with pytest.warns(UserWarning, match="Got column 'size' of .* with decimal commas and points"):
        table = read(column(*values))
    assert table.X["size"].tolist() == list(values)


@pytest.mark.parametrize("sure", ["1.000,5", "1.000.000"])
def test_points_are_thousands_separators_if_one_value_shows_it(read, sure):
    table = read(column("2.125", "1,5", sure, "4"))
    assert table.X["size"].tolist()[:2] == [2125.0, 1.5]
    assert table.X["size"][2] in (1000.5, 1e6)


def test_points_alone_are_decimal_points(read):
    assert read(column("2.125", "1.500", "3", "4")).X["size"].tolist() == [2.125, 1.5, 3.0, 4.0]


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("1,2,a\n3,4,a\n5,6,b\n7,8,b\n9,9,a\n", "a"),
        ("5.1,3.5,x\n4.9,3.0,y\n4.7,3.2,y\n7.0,3.2,z\n6.9,3.1,z\n", "x"),
        ("p,x,s\np,y,s\ne,x,t\ne,y,t\np,x,s\n", "s"),
    ],
)
def test_a_header_that_looks_like_data_raises_a_warning(read, content, target):
    with pytest.warns(
        UserWarning, match="Got a first line of .* that looks like data .* if it is a row"
    ):
        read(content, target)


@pytest.mark.parametrize("names", ["0,1,class", "1,2,class", "0,1,2", "size,2020,class"])
def test_consecutive_numbers_and_years_are_column_names(read, names):
    # Their values may be the same numbers; that of the classes is not.
    read(f"{names}\n0,1,a\n1,2,a\n5,6,b\n7,8,b\n", names.split(",")[-1])


def test_markers_of_missing_values_among_the_classes_are_reported(read):
    with pytest.warns(
        UserWarning, match=r"2 missing values \('NA', 'None' read as missing\); these rows"
    ):
        read("size,class\n1,None\n2,a\n3,b\n4,NA\n5,a\n6,b\n")
    with (
        pytest.warns(UserWarning, match="2 missing values"),
        pytest.raises(ValueError, match=r"one class only, 'a' \('none' read as missing\), but"),
    ):
        read("size,class\n1,none\n2,a\n3,none\n4,a\n")


@pytest.mark.parametrize("missing", ["", "NA"])
@pytest.mark.filterwarnings("ignore:Got column 'class'")
def test_numbers_with_leading_zeros_are_distinct_classes(read, missing):
    table = read(f"size,class\n1,01\n2,1\n3,01\n4,1\n5,{missing}\n")
    assert table.y.tolist() == ["01", "1", "01", "1"]
    assert table.X["size"].tolist() == [1, 2, 3, 4]
    assert read("size,class\n1,0\n2,0.0\n3,10\n4,10\n").y.tolist() == [0, 0, 10, 10]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("line", ["sep=;", '"sep=;"', "SEP=; "])
def test_a_declared_delimiter_is_used(read, line, end):
    # Without it, commas would do as well.
    rows = ["a,b;class,x", "1,2;u,3", "4,5;v,6", "1,2;u,3", "4,5;v,6", ""]
    table = read(end.join([line, *rows]), "class,x")
    assert (list(table.X), table.y.tolist()[:2]) == (["a,b"], ["u,3", "v,6"])


def test_line_numbers_count_the_declaration_of_the_delimiter(read):
    with pytest.raises(ValueError, match="Got 1 fields in line 4 of"):
        read("sep=;\nsize;class\n1;a\n2\n")
    with pytest.raises(ValueError, match="with one column in its first line"):
        read("sep=;\n\n")


@pytest.mark.parametrize("comment", ["# made by hand", "# made by hand, in May"])
def test_comments_above_the_header_are_refused(read, comment):
    with pytest.raises(ValueError, match="; delete comments above the header"):
        read(f"{comment}\nsize,class\n1,a\n2,b\n3,a\n4,b\n")
    assert list(read("#id,class\n1,a\n2,b\n3,a\n4,b\n").X) == ["#id"]


TOO_LARGE = pytest.param(
    "1e999",
    marks=pytest.mark.skipif(pd.__version__ < "3", reason="pandas 2 takes it for text"),
)


@pytest.mark.parametrize("word", ["inf", "-inf", "Infinity", TOO_LARGE])
def test_infinity_is_refused_with_the_names_of_the_columns(read, word):
    rows = f"size,n,class\n1,{word},a\n{word},2,b\n3,3,a\n4,4,b\n"
    with pytest.raises(ValueError, match="Got infinity in column 'size', 'n' of .*, but expected"):
        read(rows)
