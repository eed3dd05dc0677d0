"""The fence: values go through it unchanged, are computed once, and cost no copy in compiled code."""

import pytest
import torch
from torch import Tensor
from torch._inductor.utils import run_and_get_code
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients.compiling import can_compile
from tacit.gradients.settling import settle_, settled

NORMS, ROWS = torch.rand(64, 1, dtype=torch.float64), torch.rand(64, 7)


def scaled(norms: Tensor, rows: Tensor) -> list[Tensor]:
    factors = settled(1 / norms.exp())
    return [rows * factors, (rows * factors).sum(0)]


def test_values_are_the_same_in_a_tensor_of_their_own() -> None:
    found = settled(NORMS)
    assert torch.equal(found, NORMS)
    assert found.data_ptr() != NORMS.data_ptr()


def test_the_operator_keeps_what_it_declares() -> None:
    torch.library.opcheck(settle_, (NORMS.clone(),), test_utils=("test_schema", "test_faketensor"))


@pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="needs a C++ compiler")
def test_compiled_code_computes_once_and_copies_nothing() -> None:
    graph = make_fx(scaled, tracing_mode="fake")(NORMS, ROWS)
    found, (code,) = run_and_get_code(lambda: torch._inductor.compile(graph, [NORMS, ROWS])(NORMS, ROWS))
    for value, expected in zip(found, scaled(NORMS, ROWS), strict=True):
        torch.testing.assert_close(value, expected)
    before, after = code.split("settle_.default(")
    assert ".exp(" in before
    assert ".exp(" not in after
    assert before.count("empty_strided_cpu((64, 1)") == 1
    assert "empty_strided_cpu((64, 1)" not in after
