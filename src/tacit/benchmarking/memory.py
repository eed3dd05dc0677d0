"""Memory that a contender needs above what lay there before it was built: parameters, optimizer, step.

On a GPU that is what its steps have allocated at most, plus what its CUDA graphs hold for themselves: a graph's pool
shows as allocated only while the graph is recorded. What cuBLAS keeps for each stream (32 MiB on an H200) is there
before all contenders, and counts for none of them: the first one would pay for those after it. On a CPU it is the
growth of the process's resident set, at the peak of steps after the first ones, which means something only in a process
that measures nothing else; `tacit.benchmarking.alone` starts one. The code of libraries is no part of it, as on a GPU:
`read_code` makes all of it resident before.
"""

import ctypes
import dataclasses
import gc
from pathlib import Path

import torch

from tacit.gradients.capturing import capturing_stream

MIB = 2**20
_PROCESSES = Path("/proc")
_CLEAR = Path("/proc/self/clear_refs")
_POPULATE_READ = 22  # MADV_POPULATE_READ of Linux 5.14


@dataclasses.dataclass(frozen=True)
class MemoryBefore:
    """What a GPU holds before a contender is built."""

    device: torch.device
    allocated: int
    in_graphs: int

    @classmethod
    def now(cls, device: torch.device) -> "MemoryBefore | None":
        """The present state; None on a CPU."""
        if device.type != "cuda":
            return None
        _make_workspaces(device)
        release(device)
        return cls(device, torch.cuda.memory_allocated(device), _held_by_graphs(device))

    def peak_mib(self) -> float:
        """The most that was needed since the peak was last reset, above this."""
        peak = torch.cuda.max_memory_allocated(self.device) - self.allocated
        return (peak + _held_by_graphs(self.device) - self.in_graphs) / MIB


def reset_peak(device: torch.device) -> None:
    """Forgets the peak so far, such as that of compilation."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)


def release(device: torch.device) -> None:
    """Gives back what nothing refers to any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def _make_workspaces(device: torch.device) -> None:
    """Lets cuBLAS allocate what it keeps, on the streams that contenders compute on."""
    for stream in (torch.cuda.current_stream(device), capturing_stream(device)):
        with torch.cuda.stream(stream):
            for dtype in (torch.float32, torch.bfloat16):
                square = torch.ones(64, 64, dtype=dtype, device=device)
                torch.addmm(square[0], square, square @ square)


def _held_by_graphs(device: torch.device) -> int:
    """Bytes in the pools of CUDA graphs that are not counted as allocated."""
    index = torch.cuda.current_device() if device.index is None else device.index
    snapshot = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return sum(
        segment["total_size"] - segment["allocated_size"]
        for segment in snapshot
        if segment["device"] == index and tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
    )


def resident_mib(process: int | str = "self", *, peak: bool = False) -> float | None:
    """A process's resident set now, or at its peak; None where the system does not tell."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    try:
        lines = (_PROCESSES / str(process) / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(wanted)), None)


def resident_below_mib(process: int) -> float:
    """The resident sets of all processes that this one started, and of those that they started, together."""
    try:
        threads = list((_PROCESSES / str(process) / "task").iterdir())
        children = [int(word) for thread in threads for word in (thread / "children").read_text().split()]
    except OSError:  # it has ended
        return 0.0
    return sum((resident_mib(child) or 0.0) + resident_below_mib(child) for child in children)


def reset_resident_peak() -> bool:
    """Makes the resident set's peak start again from now; whether the system can."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True


def read_code() -> bool:
    """Makes the files that this process has mapped resident, the code of its libraries; whether the system can.

    Which pages of it a contender is the first to touch says nothing about what it needs: all processes share them, and
    the system drops them when it wants the room.
    """
    try:
        lines = (_PROCESSES / "self" / "maps").read_text(encoding="utf-8", errors="replace").splitlines()
        advise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return False
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    failures = 0
    for span, rights, _, _, inode in (line.split()[:5] for line in lines):
        if rights.startswith("r") and inode != "0":
            start, end = (int(place, 16) for place in span.split("-"))
            failures += advise(start, end - start, _POPULATE_READ) != 0
    return failures == 0
