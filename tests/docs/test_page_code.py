"""The code blocks of the pages run as they stand and print what the pages show."""

import contextlib
import io
import pathlib
import re

import pytest
import sklearn

import mixupe_sklearn

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]
# A code block, and its output where the page shows it.
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
# Accuracies that a page prints on lines of their own.
N_SCORES = {"estimators": 1, "images": 1, "speech": 1, "graphs": 2}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    ("page", "n_blocks"),
    [
        ("README.md", 4),
        ("docs/user_guide/estimators.md", 4),
        ("docs/user_guide/preprocessing.md", 5),
        ("docs/user_guide/searching.md", 4),
        ("docs/user_guide/method.md", 1),
        ("docs/user_guide/diagnostics.md", 4),
        ("docs/user_guide/images.md", 5),
        ("docs/user_guide/speech.md", 3),
        ("docs/user_guide/graphs.md", 4),
        ("docs/user_guide/recipes.md", 4),
    ],
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(
    page, n_blocks, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert len(blocks) >= n_blocks
    namespace, scores = {"__name__": page}, []
    with sklearn.config_context():
        for code, shown in blocks:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, page, "exec"), namespace)
            if shown:
                assert printed.getvalue() == shown
            scores += re.findall(r"^[01]\.\d+$", printed.getvalue(), re.MULTILINE)
    name = pathlib.Path(page).stem
    if name in N_SCORES:
        assert len(scores) == N_SCORES[name]
        assert all(float(score) > 0.8 for score in scores)
