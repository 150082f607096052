"""Every public name is on the API page and has a docstring with an example and true defaults."""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re

import pytest

import mixupe_sklearn

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]


def documented_defaults(docstring):
    """Parameter names with the defaults that the docstring gives."""
    section = docstring.split("Parameters\n----------\n")[1].split("\n\n")[0]
    # A line without a type refers to another docstring.
    found = re.findall(r"^([\w*][\w*, ]*)(?: : (.*))?$", section, flags=re.MULTILINE)
    return {
        name: default.group(1) if (default := re.search(r"default=(.*)$", kind)) else kind and None
        for names, kind in found
        for name in names.split(", ")
    }


def public_names():
    """The names that the API page lists, with their objects."""
    page = (ROOT / "docs" / "api.md").read_text()
    names = re.findall(r"^   ([A-Za-z][\w.]+)$", page, flags=re.MULTILINE)
    return {name: pkgutil.resolve_name(f"mixupe_sklearn:{name}") for name in names}


for name in ("diagnostics", "callbacks", "recipes", "preprocessing", "datasets.openml"):
    importlib.import_module(f"mixupe_sklearn.{name}")
for name in ("images", "speech", "graphs"):
    importlib.import_module(f"mixupe_sklearn.datasets.{name}")
PUBLIC = public_names()
WITH_PARAMETERS = {
    name: item for name, item in PUBLIC.items() if "Parameters\n" in (item.__doc__ or "")
}


def test_the_api_page_has_every_public_name():
    diagnostics = importlib.import_module("mixupe_sklearn.diagnostics")
    expected = {*mixupe_sklearn.__all__, *(f"diagnostics.{name}" for name in diagnostics.__all__)}
    assert expected <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_with_an_example(name):
    """Doctests run the examples."""
    docstring = inspect.getdoc(PUBLIC[name])
    assert len(docstring) > 60
    assert re.search(r"Examples\n--------\n(.*\n)*?>>> ", docstring)


@pytest.mark.parametrize("name", [name for name in WITH_PARAMETERS if name != "MixupENet"])
def test_documented_parameters_and_defaults_are_those_of_the_signature(name):
    item = PUBLIC[name]
    documented = documented_defaults(inspect.getdoc(item))
    signature = inspect.signature(item).parameters
    names = [f"**{n}" if p.kind == p.VAR_KEYWORD else n for n, p in signature.items()]
    assert sorted(documented) == sorted(names)
    for name, parameter in signature.items():
        if parameter.default is not inspect.Parameter.empty and documented[name] != "":
            value = parameter.default
            if repr(value) == "<factory>":  # of a dataclass
                value = item.__dataclass_fields__[name].default_factory()
            default, given = "nan" if value != value else repr(value), documented[name]
            assert given == default or ast.literal_eval(given) == value, name
