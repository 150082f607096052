"""What OpenML's files say, and whether they can be true: pure functions on their bytes."""

import hashlib
import importlib
import io
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree  # nosec B405 # its types, and to write; defusedxml reads

CLASSIFICATION = "1"
# Ways to split that give rows to train on and others to test on.
PROCEDURES = {"crossvalidation", "leaveoneout", "holdout", "holdout_ordered", "customholdout"}
PROCEDURES |= {"bootstrapping", "subsampling"}
# A number as OpenML counts: other digits than these, or thousands of them, are none.
NUMBER = re.compile("[0-9]{1,18}")
# A table of more values is not taken for one: a few bytes of parquet can stand for as many.
MOST_CELLS = 10**9
# A name in a list: quoted in one way or the other, or up to the next comma.
NAME = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)"|([^,]+?))\s*(?:,|$)""")


class FaultError(Exception):
    """A file that cannot be right: half a sentence that says what is wrong with it."""


@dataclass(frozen=True)
class TaskFile:
    """What ``task.xml`` says."""

    kind: str
    kind_name: str
    data_id: int
    target: str
    splits_url: str
    procedure: str
    n_repeats: int | None
    n_folds: int | None


@dataclass(frozen=True)
class DataFile:
    """What ``description.xml`` says."""

    name: str
    form: str
    url: str | None
    parquet_url: str | None
    md5: str | None
    target: str | None
    status: str | None
    lists_left_out: list[str]


@dataclass(frozen=True)
class FeaturesFile:
    """What ``features.xml`` says: by column, its type and nominal values; and what is no input."""

    kinds: dict[str, str]
    values: dict[str, list[str]]
    left_out: set[str]


def parse_xml(content: bytes, name: str) -> ElementTree.Element:
    """The outermost element, which must have this name.

    A document type is refused, as OpenML's files have none: it could define entities that grow
    without end, or that name files of this machine.

    Examples
    --------
    >>> parse_xml(b"<a><b/></a>", "a").tag
    'a'
    >>> parse_xml(b"<html></html>", "task")
    Traceback (most recent call last):
    mixupe_sklearn.datasets._openml.metadata.FaultError: an HTML page in the place of a file
    """
    refuse_html(content)
    try:
        root = _defusedxml().fromstring(content, forbid_dtd=True)
    except (ElementTree.ParseError, LookupError) as error:  # or an encoding that nobody knows
        raise FaultError(f"no whole XML ({error})") from None
    except ValueError as error:  # an encoding that nobody knows, or what defusedxml forbids
        raise FaultError(f"XML that is not read for safety ({first_line(error)})") from None
    found = root.tag.rpartition("}")[2]
    if found != name:
        raise FaultError(f"an XML file of <{found}>, but expected <{name}>")
    return root


def _defusedxml() -> Any:
    """A reader of XML without entities and document types, imported when there is XML to read."""
    try:
        return importlib.import_module("defusedxml.ElementTree")
    except ImportError as error:
        raise ImportError(
            "Got no module 'defusedxml', but data of OpenML needs it: pip install "
            "mixupe-sklearn[openml]."
        ) from error


def refuse_html(content: bytes) -> None:
    """Web servers show pages for people where programs expect data."""
    begin = content[:200].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if begin.startswith((b"<!doctype html", b"<html")):
        raise FaultError("an HTML page in the place of a file")


def child_text(node: ElementTree.Element, path: str) -> str | None:
    """The text of an element, found by its path without namespaces; None if it is not there."""
    found = node.find("/".join(f"{{*}}{step}" for step in path.split("/")))
    return None if found is None or found.text is None else found.text.strip()


def _needed(node: ElementTree.Element, path: str) -> str:
    text = child_text(node, path)
    if not text:
        raise FaultError(f"it has no <{path}>")
    return text


def _check_number(node: ElementTree.Element, path: str, number: int) -> None:
    text = _needed(node, path)
    if text != str(number):
        raise FaultError(f"it is about number {text}, not {number}")


def _whole(text: str | None) -> int | None:
    return int(text) if text and NUMBER.fullmatch(text) else None


def read_task(content: bytes, task_id: int) -> TaskFile:
    """Read ``task.xml``; a task without a data set or splits of its own is at fault.

    Tasks of other kinds and procedures may lack the rest; the caller refuses them by name.
    """
    root = parse_xml(content, "task")
    _check_number(root, "task_id", task_id)
    kind = _needed(root, "task_type_id")
    kind_name = child_text(root, "task_type") or kind
    if kind != CLASSIFICATION:
        return TaskFile(kind, kind_name, 0, "", "", "", None, None)
    inputs = {node.get("name"): node for node in root.findall("{*}input")}
    if missing := {"source_data", "estimation_procedure"} - set(inputs):
        raise FaultError(f"it has no <input> named {min(missing)}")
    data, procedure = inputs["source_data"], inputs["estimation_procedure"]
    parameters = {
        node.get("name"): _whole((node.text or "").strip())
        for node in procedure.findall("{*}estimation_procedure/{*}parameter")
    }
    way = (child_text(procedure, "estimation_procedure/type") or "").lower()
    if (parameters.get("number_samples") or 1) > 1:
        way = f"{way} with samples"
    if way and way not in PROCEDURES:
        return TaskFile(kind, kind_name, 0, "", "", way, None, None)
    data_id = _needed(data, "data_set/data_set_id")
    if not NUMBER.fullmatch(data_id):
        raise FaultError(f"its data set has the number {data_id!r}")
    return TaskFile(
        kind=kind,
        kind_name=kind_name,
        data_id=int(data_id),
        target=_needed(data, "data_set/target_feature"),
        splits_url=_needed(procedure, "estimation_procedure/data_splits_url"),
        procedure=way,
        n_repeats=parameters.get("number_repeats"),
        n_folds=parameters.get("number_folds"),
    )


