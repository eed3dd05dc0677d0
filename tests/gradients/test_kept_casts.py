"""Casts to half precision stay where a compiler would drop one that is followed by a cast back."""

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients.kept_casts import keep_casts

CAST = torch.ops.aten._to_copy.default


def casts_of_casts(graph: GraphModule) -> int:
    """What the pattern of torch's compiler looks for."""
    return sum(node.target is CAST and node.all_input_nodes[0].target is CAST for node in graph.graph.nodes)


def check_kept(function, *inputs: Tensor) -> GraphModule:
    """The graph with its casts kept, which computes what it did."""
    graph = make_fx(function)(*inputs)
    assert casts_of_casts(graph) > 0
    expected = graph(*inputs)
    keep_casts(graph)
    assert casts_of_casts(graph) == 0
    assert torch.equal(graph(*inputs), expected)
    return graph


def test_a_cast_back_reads_through_a_view():
    check_kept(lambda x: x.bfloat16().float() + x.half().double(), torch.rand(3, 4))
    check_kept(lambda x: x.bfloat16().float(), torch.rand(()))


def test_products_read_the_cast_itself():
    def both(x: Tensor, y: Tensor) -> Tensor:
        rounded = x.bfloat16()
        return (rounded @ y.bfloat16()).float() + rounded.float()

    graph = check_kept(both, torch.rand(3, 3), torch.rand(3, 3))
    (product,) = (node for node in graph.graph.nodes if node.target is torch.ops.aten.mm.default)
    assert [source.target for source in product.all_input_nodes] == [CAST, CAST]
    assert len(graph.graph.find_nodes(op="call_function", target=torch.ops.aten.unsqueeze.default)) == 1


def test_what_writes_to_rounded_values_writes_to_them():
    def written(x: Tensor) -> Tensor:
        rounded = x.bfloat16()
        before = rounded.float()
        rounded.mul_(2)
        return before + rounded.float()

    graph = check_kept(written, torch.rand(5))
    (writer,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.mul_.Tensor)
    assert writer.all_input_nodes[0].target is CAST


def test_casts_that_round_nothing_stay_as_they_are():
    graph = make_fx(lambda x: x.double().float())(torch.rand(2))
    keep_casts(graph)
    assert casts_of_casts(graph) == 1
