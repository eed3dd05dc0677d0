"""Casts to half precision stay where a compiler drops such a cast and the one back."""

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.gradients.kept_casts import KeptCasts

_CAST = torch.ops.prims.convert_element_type.default


def decomposed(function, *inputs):
    from torch._inductor.decomposition import select_decomp_table

    return make_fx(function, decomposition_table=select_decomp_table(), tracing_mode="fake")(*inputs)


def there_and_back(x):
    half = x.bfloat16()
    return half.float(), half.view(half.shape).float(), half @ half.t()


def within_an_operation(x):
    return torch.nn.functional.gelu(x.bfloat16()).float()


def dropped(graph):
    """What the compiler's pattern finds: casts of what was cast to half precision."""
    casts = graph.graph.find_nodes(op="call_function", target=_CAST)
    half = [cast for cast in casts if cast.args[1] in (torch.bfloat16, torch.float16)]
    return [cast for cast in casts if cast.args[0] in half]


@pytest.mark.parametrize("function", [there_and_back, within_an_operation])
def test_no_cast_reads_a_cast_to_half_precision(function):
    x = torch.randn(8, 8)
    graph = decomposed(function, x)
    assert dropped(graph)
    before = copy.deepcopy(graph)
    KeptCasts()(graph.graph)
    graph.graph.lint()
    graph.recompile()
    assert not dropped(graph)
    for node in graph.graph.find_nodes(op="call_function", target=_CAST):
        assert node.args[1] != torch.bfloat16 or all(
            user.target is torch.ops.aten.unsqueeze.default for user in node.users
        )
    found, expected = graph(x), before(x)
    for one, two in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected), strict=True):
        assert torch.equal(one, two)


def test_the_compilers_cache_knows_the_pass_and_another_process_takes_it():
    first, second = KeptCasts(), pickle.loads(pickle.dumps(KeptCasts()))
    assert isinstance(first, CustomGraphPass)
    assert first.uuid() == second.uuid()
    assert repr(first) == repr(second)  # by which a job is known


@pytest.mark.slow  # half a minute for what a torch of before 2.13 did
def test_a_pattern_that_drops_such_casts_finds_none(tmp_path):
    """Torch's own of before 2.13, put back into this one: in a process of its own, since it stays there."""
    command = [sys.executable, str(Path(__file__).with_name("dropping_casts.py"))]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (drops, error), kept = json.loads(done.stdout)
    assert drops > 0
    assert error > 1e-3
    assert kept == [0, 0]
