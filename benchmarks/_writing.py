"""How benchmarks write files: whole or not at all."""

import pathlib

from mixupe_sklearn._utils.atomic_files import replacing


def write_text(path: pathlib.Path, text: str) -> pathlib.Path:
    """Write a file, and make its folder: who reads meanwhile sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text.encode())
    return path
