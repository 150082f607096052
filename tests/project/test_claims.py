"""Every promise of SECURITY.md and of the page on faults names tests that exist."""

import ast
import pathlib
import re
import runpy

import pytest

ROOT = pathlib.Path(__file__).parents[2]
CLAIMS = runpy.run_path(str(ROOT / ".ci" / "claims.py"))
PAGES = {path.name: path.read_text() for path in CLAIMS["PAGES"]}
named_tests = CLAIMS["named_tests"]


def functions_of(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", PAGES)
def test_the_named_tests_exist(name):
    tests = named_tests(PAGES[name])
    assert len(tests) >= 10
    files = {test.partition("::")[0] for test in tests}
    known = {f"{file}::{function}" for file in files for function in functions_of(file)}
    assert set(tests) - known == set()


@pytest.mark.parametrize(
    ("name", "heading"), [("SECURITY.md", "What is not trusted"), ("faults.md", "What to know")]
)
def test_every_promise_of_a_table_has_a_test(name, heading):
    section = PAGES[name].partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    rows = [line for line in rows if not line.startswith(("| input |", "| promise |"))]
    assert len(rows) >= 7
    assert [line for line in rows if not named_tests(line)] == []


def test_the_tables_say_when_their_tests_have_last_run():
    rows = [line for line in PAGES["SECURITY.md"].splitlines() if named_tests(line)]
    rows = [line for line in rows if line.startswith("| ")]
    for line in rows:
        assert re.search(rf" \| 20\d\d-\d\d-\d\d, {len(named_tests(line))} passed \|$", line), line
    assert CLAIMS["dated"]("\n".join([*rows, "text"]), "2000-01-02").count("| 2000-01-02, ") == len(
        rows
    )


def test_make_check_runs_bandit_and_the_audit():
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    assert "bandit -q -r mixupe_sklearn benchmarks" in recipe
    assert ".ci/audit.py" in recipe
