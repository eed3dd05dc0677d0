"""What two parts of a traced graph compute, computed once: sums, casts, and the statistics of normalisation.

GroupNorm's backward pass adds up g and g x over the positions of every channel, and so does the gradient of its weight
and bias for every example. As one operation the former hides its sums; written out, the two are the same nodes. Means
and deviations, which the gradient of a normalisation's weight needs again, are still there from the forward pass. So is
a lot that was gathered and cast for the first layer, whose weight's gradient needs it again. Only what costs less to
compute than to read is computed twice.
"""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tacit.gradients.graphs import (
    DETACHED,
    PARTS,
    RECTIFIED,
    SAME_ROWS,
    before_changes,
    call,
    dtype_of,
    has_rows_of,
    reading_of,
    replace,
    storage_of,
    use_instead,
    value_of,
    viewed,
    written_storages,
)
from tacit.gradients.kernels import CLEAR, HALF

_aten = torch.ops.aten
_BACKWARD, _VAR_MEAN = _aten.native_group_norm_backward.default, _aten.var_mean.correction
_GROUP_NORM, _LAYER_NORM = _aten.native_group_norm.default, _aten.native_layer_norm.default
_NORM = _aten.linalg_vector_norm.default
_CAST, _GATHER = _aten._to_copy.default, _aten.index_select.default
_RELU, _RELU_BACKWARD = _aten.relu.default, _aten.threshold_backward.default
_PRODUCTS = (_aten.mm.default, _aten.addmm.default, _aten.convolution.default)
_MERGED = (_CAST, _aten.mul.Tensor, _aten.reshape.default, _aten.sum.dim_IntList)


def share_sums(graph: GraphModule) -> None:
    """Writes GroupNorm's backward pass out in the graph, merges what is then there twice, and reuses what was found."""
    for node in [node for node in graph.graph.nodes if node.target is _BACKWARD]:
        if _can_be_written_out(node):
            _write_out(graph.graph, node)
    _merge(graph.graph)
    _reuse_casts(graph.graph)
    _measure_before_clearing(graph.graph)
    _reuse_statistics(graph.graph)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _can_be_written_out(node: Node) -> bool:
    """Only the input's gradient is asked for, and nothing is of half precision."""
    arguments: Sequence[Any] = node.args
    return list(arguments[9]) == [True, False, False] and all(map(_is_single, arguments[:4]))


def _is_single(node: Node) -> bool:
    return dtype_of(node) == torch.float32


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
    """One node for all that do the same."""
    seen: dict[str, Node] = {}
    for node in before_changes(graph):
        if node.target in _MERGED:
            same = seen.setdefault(repr((node.target, node.args, node.kwargs)), node)
            if same is not node:
                replace(node, same)


def _reuse_casts(graph: Graph) -> None:
    """Views of a lot that was cast as a whole, in place of later casts of its views: those would gather it once more.

    They share the memory of the first cast, so that clearing rows of the one clears those of the other: only where
    rows are the same, and as a cast would lay them out.
    """
    firsts: dict[tuple[Node, str], Node] = {}
    for node in [node for node in before_changes(graph) if node.target is _CAST]:
        source, views = viewed(node.all_input_nodes[0], SAME_ROWS)
        first = firsts.setdefault((source, repr(node.kwargs)), node)
        if first is not node and source.target is _GATHER and first.args == (source,):
            found = _seen_as(graph, first, views, node)
            if reading_of(found) == reading_of(node) and has_rows_of(found, first):
                use_instead(node, found)


def _measure_before_clearing(graph: Graph) -> None:
    """Norms of rectified products, and of gradients of such, that are cleared later on are taken of the products.

    Torch's compiler fuses no reader with what makes a tensor that is changed afterwards. Rectified once more on the
    way, the values are not read again: the backward pass, which it then fuses the norm with, reads the products. These
    are written down, so that both times the same numbers are rectified.
    """
    cleared = set().union(*map(written_storages, graph.find_nodes(op="call_function", target=CLEAR)))
    for norm in [node for node in before_changes(graph) if node.target is _NORM]:
        source, views = viewed(norm.all_input_nodes[0], SAME_ROWS | PARTS)
        if storage_of(source) in cleared:
            with graph.inserting_before(norm):
                again = _rectified_again(graph, source)
            if again is not None:
                norm.replace_input_with(norm.all_input_nodes[0], _seen_as(graph, again, views, norm))


