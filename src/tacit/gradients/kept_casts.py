"""Casts to half precision that a compiler is not to drop: the bound on norms rests on what they round away.

The compilers of torch before 2.13 take a cast to half precision and back to float32 for none at all, by one pattern
among many that make programs faster. So all who would cast back get the rounded values by way of a view that no pattern
looks through, and which costs nothing.
"""

import torch
from torch.fx import GraphModule, Node

from tacit.gradients.tidying import is_mutable

_HALF = (torch.bfloat16, torch.float16)
# Which take half precision as it is.
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "convolution_backward")


def keep_casts(graph: GraphModule) -> None:
    """Has every operation read rounded values through a view of them, but for products and what writes to them."""
    for cast in [node for node in graph.graph.nodes if _rounds(node)]:
        readers = [user for user in cast.users if not _is_product(user) and not is_mutable(user)]
        if not readers:
            continue
        with graph.graph.inserting_after(cast):
            lifted = graph.graph.call_function(torch.ops.aten.unsqueeze.default, (cast, 0))
        with graph.graph.inserting_after(lifted):
            view = graph.graph.call_function(torch.ops.aten.squeeze.dim, (lifted, 0))
        for reader in readers:
            reader.replace_input_with(cast, view)
    graph.recompile()


def _rounds(node: Node) -> bool:
    """Whether a node casts to half precision, from any other or from what is not known."""
    if node.target is not torch.ops.aten._to_copy.default or node.kwargs.get("dtype") not in _HALF:
        return False
    source = node.all_input_nodes[0].meta.get("val")
    return source is None or source.dtype not in _HALF


def _is_product(node: Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target.overloadpacket.__name__ in _PRODUCTS
