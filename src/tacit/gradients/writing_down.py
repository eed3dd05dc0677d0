"""Sums that are written down once on a GPU, where torch's compiler would keep what they are sums of.

A network with skip connections normalises a running sum in every block, and the backward pass needs all of them again.
To the compiler an addition costs less than memory: it keeps the summands, adds them up wherever the sum is read, and
where that takes many of them it keeps the normalised sum besides, which is as large. With the sum in memory, the rest
is worked out from it on the way.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from tacit.gradients.graphs import SAME_ROWS, before_changes, call, dtype_of, viewed
from tacit.gradients.kernels import ADD_UP

_aten = torch.ops.aten
_ADD, _LAYER_NORM = _aten.add.Tensor, _aten.native_layer_norm.default


def write_sums_down(graph: GraphModule) -> None:
    """Has sums in memory that are normalised and read elsewhere too, each in one place of its own.

    Summands of half precision are together no larger than their sum of float32. A graph that has them is left as it is
    where the gradients that it gives or adds up, of each example maybe, take more room than all such sums: its peak is
    then at the end, where no sum is held any more, and all that these do is leave holes in the memory.
    """
    unchanged = dict.fromkeys(before_changes(graph.graph))
    norms = [node for node in unchanged if node.target is _LAYER_NORM]
    totals = dict.fromkeys(viewed(norm.all_input_nodes[0], SAME_ROWS)[0] for norm in norms)
    found = [total for total in totals if total in unchanged and _is_read_again(total)]
    saves = all(dtype_of(summand) == torch.float32 for total in found for summand in total.all_input_nodes)
    if saves or _bytes(_gradients(graph.graph)) <= _bytes(found):
        for total in found:
            _write_down(graph.graph, total)
        graph.recompile()


def _is_read_again(total: Node) -> bool:
    """Whether this is a sum, of a shape that is known, which the normalisation does not read alone."""
    return total.target is _ADD and dtype_of(total) is not None and len(total.users) > 1


def _gradients(graph: Graph) -> set[Node]:
    """All results, and rows that are gradients of one example each."""
    [output] = graph.find_nodes(op="output")
    added_up = graph.find_nodes(op="call_function", target=ADD_UP)
    return {*output.all_input_nodes, *(node.all_input_nodes[0] for node in added_up)}


def _bytes(nodes: Iterable[Node]) -> int:
    """How much memory the values take that are known."""
    values: list[Tensor] = [node.meta["val"] for node in nodes if dtype_of(node) is not None]
    return sum(value.numel() * value.element_size() for value in values)


def _write_down(graph: Graph, total: Node) -> None:
    """Asks for strides, those of rows one behind the other: the compiler then has to lay the sum out, and still fuses
    what reads it. Views of the sum are not told that it lies elsewhere, so no pass may ask them afterwards.
    """
    from torch._inductor.inductor_prims import force_stride_order  # slow to import

    users: list[Node] = list(total.users)
    ordered: Any = total.meta["val"].contiguous().stride()
    with graph.inserting_after(total):
        written = call(graph, force_stride_order, total, list(ordered))
    for user in users:
        user.replace_input_with(total, written)
