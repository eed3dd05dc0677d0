"""Copies are dropped from traced graphs where nothing needs them, and only there."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients.graphs import storage_of
from tacit.gradients.kernels import zero_rows_
from tacit.gradients.tidying import clear_rows_in_place, without_layout_copies

CLONE = torch.ops.aten.clone.default
KEEP = torch.tensor([True, False, True])


def traced(function: Callable[..., Tensor], *inputs: Tensor) -> GraphModule:
    return make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)


def clones(graph: GraphModule) -> int:
    return len(graph.graph.find_nodes(op="call_function", target=CLONE))


def test_rows_of_the_graphs_own_tensors_are_cleared_where_they_are() -> None:
    values = torch.randn(3, 4)
    graph = traced(lambda x, keep: zero_rows_((2 * x).clone(), keep) + 1, values, KEEP)
    clear_rows_in_place(graph)
    assert clones(graph) == 0
    assert torch.equal(graph(values, KEEP), torch.where(KEEP[:, None], 2 * values, 0) + 1)


def test_views_of_a_copy_are_known_as_views_of_what_was_copied() -> None:
    """Whoever asks who reads a tensor, itself or by a view, finds them all."""

    def function(x: Tensor, keep: Tensor) -> Tensor:
        first, rest = zero_rows_((2 * x).clone(), keep).view(3, 2, 2).split(1, 1)
        return first + rest.view(3, 1, 2)

    values = torch.randn(3, 4)
    graph = traced(function, values, KEEP)
    clear_rows_in_place(graph)
    (doubled,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    (total,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    assert [storage_of(part) for part in total.all_input_nodes] == [storage_of(doubled)] * 2
    torch.testing.assert_close(graph(values, KEEP), function(values, KEEP))


def test_what_was_given_to_the_graph_stays_as_it_is() -> None:
    values = torch.randn(3, 2, 2)
    before = values.clone()
    graph = traced(lambda x, keep: zero_rows_(x.flatten(1).clone(), keep), values, KEEP)
    clear_rows_in_place(graph)
    assert torch.equal(graph(values, KEEP), torch.where(KEEP[:, None], values.flatten(1), 0))
    assert torch.equal(values, before)


def test_tensors_that_the_model_holds_stay_as_they_are() -> None:
    """They would be read again in the next step."""
    held = torch.randn(3, 4)
    before = held.clone()
    graph = traced(lambda x, keep: x + zero_rows_(held.view(3, 4).clone(), keep), torch.zeros(3, 4), KEEP)
    clear_rows_in_place(graph)
    for _ in range(2):
        assert torch.equal(graph(torch.zeros(3, 4), KEEP), torch.where(KEEP[:, None], before, 0))
    assert torch.equal(held, before)


def test_a_copy_of_what_is_changed_later_stays() -> None:
    def function(x: Tensor) -> Tensor:
        own = 2 * x
        copied = own.clone(memory_format=torch.contiguous_format)
        own.mul_(3).add_(1)
        return F.group_norm(copied, 2, eps=0.1) + own

    values = torch.randn(3, 4, 5, 6)
    torch.testing.assert_close(without_layout_copies(traced(function, values))(values), function(values))


def test_rows_that_share_their_memory_are_cleared_in_a_copy() -> None:
    values = torch.randn(4)
    graph = traced(lambda x, keep: zero_rows_((2 * x).expand(3, 4).clone(), keep), values, KEEP)
    clear_rows_in_place(graph)
    assert torch.equal(graph(values, KEEP), torch.where(KEEP[:, None], 2 * values, 0))


def normalised(x: Tensor) -> Tensor:
    """As on a GPU: the channels come first for the normalisation, and the rest of the model flattens what it gives."""
    return F.group_norm(x.contiguous(), 2).view(len(x), -1)


def test_normalisation_reads_the_layout_that_it_finds() -> None:
    images = torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last)
    graph = traced(normalised, images)
    assert clones(graph) == 1
    tidied = without_layout_copies(graph)
    assert clones(tidied) == 0
    assert clones(graph) == 1  # the first one is left as it was
    torch.testing.assert_close(tidied(images), normalised(images))


def test_a_copy_that_others_read_stays() -> None:
    images = torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last)

    def both(x: Tensor) -> Tensor:
        first = x.contiguous()
        return F.group_norm(first, 2) + first.view(3, 4, 30)[:, :, 0, None, None]

    graph = without_layout_copies(traced(both, images))
    assert clones(graph) == 1
    torch.testing.assert_close(graph(images), both(images))
