"""Keeps torch's compiler, before 2.13, from dropping a cast to half precision and back, which rounds.

One of its patterns takes such a pair of casts for pointless. A norm would then be taken of numbers that were not
rounded yet, and a product of the rounded ones. The pass runs when all operations have been decomposed, right before the
patterns: whoever makes a cast, it is there by now.
"""

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph

from tacit.gradients.kernels import HALF

_CAST = torch.ops.prims.convert_element_type.default


class KeptCasts(CustomGraphPass):
    """Puts two views between every cast to half precision and all that reads it, so that no cast is next to it.

    A view costs nothing, and the compiler's own search for views that do nothing does not look at pairs of them.
    """

    def __call__(self, graph: Graph) -> None:
        """Changes the graph."""
        for cast in graph.find_nodes(op="call_function", target=_CAST):
            if cast.args[1] in HALF and cast.users:
                readers = list(cast.users)
                with graph.inserting_after(cast):
                    wider = graph.call_function(torch.ops.aten.unsqueeze.default, (cast, 0))
                with graph.inserting_after(wider):
                    same = graph.call_function(torch.ops.aten.squeeze.dim, (wider, 0))
                wider.meta["val"] = cast.meta["val"].unsqueeze(0)
                same.meta["val"] = cast.meta["val"]
                for reader in readers:
                    reader.replace_input_with(cast, same)

    def uuid(self) -> bytes:
        """What the compiler's cache knows programs by that went through this pass."""
        identity: bytes = get_hash_for_files((__file__,))
        return identity

    def __repr__(self) -> str:
        return f"KeptCasts({self.uuid().hex()[:16]})"
