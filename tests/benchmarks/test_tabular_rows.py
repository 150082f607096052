"""The results file: no finished fit is lost, and none is there twice."""

import pathlib
import subprocess
import sys

import pytest

from benchmarks._harness.results_file import ResultsFile, read_rows
from benchmarks._tabular.protocol import COLUMNS, FITS


def row(split=0, **values):
    fit = {"dataset": "iris", "data": "0f", "splits": "holdout", "split": split, "seed": split}
    fit |= {"method": "mixup", "alpha": 0.5, "eta": None, "params": '{"lr": 0.001}'}
    return fit | {"valid_error": 1.5, "test_error": 2.5, "error": ""} | values


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out" / "rows.csv"


def test_rows_are_read_as_written(path):
    with ResultsFile(path, FITS) as file:
        file.add([row(0), row(1, dataset='a "b", c', error="ValueError: no,\nnot so")])
        file.add([row(2, dataset="NA", alpha=None)])
        assert file.keys() == {
            FITS.key_of(row(0)),
            FITS.key_of(row(1, dataset='a "b", c')),
            FITS.key_of(row(2, dataset="NA", alpha=None)),
        }
    rows = read_rows(path, FITS)
    assert list(rows.columns) == list(COLUMNS)
    assert rows["dataset"].tolist() == ["iris", 'a "b", c', "NA"]
    assert rows["error"].tolist() == ["", "ValueError: no, not so", ""]
    assert rows["params"].tolist() == ['{"lr": 0.001}'] * 3
    assert rows["alpha"].tolist()[:2] == [0.5, 0.5]
    assert rows["alpha"].isna().tolist() == [False, False, True]


@pytest.mark.parametrize("n_left", [1, 5, 40])
def test_an_incomplete_row_is_removed_and_the_others_stay(path, n_left):
    with ResultsFile(path, FITS) as file:
        file.add([row(0), row(1)])
        whole = path.read_text()
        file.add([row(2)])
    complete = path.read_text()
    path.write_text(complete[: len(whole) + n_left])
    assert read_rows(path, FITS)["split"].tolist() == [0, 1]
    file = ResultsFile(path, FITS)
    with pytest.warns(UserWarning, match=f"{n_left} bytes are removed"):
        file.__enter__()
    assert len(file.keys()) == 2
    file.add([row(2)])
    assert path.read_text() == complete


def test_a_file_with_an_incomplete_header_starts_again(path):
    path.parent.mkdir()
    path.write_text("source,data")
    file = ResultsFile(path, FITS)
    with pytest.warns(UserWarning, match="11 bytes"):
        file.__enter__()
    file.add([row(0)])
    assert len(read_rows(path, FITS)) == 1


def test_a_damaged_line_is_reported_with_its_number(path):
    with ResultsFile(path, FITS) as file:
        file.add([row(0), row(1)])
    lines = path.read_text().splitlines()
    lines[1] = lines[1][:30]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match="line 2 of .*rows.csv, which does not match its checksum"):
        ResultsFile(path, FITS).__enter__()


@pytest.mark.parametrize(("old", "new"), [("2.5", "2.4"), ("iris", "Iris"), ("0.001", "0.01")])
def test_a_changed_character_is_noticed(path, old, new):
    with ResultsFile(path, FITS) as file:
        file.add([row(0), row(1)])
        head, first, second = path.read_text().splitlines()
        path.write_text("\n".join([head, first, second.replace(old, new, 1), ""]))
        with pytest.raises(
            ValueError, match="line 3 of .*rows.csv, which does not match its check"
        ):
            file.keys()
    with pytest.raises(ValueError, match="delete that line, and its fit is run again"):
        read_rows(path, FITS)
    path.write_text("\n".join([head, first, ""]))
    assert read_rows(path, FITS)["split"].tolist() == [0]


def without_checksums(path):
    """The file as older versions wrote it."""
    lines = [line.rpartition(",")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join([*lines, ""]))


