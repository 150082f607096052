"""Run with the python of an environment that holds nothing but the wheel and its dependencies."""

import importlib.util
import pathlib
import sys

import mixupe_sklearn

package = pathlib.Path(mixupe_sklearn.__file__)
assert pathlib.Path(sys.prefix) in package.parents, f"not the installed wheel: {package}"
assert (package.parent / "py.typed").exists(), "py.typed is missing from the wheel"
for extra in ("optuna", "openml", "torch_geometric", "dask", "pandas", "pytest", "sphinx"):
    assert importlib.util.find_spec(extra) is None, f"{extra} came along without being asked for"

X = [[-1.0, 0.0], [1.0, 0.0]] * 30
y = ["left", "right"] * 30
classifier = mixupe_sklearn.MixupEClassifier(batch_size=10, random_state=0).fit(X, y)
assert classifier.score(X, y) == 1.0
print(f"wheel {mixupe_sklearn.__version__}: installed without extras, imported, and learned")
