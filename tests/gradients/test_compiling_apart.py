"""The compiler in a process of its own: libraries are kept, and what goes wrong there is made good here."""

import dataclasses
import io
import os
import pickle
import signal
import subprocess
import sys
import warnings
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from compiled_checks import BOUND, a_network, check_against_eager, cross_entropy, images
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.clipping import Flat
from tacit.core.errors import UnsupportedError
from tacit.gradients import ClippedGrad, clipped_grad, compiler_jobs, compiler_process, compiling, compiling_apart
from tacit.gradients.compiler_jobs import CompilerSettings, Job
from tacit.gradients.compiling import can_compile
from tacit.gradients.compiling_apart import can_compile_apart, compile_apart, has_room_apart

CPU = torch.device("cpu")
pytestmark = [
    pytest.mark.skipif(not can_compile(CPU) or sys.platform != "linux", reason="no compiler for C++ on Linux"),
]


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    return tmp_path / "programs"


def a_graph(factor: float = 2.0):
    x = torch.arange(6.0).reshape(2, 3)
    return make_fx(lambda x: [x * torch.tensor(factor), x.sum()], tracing_mode="fake")(x), [x]


def a_graph_with_parameter(value: float):
    """As where a loss function reads one that is not the model's."""
    weight = torch.nn.Parameter(torch.tensor(value), requires_grad=False)
    return make_fx(lambda x: [x * weight], tracing_mode="fake", _allow_non_fake_inputs=True)(torch.zeros(2, 3))


def a_grad() -> ClippedGrad:
    grad = clipped_grad(a_network(), cross_entropy, clipping=Flat(BOUND), engine="bookkeeping")
    grad.start_compiling(wait=True)
    return grad


def never(*arguments, **options):
    pytest.fail("another process was started")


def test_the_key_depends_on_the_code_that_improves_graphs(monkeypatch, tmp_path):
    """A library of before a fault was mended is not taken after it."""
    graph, inputs = a_graph()
    (tmp_path / "narrower").mkdir()
    keys = {compiler_jobs.Job.of(graph, inputs, {}).key()}
    for name in ("compiler_jobs.py", "tidying.py", "narrower/sums.py"):
        (tmp_path / name).write_text("changed", encoding="utf-8")
        monkeypatch.setattr(compiler_jobs, "__file__", str(tmp_path / "compiler_jobs.py"))
        compiler_jobs._own_code.cache_clear()
        keys.add(compiler_jobs.Job.of(graph, inputs, {}).key())
    monkeypatch.undo()
    compiler_jobs._own_code.cache_clear()
    assert len(keys) == 4
    assert compiler_jobs.Job.of(graph, inputs, {}).key() in keys


def test_the_key_depends_on_all_that_decides_about_the_library(monkeypatch, tmp_path):
    monkeypatch.setattr(compiling_apart, "_kept_libraries", lambda: tmp_path)
    keys = []

    def note(job, folder):
        keys.append(job.key())
        raise UnsupportedError("noted")

    monkeypatch.setattr(compiling_apart, "_compile", note)
    graph, (x,) = a_graph()
    threads = torch.get_num_threads()
    for variant in (
        (a_graph_with_parameter(1.0), [x], {}),
        (a_graph_with_parameter(1.02), [x], {}),
        (graph, [x], {}),
        (a_graph(3.0)[0], [x], {}),
        (make_fx(torch.neg)(x), [x], {}),
        (graph, [x.double()], {}),
        (graph, [x.t().contiguous().t()], {}),
        (graph, [x], {"layout_optimization": False}),
    ):
        with pytest.raises(UnsupportedError, match="noted"):
            compile_apart(*variant)
    for change, undo in (
        (lambda: torch.set_num_threads(threads + 1), lambda: torch.set_num_threads(threads)),
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
        (
            lambda: torch.use_deterministic_algorithms(True, warn_only=True),
            lambda: torch.use_deterministic_algorithms(False),
        ),
    ):
        change()
        try:
            with pytest.raises(UnsupportedError, match="noted"):
                compile_apart(graph, [x], {})
        finally:
            undo()
    assert len(keys) == len(set(keys)) == 11


def test_settings_are_taken_over_whole():
    before = CompilerSettings.now()
    other = dataclasses.replace(
        before, default_dtype=torch.float64, precision="high", deterministic=True, deterministic_warns=True
    )
    other = dataclasses.replace(other, products=())
    try:
        other.apply()
        assert dataclasses.replace(CompilerSettings.now(), products=()) == other
    finally:
        before.apply()
    assert CompilerSettings.now() == before


