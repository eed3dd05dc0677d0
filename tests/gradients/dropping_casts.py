"""Compiles with the pattern of an older torch that takes a cast to half precision and back for pointless.

Prints how often it was found, and how far the compiled results are from the eager ones: without the pass that hides
such casts, and with it.
"""

import json
import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch._inductor.fx_passes import joint_graph
from torch._inductor.pattern_matcher import CallFunction, KeywordArg, Match, register_graph_pattern
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients.kept_casts import KeptCasts

_CAST = torch.ops.prims.convert_element_type.default
_found = []


@register_graph_pattern(
    CallFunction(_CAST, CallFunction(_CAST, KeywordArg("arg"), KeywordArg("dtype1")), KeywordArg("dtype2")),
    pass_dict=joint_graph.patterns,
)
def drop(match: Match, arg: torch.fx.Node, dtype1: torch.dtype, dtype2: torch.dtype) -> None:
    """What the older compiler does."""
    node = match.output_node()
    direct = match.graph.call_function(_CAST, (arg, dtype2))
    direct.meta.update(node.meta)
    node.replace_all_uses_with(direct)
    match.erase_nodes()
    _found.append(dtype1)


def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Casts that stand in the graph, with a view between them that does nothing, and casts that operations make."""
    half = x.bfloat16()
    return half.float() + 1, half.view(half.shape).float() + 2, F.gelu(half).float(), F.layer_norm(half, [8]).float()


def drops_and_error(options: dict[str, Any]) -> tuple[int, float]:
    """What compiling with these options does."""
    _found.clear()
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    graph = make_fx(function, tracing_mode="fake")(x)
    program = torch._inductor.compile(graph, [x], {"emulate_precision_casts": True, **options})
    errors = [float((one - two).abs().max()) for one, two in zip(program(x), function(x), strict=True)]
    return sum(dtype == torch.bfloat16 for dtype in _found), max(errors)


if __name__ == "__main__":
    sys.stdout.write(json.dumps([drops_and_error({}), drops_and_error({"joint_custom_pre_pass": KeptCasts()})]))
