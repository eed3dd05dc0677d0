"""One contender in a process of its own, for the memory it needs on a CPU.

``python -m tacit.benchmarking.alone MODEL ENGINE PRECISION BATCH`` prints by how many MiB the resident set grew at its
peak: while the contender was built and took its first steps, and in the steps after them.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from tacit.benchmarking.memory import read_code, reset_resident_peak, resident_below_mib, resident_mib
from tacit.gradients.compiling_apart import has_libraries

_TIMEOUT = 300.0
_LOOK_EVERY = 0.02  # seconds
_FIRST_STEPS, _LATER_STEPS = 2, 2  # the first ones compile, and compare what was compiled, as the tenth chunk does


@dataclasses.dataclass(frozen=True)
class Memory:
    """What a contender needs on a CPU, in MiB above what its process had before; None where it failed.

    Attributes:
        peak_mib: at the peak of its steps, once it has taken the first ones; all that stays in the process counts.
        building_mib: at the peak of the time before, in its own process.
        helpers_mib: of the processes that it started, at the peak of all of them together. Compilers are among them
            only where their programs do not lie on disk yet, as they do once the contender has been timed.
    """

    peak_mib: float | None = None
    building_mib: float | None = None
    helpers_mib: float | None = None


def memory_of(model: str, engine: str, precision: str, batch: int) -> Memory:
    """Measures a contender in a new process."""
    command = _command(model, engine, precision, batch)
    helpers, ends = 0.0, time.monotonic() + _TIMEOUT
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        while process.poll() is None:
            if time.monotonic() > ends:
                process.kill()
            helpers = max(helpers, resident_below_mib(process.pid))
            time.sleep(_LOOK_EVERY)
        printed = process.stdout.read()
    with contextlib.suppress(json.JSONDecodeError, IndexError, TypeError):
        building, peak = json.loads(printed.splitlines()[-1])
        return Memory(peak, building, helpers)
    return Memory()


@contextlib.contextmanager
def compiling_ahead(tasks: Sequence[tuple[str, str, int]], engine: str) -> Iterator[Callable[[], None]]:
    """Builds a contender for these tasks, a process each, while others go on; nothing where libraries lie on disk.

    One after the other would take half a minute each on a machine that has compiled nothing yet. Libraries stay on
    disk, where the contender finds them.

    Args:
        tasks: model, precision and batch of each.
        engine: the contender's.

    Yields:
        What returns when all are built: nothing is to be timed beside them.
    """
    patient = os.environ | {"OMP_WAIT_POLICY": "passive"}  # threads that wait for each other leave the cores to others
    commands = [] if has_libraries() else [_command(model, engine, precision, n) for model, precision, n in tasks]
    with contextlib.ExitStack() as stack:
        quietly = subprocess.DEVNULL
        built = [
            stack.enter_context(subprocess.Popen(command, stdout=quietly, stderr=quietly, env=patient))
            for command in commands
        ]

        def wait() -> None:
            for process in built:
                process.wait()

        try:
            yield wait
        finally:
            for process in built:
                process.kill()


def _command(model: str, engine: str, precision: str, batch: int) -> list[str]:
    return [sys.executable, "-m", "tacit.benchmarking.alone", model, engine, precision, str(batch)]


def _grown(model: str, engine: str, precision: str, batch: int) -> tuple[float, float] | None:
    from tacit.benchmarking.contenders import synchronise
    from tacit.benchmarking.engines import CONTENDERS
    from tacit.benchmarking.measuring import quiet, runs_once
    from tacit.benchmarking.tasks import WORKLOADS, make_task

    device, contender = torch.device("cpu"), CONTENDERS[engine]
    size = WORKLOADS[model].size(device).along("batch", batch)
    task = make_task(model, device, precision, size=size)
    runs_once(make_task("logistic", device, size=WORKLOADS["logistic"].small.along("width", 4)), CONTENDERS["plain"])
    with quiet():
        if contender.needs is not None:
            importlib.import_module(contender.needs)  # as tacit is imported already
        read_code()
        before = resident_mib() if reset_resident_peak() else None
        step = contender.prepare(task)
        peaks = []
        for steps in (_FIRST_STEPS, _LATER_STEPS):
            for _ in range(steps):
                step()
            synchronise(step, device)
            peaks.append(resident_mib(peak=True))
            reset_resident_peak()
    building, later = peaks
    return None if before is None or building is None or later is None else (building - before, later - before)


if __name__ == "__main__":
    found = _grown(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    sys.stdout.write(json.dumps(found) + "\n")
