"""Long computations in threads of their own, which never meet: threads of torch meet after each operation.

Where others use the machine as well, each such meeting may last as long as another's turn (`tacit.training.threads`).
"""

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
from torch import nn

from tacit.training.ensemble import Progress
from tacit.training.threads import one_thread, threads_worth

Job = Callable[[Progress], None]


def parts_of(network: nn.Module, lot: int, copies: int, device: torch.device) -> list[slice]:
    """Copies of a network in as many parts as are worth a thread each; one part on a GPU, or where steps are small."""
    most = threads_worth(network, lot, copies=copies) if device.type == "cpu" else 1
    parts = min(copies, most)
    return [slice(copies * part // parts, copies * (part + 1) // parts) for part in range(parts)]


def side_by_side(jobs: Sequence[Job], progress: Progress) -> None:
    """Runs each job in a thread of its own, with torch on one thread; a single job as it would run anyway.

    Where one of them fails, or Ctrl-C comes, the others stop when they next report.

    Args:
        jobs: each reports the share of it that is done.
        progress: is told the share of all; from the jobs' threads, one call at a time.
    """
    if len(jobs) == 1:
        jobs[0](progress)
        return
    shares, stop, lock = [0.0] * len(jobs), threading.Event(), threading.Lock()

    def tell(number: int, share: float) -> None:
        with lock:
            if stop.is_set():
                raise _StoppedError
            shares[number] = share
            progress(sum(shares) / len(shares))

    with one_thread(), ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(job, functools.partial(tell, number)) for number, job in enumerate(jobs)]
        try:
            for future in as_completed(running):
                future.result()
        finally:
            stop.set()


class _StoppedError(Exception):
    """Another job's failure ends this one."""
