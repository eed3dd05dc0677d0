"""From a traced clipped sum to machine code, by inductor.

What was compiled stays on disk, so that a later run with the same model and shapes starts at once.
"""

import contextlib
import functools
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from tacit.gradients.compiler_jobs import Job
from tacit.gradients.compiling_apart import CachedJob, can_compile_apart, compile_apart, has_room_apart
from tacit.gradients.graphs import on_gpu
from tacit.gradients.kept_memory import keep_freed_memory
from tacit.gradients.narrow_products import read_rows_where_they_lie
from tacit.gradients.rectifying import rectify_at_once
from tacit.gradients.sharing import share_sums
from tacit.gradients.tidying import without_layout_copies
from tacit.gradients.tracing import Program, Trace
from tacit.gradients.writing_down import write_sums_down

_ONE_AT_A_TIME = threading.Lock()
_KEEPS_CASTS = "2.13"  # the torch whose compiler does so where it is told to round
# Around a normalisation a GPU computes a chain of operations once more sooner than it writes and reads what comes of
# it. Steps of rounding count as operations too, and the compiler's limit of 30 cuts one of half precision in pieces.
# Where nothing is normalised, longer chains gain nothing, and cost a small CNN some time.
_LONG_CHAINS = {
    "realize_opcount_threshold": 400,
    "realize_reads_threshold": 8,
    "realize_acc_reads_threshold": 30,
}
# Where a step is over in a tenth of a millisecond, a launch is a part of it. What does not wait for each other then
# shares one. In longer programs that gains nothing, and holds memory for what waits for its company. So short a step
# also finds most numbers in the GPU's cache. The compiler times its kernels without them there, and then may choose
# blocks that take half as long again; the blocks that it takes untimed are the better ones.
_SHORT_PROGRAM = {"combo_kernels": True, "triton.autotune_pointwise": False}
_SHORT = 300  # nodes of the traced graph
_TURN = 1e-4  # seconds, after which a compiler in the background lets the training go on


def can_compile(device: torch.device) -> bool:
    """Whether there is a compiler for this device: Triton for GPUs, one for C++ on the CPU."""
    if device.type == "cuda":
        from torch.utils._triton import has_triton  # torch does not import it by itself

        return bool(has_triton())
    compilers = (os.environ.get("CXX"), "g++", "clang++")
    return device.type == "cpu" and any(name and shutil.which(name) for name in compilers)


def improved(graph: GraphModule) -> GraphModule:
    """The same function as a graph that compiles into faster code."""
    changed = without_layout_copies(graph)
    if on_gpu(changed):
        rectify_at_once(changed)
    share_sums(changed)
    read_rows_where_they_lie(changed)
    if on_gpu(changed):
        write_sums_down(changed)  # the last: see there
    return changed


def compile_graph(trace: Trace, inputs: Sequence[Tensor], *, apart: bool) -> Program:
    """Machine code for one shape; on a CPU by a process ``apart``, or within this one."""
    if inputs[0].device.type == "cpu":
        keep_freed_memory()
    if apart:
        return _or_graph(compile_apart(trace.graph, inputs, _options(trace, inputs[0].device)), trace.graph)
    try:
        return _compile_within(_job(trace, inputs))
    except Exception:  # of whatever kind: all that can be done without, and a real fault comes again
        return _compile_within(Job.of(trace.graph, inputs, _needed_options(trace)))


def _job(trace: Trace, inputs: Sequence[Tensor]) -> Job:
    with torch.no_grad():
        return Job.of(improved(trace.graph), inputs, _options(trace, inputs[0].device))


def _compile_within(job: Job) -> Program:
    _take_no_advice()
    with _short_turns(), as_traced(job.device):
        compiled = job.compile()

    def call(arguments: list[Tensor]) -> list[Tensor]:
        with as_traced(arguments[0].device):
            return list(compiled(*arguments))

    return call


@contextlib.contextmanager
def as_traced(device: torch.device) -> Iterator[None]:
    """Operations as they stand in a traced graph: none is recorded, and where a user has autocast on, none is cast.

    Its casts are in the graph already. What is float32 there would be cast once more, clipped sums among them.
    """
    kind = device.type
    casts = torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else contextlib.nullcontext()
    with torch.no_grad(), casts:
        yield


def _take_no_advice() -> None:
    """What torch's compiler warns of is advice about speed; where warnings are errors it would fail by it.

    For good, since warnings cannot be caught for a while in one thread alone.
    """
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\._inductor")


