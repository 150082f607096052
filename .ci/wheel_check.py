"""Run with the python of an environment that holds nothing but the wheel and its dependencies."""

import importlib.util
import pathlib
import sys

import numpy as np

import mixupe_sklearn
import mixupe_sklearn.datasets.graphs
import mixupe_sklearn.datasets.images
import mixupe_sklearn.datasets.speech
from mixupe_sklearn import datasets

package = pathlib.Path(mixupe_sklearn.__file__)
assert pathlib.Path(sys.prefix) in package.parents, f"not the installed wheel: {package}"
assert (package.parent / "py.typed").exists(), "py.typed is missing from the wheel"
for extra in ("optuna", "openml", "torch_geometric", "dask", "pandas", "pytest", "sphinx"):
    assert importlib.util.find_spec(extra) is None, f"{extra} came along without being asked for"

X = [[-1.0, 0.0], [1.0, 0.0]] * 30
y = ["left", "right"] * 30
classifier = mixupe_sklearn.MixupEClassifier(batch_size=10, random_state=0).fit(X, y)
assert classifier.score(X, y) == 1.0

# Images and audio need no extra either, if they are arrays.
images = np.zeros((40, 8, 8), dtype=np.uint8)
images[::2, :4] = images[1::2, 4:] = 200
labels = ["up", "down"] * 20
small = {"module_params": {"width": 4, "blocks": (1,)}, "batch_size": 10, "max_epochs": 20}
eye = mixupe_sklearn.MixupEImageClassifier(**small, lr=0.01, random_state=0).fit(images, labels)
assert eye.score(images, labels) == 1.0
assert mixupe_sklearn.Spectrogram().transform([np.ones(100)]).shape == (1, 160, 101)
try:
    reason = str(datasets.load_embedded)
except ImportError as error:
    reason = str(error)
assert "needs pandas" in reason, f"a loader of tables came without pandas: {reason}"
try:
    reason = str(mixupe_sklearn.MixupEGraphClassifier)
except ImportError as error:
    reason = str(error)
assert reason.endswith("pip install mixupe-sklearn[graph]."), f"no word of the extra: {reason}"
print(f"wheel {mixupe_sklearn.__version__}: installed without extras, imported, and learned")
