"""The guide's pages run as they stand, print what they show, and quote figures that are there."""

import contextlib
import io
import os
import pathlib
import re

import pytest
import sklearn

import mixupe_sklearn

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]
DOCS = ROOT / "docs"
# A block that is run, and what it prints where the page shows that.
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(("page", "n_blocks"), [("quickstart", 7)])
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(
    page, n_blocks, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    found = BLOCK.findall((DOCS / f"{page}.md").read_text())
    assert len(found) >= n_blocks
    namespace = {"__name__": page}
    with sklearn.config_context():
        for code, shown in found:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, f"{page}.md", "exec"), namespace)
            if os.environ.get("SHOW"):
                print(printed.getvalue())
            if shown:
                assert printed.getvalue() == shown
