"""The benchmark of PATE's teachers: all together against one after the other, in turns, in one run."""

import dataclasses
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.benchmarking import environment
from tacit.benchmarking.measuring import Progress, Stages, silent
from tacit.benchmarking.teachers import TEACHINGS, TOGETHER, Prepare, Teaching
from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count
from tacit.datasets import load
from tacit.pate.partition import Indices, partition

_ASKED = 500  # test inputs on which the teachers of two contenders are compared
_NETWORK_STEPS_ON_CPU = 4  # measured of a network's steps, which are all alike


@dataclasses.dataclass(frozen=True)
class PateSettings:
    """What to measure.

    Attributes:
        dataset: a named set.
        teachers: how many share its training split.
        kinds: of teachers, ``linear`` and ``network``; None is both.
        device: ``cpu``, ``cuda`` or ``auto``.
        rounds: how often every contender has its turn.
        sample: how many teachers are trained one after the other, of which the time of all is inferred.
    """

    dataset: str = "mnist"
    teachers: int = 250
    kinds: Sequence[str] | None = None
    device: str = "auto"
    rounds: int = 3
    sample: int = 10

    def __post_init__(self) -> None:
        for name in ("teachers", "rounds", "sample"):
            check_count(name, getattr(self, name))
        for kind in self.kinds or ():
            check_choice("kind", kind, TEACHINGS)
        check_choice("device", self.device, ("auto", "cpu", "cuda"))
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("device='cuda': no GPU was found. Use --device cpu.")

    def place(self) -> torch.device:
        """The device to measure on."""
        use_gpu = self.device == "cuda" or (self.device == "auto" and torch.cuda.is_available())
        return torch.device("cuda" if use_gpu else "cpu")


@dataclasses.dataclass
class _Lane:
    """One contender: how much of the work it does in a turn, and the seconds that building and training took."""

    name: str
    prepare: Prepare
    parts: Sequence[Indices]
    steps: int
    building: list[float] = dataclasses.field(default_factory=list)
    training: list[float] = dataclasses.field(default_factory=list)
    said: npt.NDArray[np.int64] | None = None

    def take_turn(self, asked: Tensor) -> None:
        started = _now(asked.device)
        train = self.prepare(self.parts, self.steps)
        built = _now(asked.device)
        predict = train()
        trained = _now(asked.device)
        self.building.append(built - started)
        self.training.append(trained - built)
        self.said = predict(asked)


def benchmark_pate(settings: PateSettings, progress: Progress = silent) -> dict[str, Any]:
    """Measures, and returns rows with what they were measured on and with.

    Every row holds ``kind`` and ``model`` of the teachers, ``contender``, ``teachers`` and ``steps`` of the whole,
    ``measured_teachers`` and ``measured_steps`` of a turn, ``seconds`` (of the whole: the median turn, and where it is
    a part, in proportion, which ``inferred`` says), ``spread_seconds``, ``ratio`` (times as long as together) and
    ``agreement`` (the share of test inputs on which its teachers choose as those that were trained together do).
    """
    device = settings.place()
    data = load(settings.dataset)
    parts = partition(len(data.train), settings.teachers)
    chosen = settings.kinds or tuple(TEACHINGS)
    stages = Stages(progress, len(chosen))
    rows: list[dict[str, Any]] = []
    for kind in chosen:
        stage = stages.next()
        stage(f"{kind}: the records", 0.0)
        rows += _measured(TEACHINGS[kind](data, device), parts, settings, stage)
    return {
        "rows": rows,
        "problem": {"dataset": settings.dataset, "teachers": settings.teachers, "rounds": settings.rounds},
        "hardware": environment.hardware(device),
        "versions": environment.versions(),
        "command": environment.command(),
        "date": environment.now(),
    }


def _measured(
    teaching: Teaching, parts: Sequence[Indices], settings: PateSettings, progress: Progress
) -> list[dict[str, Any]]:
    asked = teaching.data.test.inputs[:_ASKED]
    shortened = teaching.kind == "network" and asked.device.type == "cpu"
    steps = min(_NETWORK_STEPS_ON_CPU, teaching.steps) if shortened else teaching.steps
    lanes = [
        _Lane(name, prepare, parts if name == TOGETHER else parts[: settings.sample], steps)
        for name, prepare in teaching.contenders.items()
    ]
    for lane in lanes:  # threads and kernels start
        lane.prepare(parts[:2], 1)()
    turns = [(number, lane) for number in range(settings.rounds) for lane in lanes]
    for done, (number, lane) in enumerate(turns):
        progress(f"{teaching.kind}: {lane.name}, round {number + 1}", done / len(turns))
        lane.take_turn(asked)
    return [_row(teaching, lane, lanes[0], len(parts)) for lane in lanes]


def _row(teaching: Teaching, lane: _Lane, together: _Lane, teachers: int) -> dict[str, Any]:
    seconds = _whole(teaching, lane, teachers)
    median = statistics.median(seconds)
    measured = len(lane.parts)
    assert lane.said is not None
    assert together.said is not None
    return {
        "kind": teaching.kind,
        "model": teaching.model,
        "contender": lane.name,
        "teachers": teachers,
        "steps": teaching.steps,
        "measured_teachers": measured,
        "measured_steps": lane.steps,
        "inferred": measured < teachers or lane.steps < teaching.steps,
        "seconds": median,
        "spread_seconds": [min(seconds), max(seconds)],
        "ratio": median / statistics.median(_whole(teaching, together, teachers)),
        "agreement": float(np.mean(lane.said == together.said[:measured])),
    }


def _whole(teaching: Teaching, lane: _Lane, teachers: int) -> list[float]:
    """The seconds that all teachers would take in all their steps, one figure for each turn."""
    share = len(lane.parts) / teachers
    longer = teaching.steps / lane.steps
    return [(built + longer * trained) / share for built, trained in zip(lane.building, lane.training, strict=True)]


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
