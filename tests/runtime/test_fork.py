"""A forked child has none of its parent's threads, but torch (OpenMP) may wait for them."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, warnings
import numpy as np, torch
from mixupe_sklearn import MixupEClassifier, MixupERegressor, make_mixupe_pipeline, preset

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 20))
y = (X[:, 0] > 0).astype(int)
params = {"max_epochs": 2, "min_steps": 0, "n_threads": 2, "random_state": 0}
wide = preset("paper") | params | {"module_params": {"d_hidden": (256, 256)}}
models = [
    MixupEClassifier(**params),
    MixupEClassifier(**wide),
    MixupERegressor(**wide),
    make_mixupe_pipeline(**params),
]
n_before = len(os.listdir("/proc/self/task"))
for model in models:
    model.fit(X, y)
torch.set_num_threads(2)
torch.exp(torch.randn(1000, 1000)).sum()
has_threads = len(os.listdir("/proc/self/task")) > n_before

def in_a_child(call):
    "Whether a forked child makes a call in a minute."
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(call())
    return os.waitpid(child, 0)[1] == 0

def equal(n_samples, n_threads=None):
    rows = rng.normal(size=(n_samples, 20))
    expected = [model.predict(rows) for model in models]
    def call():
        if n_threads:
            torch.set_num_threads(n_threads)  # the cure
        return int(any(
            not np.allclose(model.predict(rows), one)
            for model, one in zip(models, expected, strict=True)
        ))
    return call

print(in_a_child(equal(1)), in_a_child(equal(300)), in_a_child(equal(20_000, n_threads=1)))
print(torch.get_num_threads(), has_threads)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="this is not Linux")
def test_predict_in_a_forked_child_does_not_wait_for_threads_that_are_gone():
    """Small inputs need no other thread; large ones need ``torch.set_num_threads(1)``."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )
    assert result.stdout.split() == ["True", "True", "True", "2", "True"], result.stderr
