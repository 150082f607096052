"""What an import of the package loads, and the order of other imports."""

import subprocess
import sys

import pytest


def test_no_extra_is_imported_with_the_package():
    # skorch itself imports pandas if it is installed.
    extras = ["optuna", "openml", "torch_geometric", "dask", "soundfile", "matplotlib"]
    extras += ["onnx", "skl2onnx", "onnxruntime"]
    code = f"""
import sys
import mixupe_sklearn
found = [name for name in {extras} if name in sys.modules]
print(found)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


ORDERS = {
    "ours first": "import mixupe_sklearn, skorch, torch_geometric.data as pyg",
    "graphs first": "import torch_geometric.data as pyg, mixupe_sklearn, skorch",
}


@pytest.mark.parametrize("order", ORDERS)
def test_skorch_recognises_graphs_in_any_order_of_imports(order):
    code = f"""
import torch
{ORDERS[order]}
from skorch.utils import to_tensor
graph = pyg.Data(x=torch.ones(2, 1), edge_index=torch.zeros(2, 0, dtype=torch.long))
print(type(to_tensor(graph, device="cpu")).__name__, to_tensor([1.0], device="cpu"))
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["Data", "[tensor(1.)]"]
