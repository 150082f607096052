"""Calls that the source must not contain, checked in the source itself: see SECURITY.md."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("mixupe_sklearn", "benchmarks", "docs", ".ci")
FILES = {
    str(path.relative_to(ROOT)): path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if not {"_build", "gallery"} & set(path.parts)
}
# Calls that run text or bytes as code.
RUNS_CODE = {"eval", "exec", "compile", "__import__", "builtins.eval", "builtins.exec"}
RUNS_CODE |= {"code.interact", "runpy.run_path", "runpy.run_module"}
UNPICKLES = {f"{module}.load" for module in ("pickle", "cloudpickle", "dill", "joblib", "marshal")}
UNPICKLES |= {f"{module}.loads" for module in ("pickle", "cloudpickle", "dill", "marshal")}
UNPICKLES |= {
    "pickle.Unpickler",
    "pickle._Unpickler",
    "shelve.open",
    "pandas.read_pickle",
    "torch.load",
}
UNPICKLES |= {"yaml.load", "yaml.unsafe_load", "jsonpickle.decode", "torch.hub.load"}
RUNS_SHELL = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
RUNS_SHELL |= {
    f"os.{kind}{way}" for kind in ("exec", "spawn") for way in ("l", "le", "lp", "v", "vp")
}
READS_XML = {
    f"xml.{reader}"
    for module in ("etree.ElementTree", "dom.minidom", "sax")
    for reader in (f"{module}.{name}" for name in ("parse", "fromstring", "parseString", "XML"))
}
UNPACKS = {"shutil.unpack_archive", "tarfile.open", "tarfile.TarFile"}
FORBIDDEN = RUNS_CODE | UNPICKLES | RUNS_SHELL | READS_XML | UNPACKS | {"tempfile.mktemp"}
# Methods of archives that write files.
FORBIDDEN_METHODS = {"extractall", "extract"}
ASKS = {f"requests.{name}" for name in ("get", "post", "put", "request", "head", "delete")}
# Allowed calls, and why they are safe.
ALLOWED = {
    # Finds classes in a short list only; see tests/datasets/test_image_datasets.py.
    ("mixupe_sklearn/datasets/_restricted_unpickler.py", "pickle._Unpickler"),
    # Reads what the same run wrote into a temporary folder of its user.
    ("benchmarks/_harness/runner.py", "joblib.load"),
}


def names_in(tree):
    """The full names of the imported names of a module."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.asname or a.name.split(".")[0]: a.asname and a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return {name: meaning or name for name, meaning in found.items()}


