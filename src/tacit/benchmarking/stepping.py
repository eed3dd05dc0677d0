"""The benchmark of one training step: who needs how long and how much memory, and how that grows."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tacit.benchmarking import alone, environment
from tacit.benchmarking.contenders import Contender
from tacit.benchmarking.engines import chosen
from tacit.benchmarking.growth import LONGEST, measure_growth
from tacit.benchmarking.largest_batch import largest_batches
from tacit.benchmarking.measuring import OK, Deadline, Lane, Progress, Stages, measure, silent
from tacit.benchmarking.precision import products_in
from tacit.benchmarking.private_steps import COMPILED
from tacit.benchmarking.room import check_room, make_task_in_room
from tacit.benchmarking.tasks import PRECISIONS, WORKLOADS, Size, Task
from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count, check_positive

_DEFAULT_MODELS = {"cuda": tuple(WORKLOADS), "cpu": ("mlp", "cnn", "wrn", "gpt")}
_DEFAULT_PRECISIONS = {"cuda": ("tf32", "bfloat16"), "cpu": ("float32",)}
_DEFAULT_SECONDS = {"cuda": None, "cpu": 30.0}
_DEFAULT_ROUNDS = {"cuda": 10, "cpu": 15}
_REMEDIES = {
    "rounds": "Use 3 or more for a median, or leave it out.",
    "batch": "Use a number such as 256, or leave it out for each model's own.",
    "memory_limit": "Use a number of MiB such as 16384, or leave it out.",
}

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class StepSettings:
    """What to measure. None stands for the device's default.

    Attributes:
        models, engines, precisions: names; see `WORKLOADS`, `CONTENDERS` and `PRECISIONS`.
        device: ``cpu``, ``cuda``, or ``auto``.
        rounds: how often every contender has its turn.
        batch: instead of each model's own.
        seconds: rounds are dropped once this is spent, contenders never.
        memory_limit: MiB of a GPU into which the largest batch of each contender is fitted.
        growth: also doubles batch, width, depth and sequence length, and fits exponents.
        memory: on a CPU, also measures memory, each contender in a process of its own.
    """

    models: tuple[str, ...] | None = None
    engines: tuple[str, ...] | None = None
    precisions: tuple[str, ...] | None = None
    device: str = "auto"
    rounds: int | None = None
    batch: int | None = None
    seconds: float | None = None
    memory_limit: int | None = None
    growth: bool = False
    memory: bool = False

    def __post_init__(self) -> None:
        check_choice("device", self.device, ("auto", "cpu", "cuda"))
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("device='cuda': no GPU was found. Use --device cpu.")
        for name in self.models or ():
            check_choice("model", name, WORKLOADS)
        chosen(self.engines, self.place)
        for name in self.precisions or ():
            check_choice("precision", name, PRECISIONS)
            if name == "tf32" and self.place.type == "cpu":
                raise InputError("precision='tf32': is for GPUs. Use float32 or bfloat16 on the CPU.")
        for name, remedy in _REMEDIES.items():
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), remedy=remedy)
        if self.seconds is not None:
            check_positive("seconds", self.seconds, remedy="Use 30 or another number, or leave it out.")
        if self.memory_limit is not None and self.place.type == "cpu":
            raise InputError(f"memory_limit={self.memory_limit}: is for GPUs. Leave it out on the CPU.")
        for model in dict.fromkeys(model for model, _ in self.tasks()):
            check_room(model, self.size(model), self.place, longest=LONGEST if self.growth else 1)

    @property
    def place(self) -> torch.device:
        """The device to measure on."""
        use_gpu = self.device == "cuda" or (self.device == "auto" and torch.cuda.is_available())
        return torch.device("cuda", torch.cuda.current_device()) if use_gpu else torch.device("cpu")

    def tasks(self) -> list[tuple[str, str]]:
        """Models and precisions, in the order of measurement."""
        kind = self.place.type
        precisions = self.precisions or _DEFAULT_PRECISIONS[kind]
        return [(model, precision) for model in self.models or _DEFAULT_MODELS[kind] for precision in precisions]

    def size(self, model: str) -> Size:
        """A model's size, with the batch that was asked for."""
        size = WORKLOADS[model].size(self.place)
        return size if self.batch is None else size.along("batch", self.batch)

    @property
    def turns(self) -> int:
        """How many rounds to run."""
        return self.rounds or _DEFAULT_ROUNDS[self.place.type]