def test_precision_that_was_set_for_a_backend_alone_is_no_obstacle():
    """Torch then refuses to say what the precision of all is."""
    script = """
import torch
from tacit.gradients.compiler_jobs import CompilerSettings
torch.backends.cuda.matmul.fp32_precision = "tf32"
settings = CompilerSettings.now()
assert ("cuda", "fp32_precision", "tf32") in settings.products, settings
settings.apply()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


@pytest.mark.parametrize("mode", [0o777, 0o720])
def test_code_is_not_loaded_from_a_folder_that_others_can_write_to(cache, mode):
    cache.mkdir(parents=True)
    cache.chmod(mode)
    assert compiling_apart._kept_libraries() is None
    cache.chmod(0o700)
    assert compiling_apart._kept_libraries() == cache


def test_the_oldest_libraries_are_forgotten(cache, monkeypatch):
    monkeypatch.setattr(compiling_apart, "_KEPT", 2)
    for name in ("first", "second", "third"):
        (cache / name).mkdir(parents=True)
    compiling_apart._forget_oldest(cache)
    assert len(list(cache.iterdir())) == 2


def test_operators_of_the_users_own_are_compiled_here():
    assert can_compile_apart(a_graph()[0], CPU)

    @torch.library.custom_op("tacit_tests::own", mutates_args=())
    def own(values: torch.Tensor) -> torch.Tensor:
        return values + 1

    own.register_fake(torch.empty_like)
    assert not can_compile_apart(make_fx(own)(torch.ones(2)), CPU)


def test_a_full_gpu_keeps_programs_from_being_compiled_apart_and_not_from_being_read(monkeypatch):
    gpu, free = torch.device("cuda"), [compiling_apart._ROOM - 1]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 2**40))
    monkeypatch.setattr(compiling_apart, "_keeps_programs", lambda: True)
    assert can_compile_apart(a_graph()[0], gpu)
    assert not has_room_apart(gpu)
    assert has_room_apart(CPU)
    free[0] += 1
    assert has_room_apart(gpu)
    monkeypatch.setattr(compiling_apart, "_keeps_programs", lambda: False)
    assert not can_compile_apart(a_graph()[0], gpu)


def test_where_the_other_process_fails_this_one_compiles(cache, monkeypatch):
    fails = subprocess.CompletedProcess([], 1, b"", b"first line\nno such compiler")
    monkeypatch.setattr(compiling_apart.subprocess, "run", lambda *_, **__: fails)
    with pytest.raises(UnsupportedError, match="process failed: no such compiler"):
        compile_apart(*a_graph(), {})
    tried, real = [], compiling.compile_graph

    def compile_graph(trace, inputs, *, apart):
        tried.append(apart)
        return (lambda arguments: list(trace.graph(*arguments))) if not apart else real(trace, inputs, apart=True)

    monkeypatch.setattr(compiling, "compile_graph", compile_graph)
    check_against_eager(a_grad(), *images())
    assert tried == [True, False]


@pytest.mark.parametrize("large", [False, True])
def test_a_library_is_tried_in_the_process_that_made_it(large, monkeypatch, tmp_path):
    """A crash there is a failure of that process, and the one that trains goes on."""
    tried = []
    graph, (x,) = a_graph()
    job = Job.of(graph, [x], {})
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(pickle.dumps(job))))
    monkeypatch.setattr(torch._inductor, "aot_compile", lambda graph, inputs, options: None)
    monkeypatch.setattr(compiler_process, "load_library", lambda folder: tried.append(folder) or tried.append)
    monkeypatch.setattr(compiler_process, "_TRIED", 0 if large else x.nbytes)
    compiler_process.main(str(tmp_path))
    loaded, *runs = tried
    assert loaded == tmp_path  # also where the arguments are too large to run it: loading alone may crash
    assert [[bool(values.any()) for values in arguments] for arguments in runs] == ([] if large else [[False]])


@pytest.mark.parametrize("others", [False, True])
def test_headers_are_compiled_for_the_second_program_on(others, cache, monkeypatch, tmp_path):
    """They take longer than one program gains by them."""
    if others:
        (cache / "another").mkdir(parents=True)
    found = []
    graph, (x,) = a_graph()
    monkeypatch.setattr(torch._inductor, "aot_compile", lambda graph, inputs, options: found.append(options))
    monkeypatch.setattr(compiler_process, "load_library", lambda folder: lambda arguments: [])
    compiler_process.make_library(Job.of(graph, [x], {"layout_optimization": False}), tmp_path)
    [options] = found
    assert options["aot_inductor.precompile_headers"] is others
    assert options["layout_optimization"] is False


def test_where_the_other_process_crashed_it_is_not_started_again(cache, monkeypatch):
    started = []

    def crash(*arguments, **options):
        started.append(arguments)
        return subprocess.CompletedProcess([], -signal.SIGSEGV, b"", b"")

    monkeypatch.setattr(compiling_apart.subprocess, "run", crash)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="process failed: status -11"):
            compile_apart(*a_graph(), {})
    assert len(started) == 1


def test_the_compilers_process_ends_when_nobody_waits_for_it(monkeypatch):
    parents = iter([7, 7, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(compiler_process.time, "sleep", lambda seconds: None)
    with pytest.raises(SystemExit):
        compiler_process._end_with(7)
    assert next(parents, None) is None


READER = """
import pickle, sys, torch, torch._inductor
from torch._dynamo.utils import counters
from tacit.gradients.compiling_apart import CachedJob
torch.set_float32_matmul_precision("high")  # a setting that the other process has to take over
x = torch.arange(6.0).reshape(2, 3)
cached = CachedJob.of(pickle.loads(sys.stdin.buffer.read()))
cached.prepare()
doubled, total = cached.job.compile()(x)
torch.testing.assert_close(doubled, 2 * x)
assert total == 15 and counters["inductor"]["fxgraph_cache_hit"] == 1, counters
"""


def test_a_program_is_taken_from_the_cache_that_another_process_filled(tmp_path):
    """What keeps compiler and training apart on a GPU; a CPU's program is found in the same way."""
    torch.set_float32_matmul_precision("high")
    try:
        job = pickle.dumps(Job.of(*a_graph(), {"cpp.vec_isa_ok": True}))
    finally:
        torch.set_float32_matmul_precision("highest")
    places = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READER], input=job, check=True, env=os.environ | places, timeout=120
    )


