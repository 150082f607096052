"""The code blocks of the pages run as they stand."""

import pathlib
import re

import pytest
import sklearn

import mixupe_sklearn
from mixupe_sklearn.modules import MLP

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]


class MyModule(MLP):
    """What the user guide calls a module of one's own."""

    def __init__(self, n_features, n_outputs, width):
        super().__init__(n_features, n_outputs, d_hidden=(width,))


@pytest.mark.parametrize(
    ("page", "n_blocks"),
    [
        ("README.md", 5),
        ("docs/user_guide.md", 2),
        ("docs/searching.md", 4),
        ("docs/diagnostics.md", 4),
    ],
)
def test_the_code_of_a_page_runs(page, n_blocks, small_digits):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert len(blocks) >= n_blocks
    X, y = small_digits
    namespace = {"X_train": X, "y_train": y, "X_val": X, "y_val": y, "MyModule": MyModule}
    with sklearn.config_context():
        for block in blocks:
            exec(compile(block, page, "exec"), namespace)
