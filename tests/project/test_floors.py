"""Folders are floors: a folder imports only from the folders above it, read from the source."""

import ast
import pathlib

import pytest

import mixupe_sklearn

PACKAGE = pathlib.Path(mixupe_sklearn.__file__).parent
MODULES = {
    path.relative_to(PACKAGE).with_suffix("").as_posix(): path for path in PACKAGE.rglob("*.py")
}
# From the top floor down. The public modules of the package root may import from all of them.
FLOORS = [
    *("_utils", "_runtime", "_method", "modules", "_data", "_training", "_engine", "_net"),
    *("_distributed", "_estimators", "_preprocessing", "_images", "_audio", "_graphs"),
    *("datasets", "adapters", "_export", "_search", "_persistence", "_diagnostics"),
]
# Libraries that only some floors import.
KNOWN_BY = {
    "skorch": {"_utils", "_net", "_data", "_distributed", "_diagnostics", "root"},
    "optuna": {"_search", "root"},
    "accelerate": {"_distributed"},
}


def floor_of(name):
    return name.split("/")[0] if "/" in name else "root"


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def owner_of(imported):
    """The floor of an imported name of this package."""
    part = imported.split(".")[1] if "." in imported else ""
    return part if (PACKAGE / part).is_dir() and part else "root"


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_floor_imports_only_from_those_above_it(name):
    mine = floor_of(name)
    below = [*FLOORS[FLOORS.index(mine) + 1 :], "root"] if mine != "root" else []
    ours = [found for found in imports_of(MODULES[name]) if found.startswith("mixupe_sklearn")]
    assert [found for found in ours if owner_of(found) in below] == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_library_is_imported_only_on_its_floors(name):
    libraries = {found.split(".")[0] for found in imports_of(MODULES[name])}
    mine = floor_of(name)
    assert {library for library in libraries if mine not in KNOWN_BY.get(library, {mine})} == set()


def test_every_folder_is_a_floor():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(FLOORS)
    assert len(FLOORS) <= 20


def test_the_package_root_holds_only_public_modules():
    assert [path.name for path in PACKAGE.glob("_*.py")] == ["__init__.py"]
