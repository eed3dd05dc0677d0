"""Long computations in processes of their own, several at a time.

Threads (`tacit.training.side_by_side`) share one interpreter, which small steps mostly wait for.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import TypeVar

import torch

from tacit.core.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")
_Warned = list[tuple[str, type[Warning]]]


def in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int, tell: Callable[[Result], None]
) -> list[Result]:
    """The results for all items, in their order; torch's threads are shared out among the processes.

    The first failure, or Ctrl-C, ends all processes at once and is raised here, as it would be without them; so does
    the death of this process. Warnings are given here too.

    Processes begin anew and import what they need, which takes seconds. A script that calls this keeps what it does
    under ``if __name__ == "__main__"``, lest each process does it as well.

    Args:
        work: a function of some module, not one within another; other processes find it by its name.
        items: what can be pickled.
        jobs: how many items at a time; processes are reused.
        tell: is given every result when it comes.

    Raises:
        InputError: a process was ended from outside.
    """
    workers = min(jobs, len(items))
    context = multiprocessing.get_context("spawn")
    lifeline, held = context.Pipe(duplex=False)
    start = lifeline, max(1, torch.get_num_threads() // workers)
    with lifeline, held, ProcessPoolExecutor(workers, context, _begin, start) as pool:
        try:
            with _interrupts_wait():
                running = [pool.submit(_do, work, item) for item in items]
                pool.submit(int)  # a pool does not watch the process that it started last until it is given more
            for done in as_completed(running):
                result, warned = done.result()
                for text, category in warned:
                    warnings.warn(text, category, stacklevel=2)
                tell(result)
        except BrokenProcessPool:
            raise InputError(
                f"jobs={jobs}: one of the processes was ended from outside, as happens where memory runs out. "
                "Take fewer jobs."
            ) from None
        except BaseException:
            held.close()
            raise
        return [done.result()[0] for done in running]


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C goes to a whole group of processes. Those that start in here never hear it, and this one does after."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(lifeline: Connection, threads: int) -> None:
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    """Nothing is ever sent: it ends where the other end is closed, or the process that held it is gone."""
    lifeline.poll(None)
    os._exit(1)


def _do(work: Callable[[Item], Result], item: Item) -> tuple[Result, _Warned]:
    with warnings.catch_warnings(record=True) as caught:
        try:
            result = work(item)
        except Exception as error:
            raise _sendable(error) from error
    return result, [(str(warning.message), warning.category) for warning in caught]


def _sendable(error: Exception) -> Exception:
    """An error that arrives as it was raised; what cannot be sent as it is would look like the death of a process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class does there
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
