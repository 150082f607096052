"""Files and names that the benchmarks read: bounded in size, and inside their folder."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks._tabular.options import folder_of, parser
from benchmarks._vision_speech.data import load_npz
from mixupe_sklearn.datasets import _decompress


def test_a_decompression_bomb_in_an_npz_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(_decompress, "ALWAYS_ALLOWED", 10_000)
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez_compressed(tmp_path / "a.npz", **{name: np.zeros(2_000_000) for name in names})
    with pytest.raises(OSError, match="a.npz, but expected a readable .npz file .*decompresses to"):
        load_npz(tmp_path / "a.npz")


@settings(max_examples=100, deadline=None)
@given(name=st.text(st.sampled_from("./\\~ab:\n $%"), min_size=1, max_size=30))
@example(name="../../../etc/passwd")
@example(name="..")
@example(name="/")
def test_the_folder_of_a_report_is_in_the_folder_of_reports(name):
    options = parser().parse_args(["--csv", name, "--target", "y"])
    folder = folder_of(options)
    assert folder.parts[:2] == ("build", "tabular")
    assert len(folder.parts) == 3
    assert folder.name.startswith("csv-")
