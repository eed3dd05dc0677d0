"""Processes that are killed: at a boundary, at a random time, or left alone.

Nothing in the library knows of it: a boundary is a call or return of one of its functions, seen by Python's profiler in
the process to be killed. A kill at a random time comes from outside.
"""

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from tacit.benchmarking.torture.victim import Trial, train
from tacit.core.errors import TacitError
from tacit.ledger import EntryState
from tacit.training import TrainingInterrupted

Place = tuple[str, str]
"""A function of the library by its qualified name, and ``call`` or ``return``."""

Hooks = Mapping[Place, Callable[[], None]]
"""What is done there."""

_NOISE: Place = ("StepNoise.apply_", "return")
BOUNDARIES: dict[str, Place] = {
    "before the key is written": ("Store.write_key", "call"),
    "key written, no state": ("Store.write_key", "return"),
    "before reserve": ("Account.reserve", "call"),
    "in the reservation": ("Account._check_budget", "return"),
    "reserved, not synchronised": ("SqliteDatabase._make_durable", "call"),
    "reserved, no noise": ("Account.reserve", "return"),
    "reservation taken up again": ("Account.resume", "return"),
    "sum seen, not marked": ("Witness.__call__", "return"),
    "marked, no noise": ("Reservation.before_noise", "return"),
    "after the noise": _NOISE,
    "after the update": ("Update.__call__", "return"),
    "in the state, before it is written": ("Store.write", "call"),
    "in the state, written and not renamed": ("_flush", "call"),
    "in the state, renamed": ("Store._replace", "return"),
    "after the state": ("Store.write", "return"),
    "before the commit": ("Reservation.commit", "call"),
    "in the commit": ("LedgerReservation._close", "call"),
    "after the commit": ("LedgerReservation._close", "return"),
    "before the key is destroyed": ("Store.destroy_key", "call"),
    "in the key's destruction": ("_overwrite_and_unlink", "call"),
    "after the key": ("_overwrite_and_unlink", "return"),
}

DONE, FAILED, REFUSED, STOPPED, KILLED = 0, 1, 2, 3, -int(signal.SIGKILL)
_LONGEST_LIFE = 300  # seconds, after which a process waits for something that never comes


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        status: `DONE`, `REFUSED` with an error of the library, `FAILED` with any other, `STOPPED` in order, `KILLED`,
            or another signal's.
        weights: of the finished run; empty without one.
        said: the error's text.
    """

    status: int
    weights: bytes = b""
    said: str = ""


def run_process(
    trial: Trial,
    *,
    hooks: Hooks | None = None,
    prepare: Callable[[], None] | None = None,
    seconds: float | None = None,
    changed: bool = False,
    engine: str = "auto",
) -> Ended:
    """Forks a process that works on a trial, and waits for its end.

    Args:
        hooks: what to do where in the process.
        prepare: called first in the process.
        seconds: after which it is killed, if it still lives.
        changed, engine: as for `train`.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _live(writing, hooks or {}, prepare, lambda: train(trial, changed=changed, engine=engine))
    os.close(writing)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)  # it is ours until it is waited for, also where it has ended
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(reading, "rb") as pipe:  # a pipe holds all that a process says
        said = pipe.read()
    return Ended(status, weights=said) if status == DONE else Ended(status, said=said.decode(errors="replace"))


def killed_at(boundary: str, nth: int, trial: Trial) -> Hooks:
    """Hooks of a process that counts its noise, and kills itself at its n-th arrival at a boundary."""
    arrive = _at(nth, lambda: os.kill(os.getpid(), signal.SIGKILL))

    def count() -> None:
        trial.observed.add_noise()
        if BOUNDARIES[boundary] == _NOISE:
            arrive()

    return {BOUNDARIES[boundary]: arrive, _NOISE: count}


def stopped_before_noise(nth: int) -> Hooks:
    """Hooks of a process that is stopped in order, as by Ctrl-C, before the noise of its n-th step."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    return {("Witness.__call__", "call"): _at(nth, interrupt)}


def whereabouts(trial: Trial) -> str:
    """Where in its life a process died, from what it left on the disk; for kills that know no boundary."""
    folder, entries = trial.checkpoint, trial.entries()
    if not entries:
        if not folder.exists():
            return "before the checkpoint"
        return "before the reservation"
    last = entries[-1]
    if list(folder.glob("*.part")):
        return "in a checkpoint"
    if last.state is not EntryState.RESERVED:
        return "after the commit" if trial.key.exists() else "at the end"
    if last.steps_drawn == 0:
        return "before the first step"
    return "in the steps" if last.steps_drawn < last.steps_reserved else "after the last mark"


def _at(nth: int, act: Callable[[], None]) -> Callable[[], None]:
    left = nth

    def arrive() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    return arrive


def _live(pipe: int, hooks: Hooks, prepare: Callable[[], None] | None, work: Callable[[], bytes]) -> None:
    """The life of a forked process; it never returns."""
    status, said = FAILED, b""
    try:
        signal.alarm(_LONGEST_LIFE)
        if prepare is not None:
            prepare()
        if hooks:
            _watch(hooks)
        said, status = work(), DONE
    except TacitError as error:
        said, status = str(error).encode(), REFUSED
    except TrainingInterrupted:
        status = STOPPED
    except BaseException as error:
        said = f"{type(error).__name__}: {error}".encode()
    finally:
        sys.setprofile(None)
        with contextlib.suppress(OSError):
            os.write(pipe, said)
        os._exit(status)


def _watch(hooks: Hooks) -> None:
    def look(frame: FrameType, event: str, _: Any) -> None:
        hook = hooks.get((frame.f_code.co_qualname, event))
        if hook is not None:
            hook()

    sys.setprofile(look)
