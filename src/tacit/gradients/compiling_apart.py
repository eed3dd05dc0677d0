"""The compiler in a process of its own, which hands over a library and ends.

Torch's compiler takes tens of MiB to import and more to work, and a process that has used it keeps both. What a
training run needs of it is a library of a few MiB at most. So the traced graph goes to another process, which
compiles it ahead of time; the library that comes back is loaded without the compiler and kept on disk for later runs.
"""

import contextlib
import dataclasses
import hashlib
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from tacit.core.errors import UnsupportedError
from tacit.gradients.strategies import cache_folder
from tacit.gradients.tracing import Program

_KNOWN = ("aten", "prims", "tacit")  # whose operators the other process has too
_KEPT = 64  # libraries on disk
_SECONDS = 1800.0
_JUDGEMENT = 300  # characters of what the compiler said


@dataclasses.dataclass(frozen=True)
class Job:
    """A graph, the layouts of its arguments, and all that decides about its machine code."""

    graph: GraphModule
    layouts: tuple[tuple[torch.Size, tuple[int, ...], torch.dtype], ...]
    options: dict[str, Any]
    threads: int
    precision: str
    deterministic: bool

    def key(self) -> str:
        """The same for jobs with the same library."""
        facts = (self.graph.code, self.layouts, self.options, self.threads, self.precision, self.deterministic)
        digest = hashlib.sha256(repr((facts, torch.__version__, torch.version.git_version, _processor())).encode())
        for name, value in self.graph.named_buffers():
            digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
            digest.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:32]


def can_compile_apart(graph: GraphModule, device: torch.device) -> bool:
    """Whether another process can know every operation of the graph: operators of the user's own live in this one."""
    operators = (node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload))
    known = all(operator.namespace in _KNOWN for operator in operators)
    return known and device.type == "cpu" and sys.platform == "linux" and hasattr(torch._C, "_aoti")


def compile_apart(graph: GraphModule, inputs: Sequence[Tensor], options: dict[str, Any]) -> Program:
    """The library of a graph on the CPU: from the disk, or from a new process that compiles it.

    Raises:
        UnsupportedError: the other process failed; with what it said last.
    """
    job = Job(
        graph,
        tuple((tensor.shape, tensor.stride(), tensor.dtype) for tensor in inputs),
        options,
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
    )
    kept = _kept_libraries()
    if kept is None:
        with tempfile.TemporaryDirectory() as folder:
            _compile(job, Path(folder))
            return load_library(Path(folder))
    place = kept / job.key()
    if not place.is_dir():
        scratch = Path(tempfile.mkdtemp(dir=kept))
        try:
            _compile(job, scratch)
            with contextlib.suppress(OSError):  # another process was first
                scratch.rename(place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        _forget_oldest(kept)
    os.utime(place)
    return load_library(place)


def has_libraries() -> bool:
    """Whether any library lies on disk."""
    kept = _kept_libraries()
    return kept is not None and any(kept.iterdir())


def load_library(folder: Path) -> Program:
    """What a library in this folder computes, from a list of arguments to one of results."""
    (library,) = folder.glob("*.so")
    run: Program = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1).run
    return run


def _compile(job: Job, folder: Path) -> None:
    """Lets another process compile into this folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tacit.gradients.compiler_process", str(folder)],
        input=pickle.dumps(job),
        capture_output=True,
        timeout=_SECONDS,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
        raise UnsupportedError(f"the compiler's process failed: {said[-1][:_JUDGEMENT]}")


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


def _processor() -> str:
    """What machine code is made for."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return platform.machine() + line
    return platform.machine() + platform.processor()