def test_threads_take_short_turns_beside_a_compiler_and_ordinary_ones_after_it():
    before, seen = sys.getswitchinterval(), []

    class Spy:
        device = CPU

        def compile(self):
            seen.append(sys.getswitchinterval())
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        compiling._compile_within(Spy())
    assert seen[0] < before / 10
    assert sys.getswitchinterval() == before


def test_advice_of_the_compiler_is_no_failure_where_warnings_are_errors():
    def advising(module):
        def compile_it():
            warnings.warn_explicit("enable it for speed", UserWarning, "file.py", 1, module=module)
            return lambda x: [x]

        return mock.Mock(compile=compile_it, device=CPU)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiling._compile_within(advising("torch._inductor.compile_fx"))([torch.ones(1)]) == [1]
        with pytest.raises(UserWarning, match="enable it"):
            compiling._compile_within(advising("torch.nn.modules"))


def test_a_library_that_fails_is_no_reason_to_stop(monkeypatch):
    """It does not say why; the graph either gives the result, or the error that whoever halves chunks looks for."""

    def fails(arguments):
        raise RuntimeError("run_func_ failed")

    graph, (x,) = a_graph()
    torch.testing.assert_close(compiling._or_graph(fails, graph)([x])[0], 2 * x)

    def scarce(x):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(RuntimeError, match="allocate memory"):
        compiling._or_graph(fails, scarce)([x])


SCRIPT = """
import sys, torch
from tacit.clipping import Flat
from tacit.gradients import clipped_grad, compiling_apart
if sys.argv[1] == "kept":
    compiling_apart._compile = None  # nobody may call it
def grad_by(engine):
    torch.manual_seed(0)
    return clipped_grad(torch.nn.Linear(3, 2), lambda m, x: m(x).square().sum(1), clipping=Flat(1.0), engine=engine)
grad, x = grad_by("bookkeeping"), torch.arange(12.0).reshape(4, 3)
grad.start_compiling(wait=True)
for _ in range(2):
    found = grad(x).grads
assert grad.compilation == "compiled", grad.compilation
for name, expected in grad_by("reference")(x).grads.items():
    torch.testing.assert_close(found[name], expected)
assert "torch._inductor.compile_fx" not in sys.modules
"""


def test_a_library_is_kept_for_later_runs_and_training_does_not_import_the_compiler(cache):
    """The memory that it takes is why it runs apart."""
    for turn in ("new", "kept"):
        subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT, turn], check=True)
        assert len(list(cache.iterdir())) == 1
