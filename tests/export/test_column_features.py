"""Dates, many levels and missing values through ONNX and ``save``: the same predictions."""

import numpy as np
import pandas as pd
import pytest

from mixupe_sklearn import make_mixupe_pipeline
from mixupe_sklearn.persistence import load, save
from mixupe_sklearn.serving import onnx_inputs, to_onnx

onnxruntime = pytest.importorskip("onnxruntime")
N_ROWS = 400


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    days, hours = (rng.integers(0, 900, N_ROWS) for _ in range(2))
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=N_ROWS),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D"),
            "span": pd.to_timedelta(hours, unit="h"),
            "city": rng.integers(0, 120, N_ROWS).astype(str),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.1)


@pytest.mark.parametrize("task", ["classes", "two classes", "numbers"])
def test_a_model_and_a_file_predict_alike(frame, task, tmp_path):
    rng = np.random.default_rng(1)
    y = rng.normal(size=N_ROWS) if task == "numbers" else rng.integers(0, 2, N_ROWS).astype(str)
    y = rng.integers(0, 3, N_ROWS) if task == "classes" else y
    pipeline = make_mixupe_pipeline(
        regression=task == "numbers", n_members=2, max_epochs=2, min_steps=0, random_state=0
    ).fit(frame, y)
    names = pipeline[0].get_feature_names_out()
    assert {name.split("__")[0] for name in names} >= {"dates", "targets", "numbers_missing"}
    new = frame.copy()
    new.loc[5, "city"], new.loc[6, "sold"] = "new", pd.Timestamp("2031-02-03")
    predict = "predict" if task == "numbers" else "predict_proba"
    expected = getattr(pipeline, predict)(new)
    to_onnx(pipeline, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(None, onnx_inputs(new, session))[-1]
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-6)
    save(pipeline, tmp_path / "model")
    assert np.array_equal(getattr(load(tmp_path / "model"), predict)(new), expected)
