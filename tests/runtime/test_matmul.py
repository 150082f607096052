"""Matrix products equal torch's, and those of one network do not depend on the others."""

import pytest
import torch

from mixupe_sklearn._runtime import matmul
from mixupe_sklearn._runtime.matmul import Product, amd_family, family_in

N_MEMBERS, N_ROWS, N_IN, N_OUT = 3, 100, 128, 96
OPERATOR = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
has_onednn = torch.backends.mkldnn.is_available() and OPERATOR is not None


@pytest.fixture(
    params=[
        "torch",
        pytest.param(
            "oneDNN", marks=pytest.mark.skipif(not has_onednn, reason="this torch has no oneDNN")
        ),
    ]
)
def library(request, monkeypatch):
    """Products by each library, whatever this CPU prefers; counts the calls of oneDNN."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return OPERATOR.default(*arguments)

    found = counted if request.param == "oneDNN" else None
    monkeypatch.setattr(matmul, "onednn_linear", lambda: found)
    return request.param, calls


def product(a, b, bias=None, is_transposed=False):
    n_rows = a.shape[2] if is_transposed else a.shape[1]
    out = torch.full((len(a), n_rows, b.shape[2]), torch.nan, dtype=a.dtype)
    with torch.inference_mode():
        Product(a, b, out, bias, is_transposed).run()
    return out


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_equals_torch_and_each_network_alone(library, has_bias, is_transposed):
    name, calls = library
    a, b = torch.randn(N_MEMBERS, N_ROWS, N_IN), torch.randn(N_MEMBERS, N_IN, N_OUT)
    bias = torch.randn(N_MEMBERS, 1, N_OUT) if has_bias else None
    given = a.mT.contiguous() if is_transposed else a
    found = product(given, b, bias, is_transposed)
    assert len(calls) == (N_MEMBERS if name == "oneDNN" else 0)
    expected = a.double() @ b.double() + (0 if bias is None else bias.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
    for k in range(N_MEMBERS):
        own = slice(k, k + 1)
        alone = product(given[own], b[own], None if bias is None else bias[own], is_transposed)
        assert torch.equal(alone[0], found[k])


def test_factors_may_be_views(library):
    a, b = torch.randn(N_MEMBERS, 2 * N_ROWS, N_IN), torch.randn(N_MEMBERS, N_OUT, N_IN)
    found = product(a[:, ::2], b.mT)
    torch.testing.assert_close(found, a[:, ::2] @ b.mT, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("library", ["oneDNN"], indirect=True)
@pytest.mark.skipif(not has_onednn, reason="this torch has no oneDNN")
def test_small_products_and_double_precision_stay_with_torch(library):
    _, calls = library
    product(torch.randn(1, N_ROWS, 4), torch.randn(1, 4, N_OUT))
    product(
        torch.randn(1, N_ROWS, N_IN, dtype=torch.double),
        torch.randn(1, N_IN, N_OUT, dtype=torch.double),
    )
    assert calls == []


def test_a_second_run_reads_the_memory_again():
    a, b, out = torch.ones(1, 2, 3), torch.ones(1, 3, 2), torch.empty(1, 2, 2)
    one = Product(a, b, out)
    one.run()
    a.mul_(2)
    one.run()
    assert (out == 6).all()


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n", 26),
        ("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n", 0),
        ("AMD64 Family 25 Model 33 Stepping 2, AuthenticAMD", 25),
        ("", 0),
    ],
)
def test_family_of_a_processor(text, family):
    assert family_in(text) == family


def test_family_where_the_system_has_no_list_of_processors(monkeypatch):
    def no_file(*args, **kwargs):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_file)
    monkeypatch.setenv("PROCESSOR_IDENTIFIER", "AMD64 Family 26 Model 2, AuthenticAMD")
    assert amd_family() == 26
