"""Questions about a traced graph, and the changes that its passes are made of.

Nodes are known by their values' memory: views of one tensor are one tensor to whoever writes to it.
"""

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from tacit.gradients.kernels import CLEAR

_aten = torch.ops.aten
RECTIFIED = _aten._addmm_activation.default
"""A product with a bias, and the ReLU of it."""
SAME_ROWS = frozenset({_aten.reshape.default, _aten.unsqueeze.default})
"""Views that keep rows apart, where the first dimension stays."""
PARTS, DETACHED = frozenset({_aten.select.int}), frozenset({_aten.detach.default})


def use_instead(copied: Node, source: Node) -> None:
    """What was copied in place of its copy; whatever was a view of the copy is known as one of the source."""
    place, graph = storage_of(copied), copied.graph
    replace(copied, source)
    for node in graph.nodes:
        if place in map(_storage, tree_leaves(node.meta.get("val"))):
            node.meta["val"] = value_of(node)


def value_of(node: Node) -> Any:
    """What an operation gives for the values that its arguments are known to have."""
    operation: Any = node.target
    arguments, options = map_arg((node.args, node.kwargs), lambda given: given.meta["val"])
    return operation(*arguments, **options)


def call(graph: Graph, operation: Any, *arguments: Any) -> Node:
    """A call whose value is known, where those of its arguments are."""
    node = graph.call_function(operation, arguments)
    node.meta["val"] = value_of(node)
    return node


def viewed(values: Node, kinds: Collection[object]) -> tuple[Node, list[Node]]:
    """What values are views of, of these kinds, and the views in order."""
    views: list[Node] = []
    while values.target in kinds:
        views.insert(0, values)
        values = values.all_input_nodes[0]
    return values, views


def dtype_of(node: Node) -> torch.dtype | None:
    """The type of a node's numbers; None where its value is not known, or is no tensor."""
    value = node.meta.get("val")
    return value.dtype if isinstance(value, Tensor) else None


def reading_of(view: Node) -> tuple[object, ...]:
    """How a view's numbers are read from memory."""
    value = view.meta["val"]
    return value.shape, value.stride(), value.storage_offset(), value.dtype, value.is_neg()


def has_rows_of(view: Node, whole: Node) -> bool:
    """Whether there are as many rows, as far apart: of the same memory, they are then the same."""
    value, rows = view.meta["val"], whole.meta["val"]
    return bool((value.shape[0], value.stride(0)) == (rows.shape[0], rows.stride(0)))


def replace(node: Node, found: Node) -> None:
    """Another node in the place of this one, which goes."""
    node.replace_all_uses_with(found)
    node.graph.erase_node(node)


def is_dense(value: Tensor) -> bool:
    """Whether every number has one place of its own and none lies between them."""
    expected = 1
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def written_storages(node: Node) -> set[object]:
    """The memory that an operation writes to, of what it is given."""
    if not is_mutable(node):
        return set()
    written: set[object] = set()
    for place, formal in enumerate(_schema(node).arguments):
        if formal.alias_info is not None and formal.alias_info.is_write:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(formal.name)
            written.update(storage_of(each) for each in (given if isinstance(given, list) else [given]))
    return written


def is_mutable(node: Node) -> bool:
    """Whether an operation changes what it is given."""
    return isinstance(node.target, torch._ops.OpOverload) and bool(_schema(node).is_mutable)


def before_changes(graph: Graph) -> Iterator[Node]:
    """The nodes up to the first that changes its arguments: until then, what reads the same values is the same.

    Those are left out that are changed themselves later on. Two that were one would then both be changed.
    """
    changed = _changed_storages(graph)
    for node in list(graph.nodes):
        if is_mutable(node):
            return
        if storage_of(node) not in changed:
            yield node


def _changed_storages(graph: Graph) -> set[object]:
    """What the model's operations write to.

    Clearing rows does not count: of what is cleared only weighted sums are still taken, which want it so.
    """
    nodes = (node for node in graph.nodes if node.target is not CLEAR)
    return set().union(*map(written_storages, nodes))


def on_gpu(graph: GraphModule) -> bool:
    """Whether the graph is given tensors of a GPU."""
    given = (node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder"))
    return any(isinstance(value, Tensor) and value.is_cuda for value in given)


def is_view(node: Node) -> bool:
    """Whether an operation returns memory that it was given."""
    returns = _schema(node).returns if isinstance(node.target, torch._ops.OpOverload) else ()
    return any(found.alias_info is not None for found in returns)


def _schema(node: Node) -> Any:
    operation: Any = node.target
    return operation._schema


def storage_of(node: object) -> object:
    """What tells the memory of a node's value from others; the node itself where that is not one tensor."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return _storage(value) if isinstance(value, Tensor) else node


def _storage(value: object) -> object:
    if isinstance(value, Tensor) and value.layout is torch.strided:
        return value.untyped_storage()._cdata
    return value
