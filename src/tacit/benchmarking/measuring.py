"""Interleaved measurements: every contender runs a block of steps in turn, several rounds, and the median counts.

A busy moment of the machine so hits all contenders alike. A contender that fails, while it is built or in a step, gives
a row with its reason and the others go on.
"""

import contextlib
import dataclasses
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from tacit.benchmarking.contenders import Contender, DescribedStep, RefusedError, Step, synchronise
from tacit.benchmarking.memory import MemoryBefore, release, reset_peak
from tacit.benchmarking.tasks import Task

OK, REFUSED, OUT_OF_MEMORY = "ok", "refused", "out of memory"
_BLOCK_SECONDS = {"cuda": 0.1, "cpu": 0.05}
_MOST_STEPS_A_BLOCK = 200
_FEW_ROUNDS, _SHORT_SECONDS = 3, 1.0
_SLOW_SECONDS = 1.0  # a step of this length on a CPU is measured, not repeated
_CAPTURING_STEPS = 2  # after which a step that is captured has been
_REASON_LENGTH = 240

Progress = Callable[[str, float], None]
"""Is told what happens next, and which share of the work is done."""


def silent(text: str, share: float) -> None:
    """Progress that nobody watches."""
    del text, share


class Stages:
    """Maps the progress of stages that follow one another onto that of the whole."""

    def __init__(self, progress: Progress, count: int) -> None:
        self._progress, self._count, self._begun = progress, count, 0

    def next(self) -> Progress:
        """The progress of the next stage."""
        before, self._begun = self._begun, self._begun + 1
        return lambda text, share: self._progress(text, min(1.0, (before + share) / self._count))


@dataclasses.dataclass
class Lane:
    """One contender on one task: its step, and what was measured of it."""

    contender: Contender
    step: Step | None = None
    steps_a_block: int = 1
    seconds: list[float] = dataclasses.field(default_factory=list)
    peak_mib: float | None = None
    detail: str | None = None
    status: str = OK
    reason: str | None = None

    @property
    def ms(self) -> float | None:
        """The median over the rounds, in milliseconds a step."""
        return 1e3 * statistics.median(self.seconds) if self.status == OK and self.seconds else None

    def has_turn(self, number: int, share: float | None) -> bool:
        """Whether it takes part in this round: always in the first, and then while its blocks fit into its share of
        the time. A median of one is no median, so that short blocks are run a few times in any case.
        """
        if number == 0 or share is None:
            return True
        block = self.steps_a_block * max(self.seconds)
        few = number < _FEW_ROUNDS and block < _SHORT_SECONDS
        return few or (len(self.seconds) + 1) * block <= share


@dataclasses.dataclass(frozen=True)
class Deadline:
    """When to stop adding rounds; the first round is always run."""

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> "Deadline":
        """That many seconds from now, or never."""
        return cls(None if seconds is None else time.perf_counter() + seconds)

    def left(self) -> float | None:
        """Seconds until then."""
        return None if self.at is None else self.at - time.perf_counter()

    def share(self, parts: int) -> "Deadline":
        """An equal share of what is left."""
        left = self.left()
        return Deadline.after(None if left is None else max(left, 0.0) / parts)


def measure(
    task: Task,
    contenders: Sequence[Contender],
    *,
    rounds: int,
    deadline: Deadline,
    progress: Progress,
    ready: Callable[[], None] | None = None,
) -> list[Lane]:
    """Builds and warms up each contender, then times them in turn, once ``ready`` has returned.

    Whoever has used up its equal share of the time that is left after building sits out further rounds.
    """
    name, turns = f"{task.workload.name} {task.precision}", len(contenders) * (rounds + 1)
    lanes: list[Lane] = []
    for contender in contenders:
        progress(f"{name}: {contender.name} starts", len(lanes) / turns)
        lanes.append(_prepare(task, contender))
    if ready is not None:
        ready()
    share = deadline.share(max(1, sum(lane.step is not None for lane in lanes))).left()
    for number in range(rounds):
        for place, lane in enumerate(lanes):
            if lane.step is not None and lane.has_turn(number, share):
                progress(
                    f"{name}: {lane.contender.name}, round {number + 1}", ((number + 1) * len(lanes) + place) / turns
                )
                _run_block(task, lane)
    _close(lanes, task.device)
    return lanes


def runs_once(task: Task, contender: Contender) -> Lane:
    """One contender alone, warmed up and with its memory measured, and not timed."""
    lane = _prepare(task, contender)
    _close([lane], task.device)
    return lane


def _prepare(task: Task, contender: Contender) -> Lane:
    lane = Lane(contender)
    before = MemoryBefore.now(task.device)
    with _failures_in(lane, task.device), quiet():
        lane.step = contender.prepare(task)
        seconds = _timed(lane.step, 1, task.device)  # compiles, searches kernels, runs preflights
        if task.device.type == "cuda":
            _timed(lane.step, _CAPTURING_STEPS, task.device)
        reset_peak(task.device)
        if task.device.type == "cuda" or contender.compiles or seconds < _SLOW_SECONDS:
            seconds = _timed(lane.step, 1, task.device)
        if before is not None and contender.framework == "torch":
            lane.peak_mib = before.peak_mib()
        wanted = _BLOCK_SECONDS[task.device.type] / max(seconds, 1e-9)
        lane.steps_a_block = max(1, min(_MOST_STEPS_A_BLOCK, round(wanted)))
    return lane


def _close(lanes: Sequence[Lane], device: torch.device) -> None:
    """Ends a task: memory goes back, and compiled code is forgotten, of which torch keeps few versions a function."""
    for lane in lanes:
        if isinstance(lane.step, DescribedStep):
            lane.detail = lane.step.describe()
        lane.step = None
    release(device)
    if "torch._dynamo" in sys.modules:  # importing it for this alone would take seconds
        torch.compiler.reset()


def _run_block(task: Task, lane: Lane) -> None:
    with _failures_in(lane, task.device), quiet():
        assert lane.step is not None
        lane.seconds.append(_timed(lane.step, lane.steps_a_block, task.device) / lane.steps_a_block)


def _timed(step: Step, steps: int, device: torch.device) -> float:
    synchronise(step, device)
    started = time.perf_counter()
    for _ in range(steps):
        step()
    synchronise(step, device)
    return time.perf_counter() - started


@contextlib.contextmanager
def _failures_in(lane: Lane, device: torch.device) -> Iterator[None]:
    """Whatever a contender raises becomes its row's status."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError):
        lane.status, lane.reason = OUT_OF_MEMORY, None
    except RefusedError as refusal:
        lane.status, lane.reason = REFUSED, _one_line(str(refusal))
    except Exception as error:
        lane.status, lane.reason = REFUSED, _one_line(f"{type(error).__name__}: {error}")
    if lane.status != OK:
        lane.step = None
        release(device)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH else line[: _REASON_LENGTH - 1] + "…"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Standard output is for results alone; other people's warnings are not ours to show."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
