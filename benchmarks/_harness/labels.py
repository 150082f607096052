"""Labels that were renamed since: files of results stay as they were measured."""

import functools
import json
import pathlib

FILE = pathlib.Path(__file__).parents[1] / "results" / "renamed_labels.json"


@functools.cache
def renamed_labels() -> dict[str, str]:
    """Old labels and the present ones."""
    return json.loads(FILE.read_text())


def present_label(text: str) -> str:
    """The present form of a recorded label, or of the label before its first colon."""
    label, colon, rest = text.partition(":")
    return renamed_labels().get(label, label) + colon + rest
