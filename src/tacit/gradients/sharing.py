"""Sums that two parts of a traced graph take, taken once.

GroupNorm's backward pass adds up g and g x over the positions of every channel, and so does the gradient of its weight
and bias for every example. As one operation the former hides its sums; written out, the two are the same nodes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

_aten = torch.ops.aten
_BACKWARD = _aten.native_group_norm_backward.default
_MERGED = (_aten.mul.Tensor, _aten.reshape.default, _aten.sum.dim_IntList)


def share_sums(graph: GraphModule) -> None:
    """Writes GroupNorm's backward pass out in the graph and merges what is then there twice."""
    for node in [node for node in graph.graph.nodes if node.target is _BACKWARD]:
        if _can_be_written_out(node):
            _write_out(graph.graph, node)
    _merge(graph.graph)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _can_be_written_out(node: Node) -> bool:
    """Only the input's gradient is asked for, and nothing is of half precision."""
    arguments: Sequence[Any] = node.args
    values = [argument.meta.get("val") for argument in arguments[:4]]
    return list(arguments[9]) == [True, False, False] and all(
        isinstance(value, Tensor) and value.dtype == torch.float32 for value in values
    )


def _write_out(graph: Graph, node: Node) -> None:
    r"""With :math:`\hat x = (x - m) r`, weights w and averages over a group:
    :math:`dx = r (w g - \overline{w g} - \hat x \, \overline{w g \hat x})`, from the sums of g x and of g.
    """
    arguments: Sequence[Any] = node.args
    grad, values, mean, rstd, weight, examples, channels, positions, groups = arguments[:9]
    each = channels // groups

    def call(target: Any, *arguments: Any) -> Node:
        return graph.call_function(target, arguments)

    def by_group(sums: Node) -> Node:
        weighted = sums if weight is None else call(_aten.mul.Tensor, sums, call(_aten.unsqueeze.default, weight, 0))
        return call(_aten.sum.dim_IntList, call(_aten.reshape.default, weighted, [examples, groups, each]), [2])

    def over_positions(tensor: Node) -> Node:
        flat = call(_aten.reshape.default, tensor, [examples, channels, positions])
        return call(_aten.sum.dim_IntList, flat, [2])

    def spread(tensor: Node) -> Node:
        return call(_aten.reshape.default, tensor, [examples, groups, 1, 1])

    with graph.inserting_before(node):
        products = by_group(over_positions(call(_aten.mul.Tensor, grad, values)))
        sums = by_group(over_positions(grad))
        share = call(_aten.mul.Tensor, rstd, 1.0 / (positions * each))
        centred = call(_aten.sub.Tensor, call(_aten.mul.Tensor, sums, mean), products)
        cube = call(_aten.mul.Tensor, call(_aten.mul.Tensor, rstd, rstd), share)
        slope = call(_aten.mul.Tensor, centred, cube)
        shift = call(_aten.add.Tensor, call(_aten.mul.Tensor, slope, mean), call(_aten.mul.Tensor, sums, share))
        factor = spread(rstd)
        if weight is not None:
            factor = call(_aten.mul.Tensor, factor, call(_aten.reshape.default, weight, [1, groups, each, 1]))
        shape = [examples, groups, each, positions]
        first = call(_aten.mul.Tensor, call(_aten.reshape.default, grad, shape), factor)
        second = call(_aten.mul.Tensor, call(_aten.reshape.default, values, shape), spread(slope))
        moved = call(_aten.sub.Tensor, call(_aten.add.Tensor, first, second), spread(shift))
        result = call(_aten.reshape.default, moved, list(values.meta["val"].shape))
    for user in list(node.users):
        if user.args[1] == 0:
            user.replace_all_uses_with(result)
        graph.erase_node(user)
    graph.erase_node(node)


def _merge(graph: Graph) -> None:
    """One node for all that do the same, up to the first that changes its arguments."""
    seen: dict[str, Node] = {}
    for node in list(graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            return
        if node.target in _MERGED:
            same = seen.setdefault(repr((node.target, node.args, node.kwargs)), node)
            if same is not node:
                node.replace_all_uses_with(same)
                graph.erase_node(node)