def benchmark_step(settings: StepSettings, progress: Progress = silent) -> dict[str, Any]:
    """Measures, and returns rows with what they were measured on and with.

    Every row holds ``model``, ``engine``, ``precision``, ``batch``, ``ms`` (median over rounds), ``ratio`` (to plain
    eager training of the same model in the same precision), ``ratio_fastest`` (to the fastest plain step, whole step
    compiled and CUDA graphs included), ``ratio_own`` (to the plain step of its own framework), ``peak_mib`` (see
    `tacit.benchmarking.memory`), ``status`` and ``reason``.
    """
    place = settings.place
    contenders = chosen(settings.engines, place)
    stages = Stages(progress, 1 + settings.growth + settings.memory + (settings.memory_limit is not None))
    deadline = Deadline.after(settings.seconds or _DEFAULT_SECONDS[place.type])
    with alone.compiling_ahead(_compiled_later(settings, contenders), COMPILED) as compiled:
        rows = _measure_rows(
            settings, contenders, deadline.share(2 if settings.growth else 1), stages.next(), ready=compiled
        )
    if settings.memory and place.type == "cpu":
        rows = _with_resident_memory(rows, stages.next())
    result: dict[str, Any] = {"rows": rows}
    if settings.growth:
        sizes = [(model, precision, settings.size(model)) for model, precision in settings.tasks()]
        result["growth"] = measure_growth(place, sizes, contenders, deadline, stages.next())
    if settings.memory_limit is not None:
        result["memory_limit_mib"] = settings.memory_limit
        result["largest_batch"] = largest_batches(
            place, settings.memory_limit, settings.tasks(), contenders, stages.next()
        )
    return {
        **result,
        "hardware": environment.hardware(place),
        "versions": environment.versions(),
        "command": environment.command(),
        "date": environment.now(),
    }


def _compiled_later(settings: StepSettings, contenders: Sequence[Contender]) -> list[tuple[str, str, int]]:
    """The tasks after the first one, where a library is compiled for each."""
    if settings.place.type != "cpu" or all(contender.name != COMPILED for contender in contenders):
        return []
    return [(model, precision, settings.size(model).batch) for model, precision in settings.tasks()[1:]]


def _measure_rows(
    settings: StepSettings,
    contenders: Sequence[Contender],
    deadline: Deadline,
    progress: Progress,
    *,
    ready: Callable[[], None],
) -> list[Row]:
    jobs = settings.tasks()
    stages = Stages(progress, len(jobs))
    rows: list[Row] = []
    for index, (model, precision) in enumerate(jobs):
        share = deadline.share(len(jobs) - index)
        with products_in(precision):
            task = make_task_in_room(model, settings.place, precision, settings.size(model))
            lanes = measure(
                task, contenders, rounds=settings.turns, deadline=share, progress=stages.next(), ready=ready
            )
            rows += rows_of(task, lanes)
    return rows


def rows_of(task: Task, lanes: Sequence[Lane]) -> list[Row]:
    """One row a contender, with its ratios to the plain steps among them."""
    plain = {lane.contender.name: lane.ms for lane in lanes if lane.contender.kind == "plain"}
    in_torch = [lane.ms for lane in lanes if lane.contender.kind == "plain" and lane.contender.framework == "torch"]
    fastest = min((ms for ms in in_torch if ms is not None), default=None)
    return [_row(task, lane, plain.get("plain"), fastest, plain) for lane in lanes]


def _row(task: Task, lane: Lane, eager: float | None, fastest: float | None, plain: dict[str, float | None]) -> Row:
    own = eager if lane.contender.framework == "torch" else plain.get(lane.contender.framework)
    spread = [1e3 * min(lane.seconds), 1e3 * max(lane.seconds)] if lane.ms is not None else None
    return {
        "model": task.workload.name,
        "engine": lane.contender.name,
        "kind": lane.contender.kind,
        "precision": task.precision,
        "batch": task.size.batch,
        "ms": lane.ms,
        "ratio": _ratio(lane.ms, eager),
        "ratio_fastest": _ratio(lane.ms, fastest),
        "ratio_own": _ratio(lane.ms, own),
        "peak_mib": lane.peak_mib,
        "spread_ms": spread,
        "rounds": len(lane.seconds),
        "detail": lane.detail,
        "status": lane.status,
        "reason": lane.reason,
    }


def _ratio(ms: float | None, reference: float | None) -> float | None:
    return None if ms is None or not reference else ms / reference


def _with_resident_memory(rows: list[Row], progress: Progress) -> list[Row]:
    measured = []
    for index, row in enumerate(rows):
        if row["status"] == OK:
            progress(f"{row['model']} {row['precision']}: memory of {row['engine']}", index / len(rows))
            found = alone.memory_of(row["model"], row["engine"], row["precision"], row["batch"])
            row = {**row, **dataclasses.asdict(found)}
        measured.append(row)
    return measured
