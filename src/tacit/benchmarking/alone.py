"""One contender in a process of its own, for the memory it needs on a CPU.

``python -m tacit.benchmarking.alone MODEL ENGINE PRECISION BATCH`` prints the growth of the resident set in MiB, or
null.
"""

import contextlib
import json
import subprocess
import sys

import torch

_TIMEOUT = 300.0


def peak_mib(model: str, engine: str, precision: str, batch: int) -> float | None:
    """MiB by which the resident set grew at most while the contender was built and took two steps; None on failure."""
    command = [sys.executable, "-m", "tacit.benchmarking.alone", model, engine, precision, str(batch)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return None
    with contextlib.suppress(json.JSONDecodeError, IndexError):
        found = json.loads(done.stdout.splitlines()[-1])
        return None if found is None else float(found)
    return None


def _grown(model: str, engine: str, precision: str, batch: int) -> float | None:
    from tacit.benchmarking.engines import CONTENDERS
    from tacit.benchmarking.measuring import OK, runs_once
    from tacit.benchmarking.memory import reset_resident_peak, resident_mib
    from tacit.benchmarking.tasks import WORKLOADS, make_task

    device = torch.device("cpu")
    size = WORKLOADS[model].size(device).along("batch", batch)
    task = make_task(model, device, precision, size=size)
    runs_once(make_task("logistic", device, size=WORKLOADS["logistic"].small.along("width", 4)), CONTENDERS["plain"])
    before = resident_mib() if reset_resident_peak() else None
    lane = runs_once(task, CONTENDERS[engine])
    peak = resident_mib(peak=True)
    return None if before is None or peak is None or lane.status != OK else peak - before


if __name__ == "__main__":
    found = _grown(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
    sys.stdout.write(json.dumps(found) + "\n")