def dotted(node, names):
    """The full dotted name of an expression, or an empty string."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (before := dotted(node.value, names)):
        return f"{before}.{node.attr}"
    return ""


def is_true(call, keyword):
    """Whether a keyword is given and not False or None."""
    given = [word.value for word in call.keywords if word.arg == keyword]
    return any(not (isinstance(v, ast.Constant) and v.value in (False, None)) for v in given)


def faults_of(call, name):
    """The faults of one call."""
    words = {word.arg for word in call.keywords}
    first = call.args[0] if call.args else None
    if name in FORBIDDEN:
        yield name
    if isinstance(call.func, ast.Attribute) and call.func.attr in FORBIDDEN_METHODS:
        yield call.func.attr
    is_text = isinstance(first, ast.Constant | ast.JoinedStr)
    if name.startswith("subprocess.") and (is_text or is_true(call, "shell")):
        yield f"{name} of a text"
    if name == "numpy.load" and is_true(call, "allow_pickle"):
        yield f"{name} with pickles"
    if name in ASKS and "timeout" not in words:
        yield f"{name} without a time-out"
    if name in ASKS and "verify" in words:
        yield f"{name} that may not verify"
    if name == "importlib.import_module" and isinstance(first, ast.Constant):
        is_bad = any(bad.startswith(f"{first.value}.") for bad in UNPICKLES | READS_XML)
        yield from [f"{name} of {first.value}"] * is_bad
    if name == "jinja2.Environment" and not is_true(call, "autoescape"):
        yield f"{name} without escapes"


def faults_in(text):
    """All faults of a source."""
    tree = ast.parse(text)
    names = names_in(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from faults_of(node, dotted(node.func, names))
        elif isinstance(node, ast.ClassDef):  # a subclass is used in the place of its base
            yield from (name for b in node.bases if (name := dotted(b, names)) in FORBIDDEN)


BAD = {
    "eval('1')": "eval",
    "import os\nos.system('ls')": "os.system",
    "from os import system as run\nrun('ls')": "os.system",
    "import subprocess as s\ns.run(['ls'], shell=True)": "subprocess.run of a text",
    "import subprocess\nsubprocess.run('ls')": "subprocess.run of a text",
    "import subprocess\nsubprocess.run(f'ls {x}', shell=y)": "subprocess.run of a text",
    "import pickle\npickle.loads(b'')": "pickle.loads",
    "import pickle\nclass A(pickle.Unpickler): pass": "pickle.Unpickler",
    "import importlib\nimportlib.import_module('pickle').loads(b'')": "importlib.import_module of pickle",
    "import torch\ntorch.load('x')": "torch.load",
    "import numpy as np\nnp.load('x', allow_pickle=True)": "numpy.load with pickles",
    "import joblib\njoblib.load('x')": "joblib.load",
    "import zipfile\nzipfile.ZipFile('x').extractall('y')": "extractall",
    "from xml.etree import ElementTree as E\nE.fromstring('')": "xml.etree.ElementTree.fromstring",
    "import requests\nrequests.get('x')": "requests.get without a time-out",
    "import requests\nrequests.get('x', timeout=1, verify=False)": "requests.get that may not verify",
    "import tempfile\ntempfile.mktemp()": "tempfile.mktemp",
    "import jinja2\njinja2.Environment()": "jinja2.Environment without escapes",
}
GOOD = [
    "module.eval()",
    "import re\nre.compile('x')",
    "import torch\ntorch.compile(x)",
    "import subprocess\nsubprocess.run(['ls'], shell=False)",
    "import numpy as np\nnp.load('x', allow_pickle=False)",
    "import requests\nrequests.get('x', timeout=1)",
    "import jinja2\njinja2.Environment(autoescape=True)",
]


@pytest.mark.parametrize("text", BAD)
def test_faults_are_found(text):
    assert list(faults_in(text)) == [BAD[text]]


@pytest.mark.parametrize("text", GOOD)
def test_safe_calls_pass(text):
    assert list(faults_in(text)) == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_no_file_contains_a_forbidden_call(name):
    found = {(name, fault) for fault in faults_in(FILES[name].read_text())}
    assert found - ALLOWED == set()


def test_each_exception_is_still_needed():
    for name, fault in ALLOWED:
        assert fault in set(faults_in(FILES[name].read_text()))


@pytest.mark.parametrize("name", [n for n in sorted(FILES) if n.startswith(("mixupe", "bench"))])
def test_asserts_only_serve_the_type_checker(name):
    """Python removes asserts with ``-O``, so input is checked by ``if`` and ``raise``."""
    for node in ast.walk(ast.parse(FILES[name].read_text())):
        if isinstance(node, ast.Assert):
            assert isinstance(node.test, ast.Compare)
            assert isinstance(node.test.ops[0], ast.IsNot)
            assert ast.unparse(node.test.comparators[0]) == "None"


@pytest.mark.parametrize("name", [n for n in sorted(FILES) if n.startswith(("mixupe", "bench"))])
def test_a_suppressed_finding_of_bandit_has_a_reason(name):
    for line in FILES[name].read_text().splitlines():
        _, mark, after = line.partition("# nosec")
        if mark:
            code, _, reason = after.partition("#")
            assert code.strip().startswith("B")
            assert len(reason.split()) >= 3