def test_a_file_without_checksums_is_read_and_continued_as_it_is(path):
    with ResultsFile(path, FITS) as file:
        file.add([row(0), row(1)])
    assert path.read_text().startswith(",".join(COLUMNS) + ",checksum\n")
    rows = read_rows(path, FITS)
    without_checksums(path)
    assert read_rows(path, FITS).equals(rows)
    before = path.read_text()
    with ResultsFile(path, FITS) as file:
        file.add([row(2)])
    assert path.read_text() == before + FITS.as_line(row(2))
    assert read_rows(path, FITS)["split"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("x" * 140_000, r"line 2 of .*rows.csv with a damaged field \(field larger than"),
        ('"' + "x" * 140_000 + '"', r"line 2 of .*rows.csv with a damaged field \(field larger"),
        ('"iris', "line 2 of .*rows.csv with a damaged field "),
        ("iris,", r"line 2 of .*rows.csv with 32 values, but expected 31"),
    ],
    ids=["long", "long and quoted", "quotation mark", "comma"],
)
def test_a_damaged_field_is_reported_with_its_line(path, field, words):
    """Without a checksum; with one, it is noticed as any change is."""
    with ResultsFile(path, FITS) as file:
        file.add([row(0), row(1)])
    for expected in ("does not match its checksum", words):
        path.write_text(path.read_text().replace("iris", field, 1))
        for read in (ResultsFile(path, FITS).lines, lambda: read_rows(path, FITS)):
            with pytest.raises(ValueError, match=expected):
                read()
        path.write_text(path.read_text().replace(field, "iris", 1))
        without_checksums(path)


def test_a_file_of_another_kind_is_not_changed(path):
    path.parent.mkdir()
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="columns 'a,b'.* choose another folder"):
        ResultsFile(path, FITS).__enter__()
    assert path.read_text() == "a,b\n1,2\n"


def test_a_failed_fit_is_replaced_by_the_next_one(path):
    failed = row(0, error="ValueError: oh", test_error=None)
    with ResultsFile(path, FITS) as file:
        file.add([failed])
        assert file.keys() == {FITS.key_of(row(0))}
        assert file.keys(with_failed=False) == set()
        file.add([row(0)])
        assert file.keys(with_failed=False) == {FITS.key_of(row(0))}
    rows = read_rows(path, FITS)
    assert rows[["error", "test_error"]].values.tolist() == [["", 2.5]]


def test_two_runs_cannot_write_to_one_folder(path):
    program = f"""
import pathlib
from benchmarks._harness.results_file import ResultsFile
from benchmarks._tabular.protocol import FITS
try:
    ResultsFile(pathlib.Path({str(path)!r}), FITS).__enter__()
except ValueError as error:
    print(error)
"""
    with ResultsFile(path, FITS):
        result = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
    assert "to which another run is writing" in result.stdout
    with ResultsFile(path, FITS) as file:
        file.add([row(0)])


def test_a_full_disk_loses_no_earlier_row(path):
    """A limit on the file size simulates a full disk: the write fails in the middle."""
    with ResultsFile(path, FITS) as file:
        file.add([row(0)])
    before = path.read_bytes()
    program = f"""
import pathlib, resource, signal, sys
from benchmarks._harness.results_file import ResultsFile
from benchmarks._tabular.protocol import FITS
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from test_tabular_rows import row
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with ResultsFile(pathlib.Path({str(path)!r}), FITS) as file:
    resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 50}, resource.RLIM_INFINITY))
    try:
        file.add([row(1), row(2)])
    except OSError as error:
        print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "Got no room for a row" in result.stdout
    assert path.read_bytes() == before


def test_an_unknown_column_is_rejected(path):
    with ResultsFile(path, FITS) as file:
        file.add([row(0)])
        with pytest.raises(ValueError, match="colour"):
            file.add([row(1), row(2, colour="red")])
    assert len(read_rows(path, FITS)) == 1


def test_a_file_removed_during_a_run_starts_again(path):
    with ResultsFile(path, FITS) as file:
        file.add([row(0)])
        path.unlink()
        file.add([row(1)])
    assert read_rows(path, FITS)["split"].tolist() == [1]


def test_an_empty_file_has_no_rows(path):
    path.parent.mkdir()
    path.write_text("")
    assert read_rows(path, FITS).empty
    with ResultsFile(path, FITS) as file:
        assert file.keys() == set()
        file.add([row(0)])
    assert len(read_rows(path, FITS)) == 1


def test_a_key_does_not_depend_on_the_format_of_numbers(path):
    with ResultsFile(path, FITS) as file:
        file.add([row(0, alpha=0.001)])
        without_checksums(path)
        path.write_text(path.read_text().replace("0.001,", "1E-03,"))
        assert file.keys() == {FITS.key_of(row(0, alpha=0.001))}


def test_a_value_that_is_not_a_number_is_reported(path):
    with ResultsFile(path, FITS) as file:
        file.add([row(0, valid_error="abc")])
    with pytest.raises(ValueError, match="rows.csv with a value that is not a number.*abc"):
        read_rows(path, FITS)


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OSError, match="Got the output folder .*out, but expected one that can be"):
        ResultsFile(tmp_path / "out" / "rows.csv", FITS).__enter__()
