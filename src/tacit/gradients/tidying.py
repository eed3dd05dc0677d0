"""Copies that a traced graph can do without: eager operations needed them, its compiled code does not."""

import copy

import torch
from torch.fx import GraphModule, Node

from tacit.gradients.graphs import is_dense, is_view, replace, storage_of, use_instead, written_storages
from tacit.gradients.kernels import CLEAR

_aten = torch.ops.aten
_NORMS = (_aten.native_group_norm.default, _aten.native_group_norm_backward.default)


def clear_rows_in_place(graph: GraphModule) -> None:
    """Rows are cleared in copies of tensors; those that the graph made itself are now cleared where they are.

    Nothing reads such rows afterwards but the weighted sums, which want them cleared. What was given to the graph, such
    as a user's batch, stays as it is.
    """
    given = _given(graph)
    for cleared in _calls(graph, CLEAR):
        copied = cleared.all_input_nodes[0]
        source = copied.all_input_nodes[0] if copied.target is _aten.clone.default else None
        if source is not None and storage_of(source) not in given and is_dense(source.meta["val"]):
            use_instead(copied, source)
    graph.recompile()


def leave_given_rows(graph: GraphModule) -> None:
    """Rows of tensors that were given to the graph are not cleared, for whoever knows that these are finite.

    They meet weights of zero in a product, which is zero then.
    """
    given = _arguments(graph)
    for cleared in _calls(graph, CLEAR):
        copied = cleared.all_input_nodes[0]
        if copied.target is _aten.clone.default and storage_of(copied.all_input_nodes[0]) in given:
            graph.graph.erase_node(cleared)
            use_instead(copied, copied.all_input_nodes[0])
    graph.recompile()


def without_layout_copies(graph: GraphModule) -> GraphModule:
    """The same graph where normalisation reads the layout that convolutions write.

    Torch's own kernel wants the channels first on a GPU and copies for it; compiled code takes any layout.
    """
    changed = copy.deepcopy(graph)
    written = set().union(*map(written_storages, changed.graph.nodes))
    for copied in _calls(changed, _aten.clone.default):
        first = copied.kwargs.get("memory_format") is torch.contiguous_format
        source = copied.all_input_nodes[0]
        if first and all(user.target in _NORMS for user in copied.users) and storage_of(source) not in written:
            replace(copied, source)
    for view in _calls(changed, _aten.view.default):
        view.target = _aten.reshape.default  # of a layout that may now be another one
    changed.recompile()
    return changed


def _given(graph: GraphModule) -> set[object]:
    """The memory of its arguments and of tensors that the model holds: what the graph did not make itself."""
    given = _arguments(graph)
    for held in graph.graph.find_nodes(op="get_attr"):  # whose memory is known by its views alone
        given.update(storage_of(node) for node in (held, *filter(is_view, held.users)))
    return given


def _arguments(graph: GraphModule) -> set[object]:
    return {storage_of(node) for node in graph.graph.find_nodes(op="placeholder")}


def _calls(graph: GraphModule, target: object) -> list[Node]:
    return [node for node in graph.graph.nodes if node.op == "call_function" and node.target is target]