@contextlib.contextmanager
def _short_turns() -> Iterator[None]:
    """Has threads take shorter turns for a while, in the whole process.

    Torch gives the interpreter away in every operation. A compiler, which hardly ever does, would keep it for 5 ms each
    time, and an eager step of a thousand operations would take seconds.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _TURN))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _or_graph(library: Program, graph: GraphModule) -> Program:
    """A library only says that it failed; the graph then finds out why, such as that memory has run out."""

    def call(arguments: list[Tensor]) -> list[Tensor]:
        with as_traced(arguments[0].device):
            try:
                return library(arguments)
            except RuntimeError:
                return list(graph(*arguments))

    return call


def _needed_options(trace: Trace) -> dict[str, Any]:
    """What the bound on norms rests on: every operation of half precision rounds its result, as eager ones do.

    Else fused code takes a norm of numbers that were not rounded yet, and a product takes the rounded ones.
    """
    if not trace.half_precision:
        return {}
    needed: dict[str, Any] = {"emulate_precision_casts": True}
    if torch.__version__ < _KEEPS_CASTS:
        from tacit.gradients.kept_casts import KeptCasts  # which imports the compiler

        needed["joint_custom_pre_pass"] = KeptCasts()
    return needed


def _options(trace: Trace, device: torch.device) -> dict[str, Any]:
    """What programs need, and what makes them faster, or sooner there, which can be done without.

    Convolutions on a GPU like the channels last. On a CPU they do not care, and what stands between them is vectorised
    along the positions: a group of channels is too short for that. Torch knows its vector units already there, and
    trying them out with the compiler once more takes longer than a small model's program.
    """
    needed = _needed_options(trace)
    if device.type == "cpu":
        return needed | {"cpp.vec_isa_ok": True, "layout_optimization": False}
    operations = {str(node.target) for node in trace.graph.graph.nodes}
    convolves = any("convolution" in name for name in operations)
    normalises = any("native_group_norm" in name for name in operations)
    layout = {"force_layout_optimization": True} if convolves else {}
    short = _SHORT_PROGRAM if len(trace.graph.graph.nodes) <= _SHORT else {}
    return needed | layout | short | (_LONG_CHAINS if normalises else {})


def compiling() -> bool:
    """Whether something is being compiled.

    Whoever traces replaces how modules are called, for the whole process and until it is done. Calls from elsewhere go
    on as before, but a second trace would put the first one's replacement back in the end.
    """
    return _ONE_AT_A_TIME.locked()


def wait_for_compiler() -> None:
    """Returns when nothing is being compiled."""
    with _ONE_AT_A_TIME:
        pass


@functools.cache
def _prepare_inductor() -> None:
    """Traces a function of nothing, which inductor would do once by itself, with a tracer that no call gets past."""
    with contextlib.suppress(ImportError, AttributeError):  # another torch may have it elsewhere
        from torch._inductor.loop_body import InterpreterShim  # slow

        InterpreterShim._dummy_gm()


class Compilation:
    """A compilation in the background: eager steps go on until `ready`.

    It first runs in a process of its own, and within this one where that fails. Who waits for it has nothing to gain
    from that on a GPU.

    Attributes:
        failure: why it failed, where it did.
        seconds: how long it took, failed tries with it; whole once it is `ready`.
    """

    def __init__(self, trace: Trace, inputs: Sequence[Tensor], *, wait: bool) -> None:
        self.trace = trace
        self.failure: str | None = None
        self.seconds = 0.0
        self._program: Program | None = None
        self._inputs, self._wait = list(inputs), wait
        device = inputs[0].device
        self._on_gpu = inputs[0].is_cuda
        shared = can_compile_apart(trace.graph, device)
        self._apart = shared and not (wait and self._on_gpu) and has_room_apart(device)
        self._read_back = shared and self._on_gpu  # so that torch's cache knows what another process has compiled
        self._start()
        if wait and not self.ready:
            self.try_again()

    @property
    def ready(self) -> bool:
        return self._program is not None

    @property
    def program(self) -> Program:
        assert self._program is not None
        return self._program

    def try_again(self) -> bool:
        """Starts once more within this process, from the graph as it was traced; whether there was another way left."""
        if not (self._apart or self._read_back):
            return False
        self._apart, self._read_back, self.failure = False, False, None
        self._start()
        return True

    def _start(self) -> None:
        if self._on_gpu or not self._apart:
            _prepare_inductor()  # here: whoever calls modules is not to meet its tracer
        cached = self._cached_job() if self._read_back else None
        if self._wait:
            self._run(cached)  # by this thread: another one would have cuBLAS keep a workspace for it
        else:
            threading.Thread(target=self._run, args=(cached,), daemon=True).start()

    def _cached_job(self) -> CachedJob | None:
        try:
            with _ONE_AT_A_TIME:
                return CachedJob.of(_job(self.trace, self._inputs))
        except Exception:  # what cannot be written cannot go to another process
            self._apart = self._read_back = False
            return None

    def _run(self, cached: CachedJob | None) -> None:
        started = time.perf_counter()
        try:
            with _ONE_AT_A_TIME:
                program = self._compile(cached)
                self.seconds += time.perf_counter() - started
                self._program = program  # the last: who finds it may ask for the seconds
            self._inputs = []
        except Exception as error:
            self.seconds += time.perf_counter() - started
            self.failure = (str(error).strip().splitlines() or [type(error).__name__])[0]

    def _compile(self, cached: CachedJob | None) -> Program:
        if cached is None:
            return compile_graph(self.trace, self._inputs, apart=self._apart)
        if self._apart:
            cached.prepare()
        return _compile_within(cached.job)