def _rectified_again(graph: Graph, source: Node) -> Node | None:
    """The same numbers by other operations, which are not merged with the first ones; None for any other source.

    Gradients only of half precision: both results that they are taken of stay in memory for it.
    """
    if _is_rectified_product(source) and source.target is _RELU:
        return call(graph, _aten.clamp_min.default, source.all_input_nodes[0], 0)
    if source.target is _RELU_BACKWARD and source.args[2] == 0 and dtype_of(source) in HALF:
        grad, result = source.all_input_nodes[0], viewed(source.all_input_nodes[-1], DETACHED)[0]
        if grad.target in _PRODUCTS and _is_rectified_product(result):
            passed = call(graph, _aten.logical_not.default, call(graph, _aten.le.Scalar, result, 0))
            return call(graph, _aten.where.ScalarOther, passed, grad, 0.0)
    return None


def _is_rectified_product(node: Node) -> bool:
    return node.target is RECTIFIED or (node.target is _RELU and node.all_input_nodes[0].target in _PRODUCTS)


def _seen_as(graph: Graph, values: Node, views: Sequence[Node], before: Node) -> Node:
    with graph.inserting_before(before):
        for view in views:
            operation: Any = view.target
            values = graph.call_function(operation, (values, *view.args[1:]), view.kwargs)
            values.meta["val"] = value_of(values)
    return values


def _reuse_statistics(graph: Graph) -> None:
    """Takes means and deviations from the first normalisation of the same float32 values."""
    firsts: dict[tuple[Any, ...], Node] = {}
    for node in before_changes(graph):
        arguments: Sequence[Any] = node.args
        if node.target is _GROUP_NORM and _is_single(arguments[0]):
            firsts.setdefault((arguments[0], arguments[3], arguments[6]), node)
        elif node.target is _LAYER_NORM and _is_single(arguments[0]):
            first = firsts.setdefault((arguments[0], tuple(arguments[1]), arguments[4]), node)
            if first is not node and list(arguments[2:4]) == [None, None]:
                _normalise_by(graph, first, node)
        elif node.target is _VAR_MEAN and arguments[1:] == ([2, 3],) and node.kwargs == {"correction": 0}:
            values, examples, groups = _grouped(arguments[0])
            norm = firsts.get((values, examples, groups))
            if norm is not None:
                _take_statistics(graph, norm, node)


def _grouped(values: Node) -> tuple[Any, Any, Any]:
    """What values are a view of by examples and groups, and how many there are of each; nothing where they are not."""
    arguments: Sequence[Any] = values.args
    if values.target is not _aten.reshape.default or len(arguments[1]) != 4:
        return None, None, None
    return arguments[0], arguments[1][0], arguments[1][1]


def _statistics(graph: Graph, norm: Node) -> tuple[Node, Node]:
    """The mean, and one over the deviation."""
    with graph.inserting_after(norm):
        mean, inverse = (graph.call_function(operator.getitem, (norm, which)) for which in (1, 2))
    return mean, inverse


def _normalise_by(graph: Graph, first: Node, again: Node) -> None:
    """LayerNorm without weights, by the statistics of the first one."""
    mean, inverse = _statistics(graph, first)
    with graph.inserting_before(again):
        centred = graph.call_function(_aten.sub.Tensor, (again.args[0], mean))
        found = graph.call_function(_aten.mul.Tensor, (centred, inverse))
    for user in list(again.users):
        if user.args[1] == 0:
            replace(user, found)


def _take_statistics(graph: Graph, norm: Node, again: Node) -> None:
    """Mean and variance of GroupNorm's groups; the variance only where one over the deviation is made of it."""
    mean, inverse = _statistics(graph, norm)
    unchanged = set(before_changes(graph))
    for user in unchanged.intersection(again.users):
        if user.args[1] == 1:
            replace(user, mean)
            continue
        raised = [each for each in user.users if each.target is _aten.add.Tensor and each.args == (user, norm.args[7])]
        for root in [root for each in raised if not each.kwargs for root in each.users]:
            if root.target is _aten.rsqrt.default and root in unchanged:
                replace(root, inverse)
