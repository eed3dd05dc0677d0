"""The compiler in a process of its own, which leaves its result on disk and ends.

On a CPU: torch's compiler takes tens of MiB to import and more to work, and a process that has used it keeps both. What
a training run needs of it is a library of a few MiB at most. So the traced graph goes to another process, which
compiles it ahead of time; the library that comes back is loaded without the compiler and kept on disk for later runs.

On a GPU: compiler and training would take turns in one interpreter, and both would take several times as long. So
another process compiles the graph into torch's cache, from which this one has its program in seconds.
"""

import contextlib
import dataclasses
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.fx import GraphModule

from tacit.core.errors import UnsupportedError
from tacit.gradients.compiler_jobs import Job
from tacit.gradients.strategies import cache_folder
from tacit.gradients.tracing import Program

_KNOWN = ("aten", "prims", "tacit")  # whose operators the other process has too
_KEPT = 64  # libraries on disk
_SECONDS = 1800.0
_JUDGEMENT = 300  # characters of what the compiler said
_CRASHED = "crashed.txt"  # in the place of a library: no use to try again
_CRASHES = {-signal.SIGSEGV, -signal.SIGILL, -signal.SIGFPE}
_ROOM = 2**31  # bytes of a GPU that another process may take for a while
_SCRATCH = "tmp"


def can_compile_apart(graph: GraphModule, device: torch.device) -> bool:
    """Whether another process can know every operation of the graph, and this one find what comes of it.

    Operators of the user's own live in this process alone. A GPU also needs `has_room_apart`.
    """
    operators = (node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload))
    known = all(operator.namespace in _KNOWN for operator in operators)
    if not known or sys.platform != "linux":
        return False
    if device.type == "cuda":
        return _keeps_programs()
    return device.type == "cpu" and hasattr(torch._C, "_aoti")


def has_room_apart(device: torch.device) -> bool:
    """Whether another process finds memory there to compile in; finding what lies on disk already takes none."""
    return device.type != "cuda" or torch.cuda.mem_get_info(device)[0] >= _ROOM


def compile_apart(graph: GraphModule, inputs: Sequence[Tensor], options: dict[str, Any]) -> Program:
    """The library of a graph on the CPU: from the disk, or from a new process that compiles it.

    Raises:
        UnsupportedError: the other process failed, or crashed on this graph before; with what it said last.
    """
    job = Job.of(graph, inputs, options)
    kept = _kept_libraries()
    if kept is None:
        with tempfile.TemporaryDirectory() as folder:
            _compile(job, Path(folder))
            return load_library(Path(folder))
    place = kept / job.key()
    if not place.is_dir():
        scratch = Path(tempfile.mkdtemp(dir=kept, prefix=_SCRATCH))
        try:
            _compile(job, scratch)
            with contextlib.suppress(OSError):  # another process was first
                scratch.rename(place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        _forget_oldest(kept)
    library = load_library(place)
    os.utime(place)
    return library


@dataclasses.dataclass(frozen=True)
class CachedJob:
    """A job for a GPU that another process can put into torch's cache.

    Both processes read it from the same bytes: on its way a graph gets other names, by which the cache would not know
    it. Whoever reads a graph traces it, which must not happen beside a step that calls modules.
    """

    written: bytes
    job: Job

    @classmethod
    def of(cls, job: Job) -> Self:
        """The job as it is read on the other side."""
        written = pickle.dumps(job)
        return cls(written, pickle.loads(written))

    def prepare(self) -> None:
        """Has another process compile it.

        Raises:
            UnsupportedError: the other process failed; with what it said last.
        """
        done = _run_compiler(self.written)
        if done.returncode != 0:
            raise UnsupportedError(_judgement(done))


def has_libraries() -> bool:
    """Whether any library lies on disk."""
    kept = _kept_libraries()
    return kept is not None and any(not place.name.startswith(_SCRATCH) for place in kept.iterdir())


def load_library(folder: Path) -> Program:
    """What a library in this folder computes, from a list of arguments to one of results."""
    _refuse_crashed(folder)
    (library,) = folder.glob("*.so")
    run: Program = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1).run
    return run


def _compile(job: Job, folder: Path) -> None:
    """Lets another process compile a library into this folder; where it crashed, a note lies there in its place."""
    done = _run_compiler(pickle.dumps(job), str(folder))
    if done.returncode in _CRASHES:
        (folder / _CRASHED).write_text(_judgement(done), encoding="utf-8")
    elif done.returncode != 0:
        raise UnsupportedError(_judgement(done))


def _run_compiler(job: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tacit.gradients.compiler_process", str(os.getpid()), *arguments],
        input=job,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _judgement(done: subprocess.CompletedProcess[bytes]) -> str:
    said = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
    return f"the compiler's process failed: {said[-1][:_JUDGEMENT]}"


def _refuse_crashed(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        raise UnsupportedError((folder / _CRASHED).read_text(encoding="utf-8"))


def _keeps_programs() -> bool:
    """Whether torch's compiler keeps whole programs on disk."""
    from torch._inductor import config  # slow to import, and not needed where nothing is compiled

    return bool(config.fx_graph_cache) and not config.force_disable_caches


def _kept_libraries() -> Path | None:
    """The folder of libraries on disk; None where there is none that nobody else can write to."""
    folder = cache_folder() / "programs"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return None
    ours = status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK)
    return folder if ours else None


def _forget_oldest(kept: Path) -> None:
    with contextlib.suppress(OSError):
        by_age = sorted(kept.iterdir(), key=lambda place: place.stat().st_mtime)
        for place in by_age[:-_KEPT]:
            shutil.rmtree(place, ignore_errors=True)
