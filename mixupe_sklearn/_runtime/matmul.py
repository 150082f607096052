"""Matrix products of several networks, by the library of torch that is faster on this CPU."""

import os
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

# torch multiplies matrices with MKL, which uses half of the vector units of AMD's processors of the
# fifth Zen generation. oneDNN, which torch contains as well, uses all of them: 200 x 128 by
# 128 x 128 takes 38 instead of 63 microseconds with one thread, and larger products half the time.
# A call costs more, so that it pays from about this many multiplications on.
ONEDNN_WORK = 2**20
ZEN_5 = 26  # the family number of these processors


class Product:
    """The product ``a @ b + bias`` for several networks, in memory that each call uses again.

    The library depends on the CPU and on the shapes of one network, so that the result of a network
    does not depend on the others. There is no gradient.

    Parameters
    ----------
    a : Tensor of shape (n_members, n_rows, n_in)
        Left factors.
    b : Tensor of shape (n_members, n_in, n_out)
        Right factors.
    out : Tensor of shape (n_members, n_rows, n_out)
        Where the result is written.
    bias : Tensor of shape (n_members, 1, n_out) or None, default=None
        What is added to each row.
    is_transposed : bool, default=False
        Whether ``a`` is given as (n_members, n_in, n_rows).

    Examples
    --------
    >>> import torch
    >>> a, b, out = torch.ones(2, 1, 3), torch.ones(2, 3, 1), torch.empty(2, 1, 1)
    >>> _ = Product(a, b, out, bias=torch.tensor([[[0.0]], [[1.0]]])).run()
    >>> out.flatten().tolist()
    [3.0, 4.0]
    """

    def __init__(
        self,
        a: Tensor,
        b: Tensor,
        out: Tensor,
        bias: Tensor | None = None,
        is_transposed: bool = False,
    ):
        self.a, self.b = a, b
        self.run: Callable[[], Any]
        left = a.mT if is_transposed else a
        linear = onednn_linear() if a.dtype == torch.float32 else None
        if linear is not None and left.shape[1:].numel() * b.shape[2] >= ONEDNN_WORK:
            biases = [None] * len(a) if bias is None else bias[:, 0].unbind()
            parts = zip(left.unbind(), b.mT.unbind(), biases, out.unbind(), strict=True)
            self.run = partial(_run_onednn, linear, list(parts))
        elif bias is None:
            self.run = partial(torch.bmm, left, b, out=out)
        else:
            self.run = partial(torch.baddbmm, bias, left, b, out=out)


def _run_onednn(linear: Callable[..., Any], parts: Sequence[tuple[Any, ...]]) -> None:
    # The operator takes one network at a time and returns new memory.
    for left, right, bias, out in parts:
        out.copy_(linear(left, right, bias, "none", [], ""))


@cache
def onednn_linear() -> Callable[..., Any] | None:
    """Return oneDNN's linear layer if this CPU runs large products faster with it, else None."""
    is_wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    if not (is_wide and torch.backends.mkldnn.is_available() and amd_family() >= ZEN_5):
        return None
    found = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # what compiled modules call
    return None if found is None else found.default


def amd_family() -> int:
    """Return the family number of an AMD processor, or 0 for any other."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            text = "".join(islice(file, 10))  # of the first core
    except OSError:  # not Linux
        text = os.environ.get("PROCESSOR_IDENTIFIER", "")
    return family_in(text)


def family_in(text: str) -> int:
    """Return the family number in a system's description of a processor, or 0 if it is not AMD's.

    Examples
    --------
    >>> family_in("AMD64 Family 25 Model 33 Stepping 2, AuthenticAMD")
    25
    """
    found = re.search(r"family\s*:?\s*(\d+)", text, re.IGNORECASE)
    return int(found[1]) if found and "AuthenticAMD" in text else 0
