"""A layer and the ReLU after it as one kernel on a GPU: the product is rectified before it is written.

Torch's compiler leaves the product to a library, writes it, reads it and writes it once more rectified. The library can
rectify by itself. Nothing else needs the product: the backward pass of a ReLU is told by its result.
"""

import torch
from torch.fx import GraphModule, Node

from tacit.gradients.graphs import RECTIFIED, before_changes, replace

_aten = torch.ops.aten
_PRODUCT, _RELU = _aten.addmm.default, _aten.relu.default
_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def rectify_at_once(graph: GraphModule) -> None:
    """Takes products with a bias together with the ReLU that alone reads them; in half precision both ways round once,
    and to the same numbers.
    """
    graph.graph.eliminate_dead_code()  # views of products that nobody reads are readers too
    for relu in [node for node in before_changes(graph.graph) if node.target is _RELU]:
        product = relu.all_input_nodes[0]
        if product.target is _PRODUCT and len(product.users) == 1 and _is_plain(product):
            with graph.graph.inserting_before(relu):
                both = graph.graph.call_function(RECTIFIED, product.args)
            both.meta["val"] = relu.meta["val"]
            replace(relu, both)
            graph.graph.erase_node(product)
    graph.recompile()


def _is_plain(product: Node) -> bool:
    """A bias for each column, and no factors."""
    value, bias = product.meta["val"], product.all_input_nodes[0].meta["val"]
    return value.dtype in _TYPES and bias.shape == value.shape[1:] and not product.kwargs