def read_description(content: bytes, data_id: int) -> DataFile:
    """Read ``description.xml``."""
    root = parse_xml(content, "data_set_description")
    _check_number(root, "id", data_id)
    return DataFile(
        name=_needed(root, "name"),
        form=_needed(root, "format"),
        url=child_text(root, "url"),
        parquet_url=child_text(root, "parquet_url"),
        md5=child_text(root, "md5_checksum"),
        target=child_text(root, "default_target_attribute"),
        status=child_text(root, "status"),
        lists_left_out=[
            (node.text or "").strip()
            for name in ("ignore_attribute", "row_id_attribute")
            for node in root.findall(f"{{*}}{name}")
        ],
    )


def names_in(text: str, columns: Collection[str]) -> list[str]:
    """The columns that a text names: one of them, or several with commas, quoted or not.

    Examples
    --------
    >>> names_in("size, 'a, b'", ["size", "a, b"]), names_in("a, b", ["size", "a, b"])
    (['size', 'a, b'], ['a, b'])
    """
    if text in columns:
        return [text]
    return ["".join(found) for found in NAME.findall(text)]


def without_parquet(content: bytes) -> bytes:
    """The same description without an address of a parquet file."""
    root = parse_xml(content, "data_set_description")
    for node in root.findall("{*}parquet_url"):
        root.remove(node)
    ElementTree.register_namespace("oml", "http://openml.org/openml")  # the client wants this name
    return ElementTree.tostring(root)


def read_features(content: bytes) -> FeaturesFile:
    """Read ``features.xml``."""
    found = parse_xml(content, "data_features").findall("{*}feature")
    nodes = {_needed(node, "name"): node for node in found}
    if not nodes or len(nodes) != len(found):
        raise FaultError(f"it names {len(nodes)} different columns of {len(found)}")
    flags = ("is_ignore", "is_row_identifier")
    return FeaturesFile(
        kinds={name: _needed(node, "data_type") for name, node in nodes.items()},
        values={
            name: [(value.text or "").strip() for value in node.findall("{*}nominal_value")]
            for name, node in nodes.items()
        },
        left_out={
            name
            for name, node in nodes.items()
            if any((child_text(node, flag) or "").lower() == "true" for flag in flags)
        },
    )


def read_n_rows(content: bytes) -> int | None:
    """The number of rows that ``qualities.xml`` tells, or None."""
    for node in parse_xml(content, "data_qualities").findall("{*}quality"):
        if child_text(node, "name") == "NumberOfInstances":
            try:
                return int(float(child_text(node, "value") or ""))
            except (ValueError, OverflowError):  # no number, or infinity
                return None
    return None


def read_suite(content: bytes, suite_id: int) -> list[int]:
    """Read the tasks of a benchmark suite, in its order."""
    root = parse_xml(content, "study")
    _check_number(root, "id", suite_id)
    texts = [(node.text or "").strip() for node in root.findall("{*}tasks/{*}task_id")]
    if not texts or not all(map(NUMBER.fullmatch, texts)):
        raise FaultError("it lists no tasks")
    return [int(text) for text in texts]


def check_md5(content: bytes, md5: str | None) -> None:
    """Compare with a checksum, if there is one; line ends of Windows count as plain ones."""
    if not md5:
        return
    versions = (content, content.replace(b"\r\n", b"\n"))
    found = [hashlib.md5(v, usedforsecurity=False).hexdigest() for v in versions]
    if md5.lower() not in found:
        raise FaultError(f"its checksum is {found[0]}, but expected {md5}")


def check_rows(n_rows: int, told_rows: int | None) -> None:
    """Compare the number of rows with what the server has counted, if it says so."""
    if told_rows is not None and n_rows != told_rows:
        raise FaultError(f"it has {n_rows} rows, but expected {told_rows}")


def check_parquet(content: bytes, told_rows: int | None, told_columns: int) -> None:
    """Read a whole parquet file, and compare its shape."""
    refuse_html(content)
    parquet: Any = importlib.import_module("pyarrow.parquet")
    pyarrow: Any = importlib.import_module("pyarrow")
    try:
        told = parquet.read_metadata(io.BytesIO(content))
        if told.num_rows * told.num_columns > MOST_CELLS:
            raise FaultError(f"it has {told.num_rows} rows of {told.num_columns} columns")
        table = parquet.read_table(io.BytesIO(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise FaultError(f"no whole parquet file ({first_line(error)})") from None
    names = [name for name in table.column_names if not name.startswith("__index_level_")]
    check_rows(table.num_rows, told_rows)
    if len(names) != told_columns:
        raise FaultError(f"it has {len(names)} columns, but expected {told_columns}")


def check_arff(content: bytes, md5: str | None) -> None:
    """An ARFF file must have a data section, and the checksum that is told."""
    refuse_html(content)
    if b"@data" not in content.lower():
        raise FaultError("no ARFF file: it has no @data line")
    check_md5(content, md5)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
