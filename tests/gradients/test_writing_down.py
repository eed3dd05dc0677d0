"""Running sums that are normalised are written down where that saves memory, and nothing else changes."""

import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.inductor_prims import force_stride_order
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients import compiling
from tacit.gradients.kernels import weighted_rows
from tacit.gradients.tidying import without_layout_copies
from tacit.gradients.writing_down import write_sums_down

X = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
BLOCKS = 3


def blocks(x: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """What a chain of blocks with skip connections keeps: all sums, normalised, and the last one."""
    kept = []
    for block in range(BLOCKS):
        kept.append(F.layer_norm(x, (4,)))
        x = x + (kept[-1] * (block + 2)).to(dtype)
    return [*kept, x]


def stream(x: Tensor) -> list[Tensor]:
    return blocks(x, torch.float32)


def halves(x: Tensor) -> list[Tensor]:
    return blocks(x, torch.bfloat16)


def with_gradients(x: Tensor) -> list[Tensor]:
    """Gradients of every example that are larger than all sums."""
    rows = torch.cat([x.flatten(1)] * (BLOCKS + 1), 1)
    norms, last = halves(x)[:-1], halves(x)[-1]
    return [sum(norms, last).sum(), weighted_rows(rows, torch.ones(3))]


def small_result(x: Tensor) -> Tensor:
    return torch.stack([each.sum() for each in halves(x)])


def read_once(x: Tensor) -> Tensor:
    return F.layer_norm(x + 1, (4,))


def no_sum(x: Tensor) -> Tensor:
    product = 2 * x
    return F.layer_norm(product, (4,)) + product


def reshaped(x: Tensor) -> tuple[Tensor, Tensor]:
    total = x + 1
    return F.layer_norm(total.reshape(3, 20), (20,)), total


def changed_later(x: Tensor) -> tuple[Tensor, Tensor]:
    total = x + 1
    return F.layer_norm(total, (4,)), total.mul_(2)


def as_large_as_the_result(x: Tensor) -> list[Tensor]:
    """One sum, and a result of its size, given twice."""
    total = x + x.bfloat16()
    result = F.layer_norm(total, (4,)) * total
    return [result, result]


def traced(function: Callable[[Tensor], object], x: Tensor) -> GraphModule:
    return without_layout_copies(make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(x))


def written(graph: GraphModule) -> list[torch.fx.Node]:
    return graph.graph.find_nodes(op="call_function", target=force_stride_order)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (stream, BLOCKS - 1),  # the first block normalises what was given, and nothing the last sum
        (small_result, BLOCKS - 1),
        (with_gradients, 0),
        (halves, 0),  # whose results are themselves larger
        (reshaped, 1),
        (as_large_as_the_result, 1),
        (read_once, 0),
        (no_sum, 0),
        (changed_later, 0),
    ],
)
def test_sums_that_are_normalised_and_read_again_are_written_down(
    function: Callable[[Tensor], object], found: int
) -> None:
    graph = traced(function, X)
    write_sums_down(graph)
    graph.graph.lint()
    assert len(written(graph)) == found == graph.code.count("inductor_force_stride_order.default(")
    torch.testing.assert_close(graph(X), function(X), rtol=0, atol=0)


def test_rows_lie_one_behind_the_other_whatever_the_summands_do() -> None:
    """A sum is laid out as its first summand, which may be a transposed one: reading its rows would be slow."""
    x = X.transpose(1, 2).contiguous().transpose(1, 2)
    graph = traced(stream, x)
    write_sums_down(graph)
    sums = written(graph)
    assert sums
    assert all(node.all_input_nodes[0].meta["val"].stride() != (20, 4, 1) for node in sums[:1])
    assert all(node.meta["val"].stride() == (20, 4, 1) for node in sums)
    torch.testing.assert_close(graph(x), stream(x), rtol=0, atol=0)


def test_only_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = traced(stream, X)
    assert not written(compiling.improved(graph))
    monkeypatch.setattr(compiling, "on_gpu", lambda _: True)
    assert written(compiling.improved(graph))


def narrow_first_layer(records: Tensor) -> Tensor:
    """A product that is written out as sums over the rows where they lie, by nodes whose values are not known."""
    y = torch.addmm(torch.ones(4), records.index_select(0, torch.arange(3)), torch.ones(20, 4))
    return F.layer_norm(y, (4,)) * y


def normalised_again(x: Tensor) -> Tensor:
    """The second normalisation is taken from the statistics of the first one, by such nodes too."""
    first = F.layer_norm(x, (4,), torch.ones(4), torch.zeros(4))
    total = x + F.layer_norm(x, (4,))
    return first * F.layer_norm(total, (4,)) + total


def normalised_again_as_a_result(x: Tensor) -> list[Tensor]:
    total = x + x.bfloat16()
    first = F.layer_norm(x, (4,), torch.ones(4), torch.zeros(4))
    return [first, F.layer_norm(x, (4,)), F.layer_norm(total, (4,)) * total]


@pytest.mark.parametrize(
    ("function", "x"),
    [(narrow_first_layer, X.flatten(1)), (normalised_again, X), (normalised_again_as_a_result, X)],
)
def test_nodes_of_other_passes_are_no_hindrance(
    function: Callable[[Tensor], object], x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = traced(function, x)
    monkeypatch.setattr(compiling, "on_gpu", lambda _: True)
    torch.testing.assert_close(compiling.improved(graph)(x), function(x))


def test_another_process_can_read_such_a_graph() -> None:
    graph = traced(stream, X)
    write_sums_down(graph)
    code = """
import pickle, sys, torch
import tacit.gradients.compiler_process
graph, x = pickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(pickle.dumps(graph(x)))
"""
    ran = subprocess.run([sys.executable, "-c", code], input=pickle.dumps((graph, X)), capture_output=True, check=True)
    torch.testing.assert_close(pickle.loads(ran.stdout), stream(X), rtol=0, atol=0)
