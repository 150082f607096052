"""OpenML's metadata: pure functions that parse and check the bytes of its XML files."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from xml.etree import ElementTree  # nosec B405 # only its types: defusedxml parses

import defusedxml.ElementTree

CLASSIFICATION = "1"
# Procedures with both training and test rows.
PROCEDURES = {"crossvalidation", "leaveoneout", "holdout", "holdout_ordered", "customholdout"}
PROCEDURES |= {"bootstrapping", "subsampling"}
# Only ASCII digits, and few enough for int() to be fast.
INTEGER = re.compile("[0-9]{1,18}")


class InvalidFileError(Exception):
    """A file is damaged, or contradicts another file. The argument describes the fault."""


@dataclass(frozen=True)
class TaskMetadata:
    """The content of ``task.xml``."""

    procedure: str
    data_id: int
    target: str
    splits_url: str
    n_repeats: int | None
    n_folds: int | None


@dataclass(frozen=True)
class DatasetMetadata:
    """The content of ``description.xml``."""

    name: str
    format: str
    url: str | None
    parquet_url: str | None
    md5: str | None
    target: str | None
    ignored: list[str]


@dataclass(frozen=True)
class FeaturesMetadata:
    """The content of ``features.xml``: types and nominal values by column, and ignored columns."""

    types: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[str]] = field(default_factory=dict)
    ignored: set[str] = field(default_factory=set)


def parse_xml(content: bytes, name: str) -> ElementTree.Element:
    """The root element, which must have this name.

    OpenML's files have no document type. One could define entities that expand without end, or
    entities that name files of this machine, so it is refused.
    """
    try:
        root = defusedxml.ElementTree.fromstring(content, forbid_dtd=True)
    except (ElementTree.ParseError, LookupError) as error:  # or an unknown encoding
        raise InvalidFileError(f"not well-formed XML ({error})") from None
    except ValueError as error:  # an unsupported encoding, or what defusedxml forbids
        raise InvalidFileError(f"unsafe XML ({first_line(error)})") from None
    found = root.tag.rpartition("}")[2]
    if found != name:
        raise InvalidFileError(f"an XML file of <{found}>, but expected <{name}>")
    return root


def child_text(node: ElementTree.Element, path: str) -> str | None:
    """The text of an element by its path without namespaces, or None if there is none."""
    found = node.find("/".join(f"{{*}}{step}" for step in path.split("/")))
    return None if found is None else _text(found)


def _text(node: ElementTree.Element) -> str:
    return (node.text or "").strip()


def _required(node: ElementTree.Element, path: str) -> str:
    text = child_text(node, path)
    if not text:
        raise InvalidFileError(f"it has no <{path}>")
    return text


def _check_id(node: ElementTree.Element, path: str, expected: int) -> None:
    text = _required(node, path)
    if text != str(expected):
        raise InvalidFileError(f"it has the id {text}, but expected {expected}")


def read_task(content: bytes, task_id: int) -> TaskMetadata:
    """Parse ``task.xml``. Raises a ``ValueError`` for unsupported kinds and procedures."""
    root = parse_xml(content, "task")
    _check_id(root, "task_id", task_id)
    if _required(root, "task_type_id") != CLASSIFICATION:
        raise ValueError(
            f"Got task_id={task_id}, which is a task of {child_text(root, 'task_type')!r}, but "
            f"expected one of 'Supervised Classification'."
        )
    inputs = {node.get("name"): node for node in root.findall("{*}input")}
    if missing := {"source_data", "estimation_procedure"} - set(inputs):
        raise InvalidFileError(f"it has no <input> named {min(missing)}")
    data, estimation = inputs["source_data"], inputs["estimation_procedure"]
    parameters = {
        node.get("name"): int(text) if INTEGER.fullmatch(text := _text(node)) else None
        for node in estimation.findall("{*}estimation_procedure/{*}parameter")
    }
    procedure = (child_text(estimation, "estimation_procedure/type") or "").lower()
    if procedure and procedure not in PROCEDURES:
        raise ValueError(
            f"Got task_id={task_id}, whose rows are split by {procedure!r}, but expected "
            f"training and test rows: choose a task with a cross-validation or a holdout, or load "
            f"its dataset by load_dataset."
        )
    data_id = _required(data, "data_set/data_set_id")
    if not INTEGER.fullmatch(data_id):
        raise InvalidFileError(f"its dataset has the id {data_id!r}")
    return TaskMetadata(
        procedure=procedure,
        data_id=int(data_id),
        target=_required(data, "data_set/target_feature"),
        splits_url=_required(estimation, "estimation_procedure/data_splits_url"),
        n_repeats=parameters.get("number_repeats"),
        n_folds=parameters.get("number_folds"),
    )


def read_description(content: bytes, data_id: int) -> DatasetMetadata:
    """Parse ``description.xml``."""
    root = parse_xml(content, "data_set_description")
    _check_id(root, "id", data_id)
    ignored = [
        _text(node)
        for name in ("ignore_attribute", "row_id_attribute")
        for node in root.findall(f"{{*}}{name}")
    ]
    return DatasetMetadata(
        name=_required(root, "name"),
        format=_required(root, "format"),
        url=child_text(root, "url"),
        parquet_url=child_text(root, "parquet_url"),
        md5=child_text(root, "md5_checksum"),
        target=child_text(root, "default_target_attribute") or None,
        ignored=ignored,
    )


def split_names(text: str, columns: Collection[str]) -> list[str]:
    """The column names in a text: one name, or several with commas, quoted or not."""
    return [text] if text in columns else [name.strip(" '\"") for name in text.split(",")]


def read_features(content: bytes) -> FeaturesMetadata:
    """Parse ``features.xml``."""
    nodes = parse_xml(content, "data_features").findall("{*}feature")
    features = FeaturesMetadata()
    for node in nodes:
        name = _required(node, "name")
        features.types[name] = _required(node, "data_type")
        features.values[name] = [_text(value) for value in node.findall("{*}nominal_value")]
        flags = (child_text(node, flag) for flag in ("is_ignore", "is_row_identifier"))
        if any((flag or "").lower() == "true" for flag in flags):
            features.ignored.add(name)
    if not nodes or len(features.types) != len(nodes):
        raise InvalidFileError(f"it names {len(features.types)} different columns of {len(nodes)}")
    return features


def read_n_rows(content: bytes) -> int | None:
    """The number of rows that ``qualities.xml`` declares, or None."""
    for node in parse_xml(content, "data_qualities").findall("{*}quality"):
        if child_text(node, "name") == "NumberOfInstances":
            try:
                return int(float(child_text(node, "value") or ""))
            except (ValueError, OverflowError):  # not a number, or infinity
                return None
    return None


def read_suite(content: bytes, suite_id: int) -> list[int]:
    """Parse the task ids of a benchmark suite, in its order."""
    root = parse_xml(content, "study")
    _check_id(root, "id", suite_id)
    texts = [_text(node) for node in root.findall("{*}tasks/{*}task_id")]
    if not texts or not all(map(INTEGER.fullmatch, texts)):
        raise InvalidFileError("it lists no tasks")
    return [int(text) for text in texts]


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
