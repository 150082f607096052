"""Names from data in figures, where matplotlib would take some of them for formulas."""

from typing import Any


def plain_label(name: Any) -> str:
    r"""A name as a label that matplotlib shows as it is.

    Between two dollars it would see a formula, and fail at one that it cannot read; it leaves
    labels with an underscore first out of legends; and no font has control characters.

    Examples
    --------
    >>> print(plain_label(r"$\input{x}$"), plain_label(7), plain_label("_id\x07"))
    \$\input{x}\$ 7  _id
    """
    text = "".join(char if char.isprintable() else " " for char in str(name))
    text = text.strip().replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
