"""On a GPU another process compiles the step, and this one finds it in torch's cache."""

import pytest
import torch
from compiled_checks import BOUND, a_network, check_equal, cross_entropy, eager_twin, images
from torch._dynamo.utils import counters

from tacit.clipping import Flat
from tacit.gradients import clipped_grad, compiling_apart
from tacit.gradients.compiling import can_compile, wait_for_compiler

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or not can_compile(torch.device("cuda")), reason="no GPU with Triton"
)


def test_a_step_is_compiled_by_another_process_while_eager_ones_go_on(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    counters.clear()
    grad = clipped_grad(a_network().cuda(), cross_entropy, clipping=Flat(BOUND), engine="bookkeeping")
    grad.start_compiling(wait=False)
    x, y = (part.cuda() for part in images())
    expected = eager_twin(grad)(x, y)
    check_equal(grad(x, y), expected)
    assert grad.compilation.startswith("eager")
    wait_for_compiler()
    for _ in range(3):  # compared with the eager step, captured, replayed
        check_equal(grad(x, y), expected, tolerance=1e-3)
    assert grad.compilation == "compiled, in one CUDA graph"
    assert counters["inductor"]["fxgraph_cache_hit"] == 1


def test_who_waits_for_a_program_that_another_process_has_compiled_finds_it_too(monkeypatch, tmp_path):
    """As a second model of the same kind does, after one that was trained while its step was compiled.

    So does one for which memory has no room for another process.
    """
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x, y = (part.cuda() for part in images())
    for wait, room in ((False, compiling_apart._ROOM), (True, compiling_apart._ROOM), (False, 2**62)):
        monkeypatch.setattr(compiling_apart, "_ROOM", room)
        counters.clear()
        grad = clipped_grad(a_network().cuda(), cross_entropy, clipping=Flat(BOUND), engine="bookkeeping")
        grad.start_compiling(wait=wait)
        grad(x, y)
        wait_for_compiler()
        grad(x, y)
        assert grad.compilation.startswith("compiled")
        assert counters["inductor"]["fxgraph_cache_hit"] == 1
        assert counters["inductor"]["fxgraph_cache_miss"] == 0
