"""Products of a lot's rows with few columns, taken from the records where they lie.

A compiled step gathers its lot and multiplies it by the first layer's weight. Where that has few columns, as in
logistic regression on a wide table, the products are a few sums over each row. Written as sums they are fused with the
gathering, and the lot, which is nearly all that such a step holds, is never written down.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from tacit.gradients.graphs import has_rows_of, is_dense, reading_of, replace, storage_of, written_storages
from tacit.gradients.kernels import CLEAR

_aten = torch.ops.aten
_GATHER = _aten.index_select.default
_PRODUCT, _PRODUCT_AND_BIAS = _aten.mm.default, _aten.addmm.default
_SPLIT = _aten.split.Tensor
_FUSED = (_aten.linalg_vector_norm.default, _SPLIT)  # sums already, and parts that sums are taken of
_COLUMNS = {"cuda": range(1, 5), "cpu": range(2, 5)}  # else the product is faster than the sums, with its copy


def read_rows_where_they_lie(graph: GraphModule) -> None:
    """Writes such products out as sums, where nothing else needs the rows that are gathered for them.

    In float32 alone: a sum rounds no more than the product that it stands for.
    """
    for rows in graph.graph.find_nodes(op="call_function", target=_GATHER):
        users = list(_users(graph.graph, rows))
        if _is_table(rows) and not _changes(graph.graph, rows) and _can_be_sums(users, rows):
            _write_out(graph.graph, rows, users)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _users(graph: Graph, rows: Node) -> Iterator[Node]:
    """What reads the rows or views of them and is no view itself, in order."""
    place = storage_of(rows)
    for node in graph.nodes:
        if storage_of(node) != place and any(storage_of(given) == place for given in node.all_input_nodes):
            yield node


def _changes(graph: Graph, rows: Node) -> bool:
    """Whether something writes to the rows, other than what clears them."""
    writers = (node for node in graph.nodes if storage_of(rows) in written_storages(node))
    return any(writer.target is not CLEAR for writer in writers)


def _is_table(rows: Node) -> bool:
    value = rows.meta["val"]
    return bool(value.dim() == 2 and value.dtype == torch.float32)


def _can_be_sums(users: Sequence[Node], rows: Node) -> bool:
    """Whether all users are sums or can be, and cleared rows are only added up: all else reads them as they were."""
    cleared = [place for place, user in enumerate(users) if user.target is CLEAR]
    before = users[: cleared[0]] if cleared else users
    after = users[len(before) :]
    readers = [user for user in before if user.target not in _FUSED]
    return (
        any(_multiplies(user, rows) for user in readers)
        and all(_multiplies(user, rows) or _adds_up(user, rows) for user in readers)
        and all(_clears(user, rows) or _adds_up(user, rows) for user in after)
    )


def _multiplies(node: Node, rows: Node) -> bool:
    """Whether this is a product of all rows with few columns."""
    if node.target not in (_PRODUCT, _PRODUCT_AND_BIAS) or node.kwargs:
        return False
    first, second = _factors(node)
    return _is_whole(first, rows) and _few(second.meta["val"], 1)


def _adds_up(node: Node, rows: Node) -> bool:
    """Whether this is a product of few lines of weights with all rows."""
    if node.target is not _PRODUCT:
        return False
    first, second = _factors(node)
    return _is_whole(second, rows) and _few(first.meta["val"], 0)


def _few(value: Tensor, along: int) -> bool:
    return value.shape[along] in _COLUMNS.get(value.device.type, ())


def _clears(node: Node, rows: Node) -> bool:
    if node.target is not CLEAR:
        return False
    cleared = node.all_input_nodes[0]
    value = cleared.meta["val"]
    return has_rows_of(cleared, rows) and value.numel() == rows.meta["val"].numel() and is_dense(value)


def _arguments(node: Node) -> Sequence[Any]:
    return node.args


def _factors(product: Node) -> tuple[Any, Any]:
    return _arguments(product)[-2], _arguments(product)[-1]


def _is_whole(view: Node, rows: Node) -> bool:
    """Whether a view has the rows' own shape, layout and type, and so their values."""
    return storage_of(view) == storage_of(rows) and reading_of(view) == reading_of(rows)


def _write_out(graph: Graph, rows: Node, users: Sequence[Node]) -> None:
    kept = rows  # those that were not cleared yet
    parts = [_arguments(user)[1] for user in users if user.target is _SPLIT]
    for user in users:
        with graph.inserting_before(user):
            if user.target is CLEAR:
                kept = _where(graph, _arguments(user)[1], kept)
                graph.erase_node(user)
            elif _multiplies(user, rows):
                replace(user, _products(graph, rows, user, min(parts, default=rows.meta["val"].shape[1])))
            elif _adds_up(user, rows):
                replace(user, _sums(graph, kept, _factors(user)[0]))


def _where(graph: Graph, keep: Any, rows: Node) -> Node:
    flags = graph.call_function(_aten.unsqueeze.default, (_settled(graph, keep), 1))
    return graph.call_function(_aten.where.ScalarOther, (flags, rows, 0.0))


def _products(graph: Graph, rows: Node, product: Node, size: int) -> Node:
    """One sum over every row for each column, and the bias where there is one.

    Norms are taken of parts of so many numbers. Sums of the same parts are fused with them, so that rows are read once.
    """
    second = _factors(product)[1]
    width, columns = second.meta["val"].shape
    found = []
    for start in range(0, width, size):
        part = _slice(graph, rows, 1, start, start + size)
        weights = _slice(graph, second, 0, start, start + size)
        each = [graph.call_function(_aten.select.int, (weights, 1, column)) for column in range(columns)]
        sums = [_weighted_sum(graph, part, one, over=1) for one in each]
        found.append(graph.call_function(_aten.stack.default, (sums, 1)))
    if product.target is _PRODUCT_AND_BIAS:
        found.append(_arguments(product)[0])
    return functools.reduce(lambda first, second: graph.call_function(_aten.add.Tensor, (first, second)), found)


def _slice(graph: Graph, values: Node, along: int, start: int, end: int) -> Node:
    return graph.call_function(_aten.slice.Tensor, (values, along, start, end))


def _sums(graph: Graph, rows: Node, lines: Node) -> Node:
    """The sum of the rows by each line of weights."""
    settled = _settled(graph, lines)
    sums = []
    for line in range(lines.meta["val"].shape[0]):
        weights = graph.call_function(_aten.select.int, (settled, 0, line))
        spread = graph.call_function(_aten.unsqueeze.default, (weights, 1))
        sums.append(_weighted_sum(graph, rows, spread, over=0))
    return graph.call_function(_aten.stack.default, (sums, 0))


def _settled(graph: Graph, values: Node) -> Node:
    """One value an example, written down: fused, they would be computed anew for every number of a row."""
    own = graph.call_function(_aten.clone.default, (values,))
    graph.call_function(torch.ops.tacit.settle_.default, (own,))
    return own


def _weighted_sum(graph: Graph, rows: Node, weights: Node, *, over: int) -> Node:
    weighted = graph.call_function(_aten.mul.Tensor, (rows, weights))
    return graph.call_function(_aten.sum.dim_IntList, (weighted, [over]))
