"""How cost grows: one axis of a model doubled a few times, and the exponent of the power law that fits."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from tacit.benchmarking.contenders import Contender, refusing
from tacit.benchmarking.measuring import Deadline, Lane, Progress, Stages, measure
from tacit.benchmarking.precision import products_in
from tacit.benchmarking.tasks import Size, make_task
from tacit.core.errors import InputError

_ROUNDS = 3
_SIZES = 3
LONGEST = 2 ** (_SIZES - 2)  # times its own length, to which an axis is doubled from half of it
_ALWAYS_SECONDS = 0.5  # steps of this length are measured whatever the time


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    r"""The p of the power law :math:`c \cdot n^p` closest to the costs in the logarithm: the least-squares slope.

    .. math:: p = \frac{\sum_i (x_i - \bar x)(y_i - \bar y)}{\sum_i (x_i - \bar x)^2},
        \qquad x_i = \log n_i, \quad y_i = \log c_i

    Raises:
        InputError: fewer than two different sizes, or a size or cost that is not above 0.
    """
    if len(sizes) != len(costs) or len(set(sizes)) < 2:
        raise InputError(f"sizes={list(sizes)}: an exponent needs costs at two different sizes or more.")
    if min(*sizes, *costs) <= 0:
        raise InputError(f"costs={list(costs)}: must be above 0, as must the sizes.")
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - x_mean) ** 2 for a in x)


def measure_growth(
    device: torch.device,
    tasks: Sequence[tuple[str, str, Size]],
    contenders: Sequence[Contender],
    deadline: Deadline,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Every axis of every model, precision and size at half, once and twice its length; one row a contender."""
    jobs = [(model, precision, size, axis) for model, precision, size in tasks for axis in size.axes()]
    stages = Stages(progress, len(jobs) * _SIZES)
    found: list[dict[str, Any]] = []
    for index, (model, precision, size, axis) in enumerate(jobs):
        start = max(1, getattr(size, axis) // 2)
        lengths = [start * 2**power for power in range(_SIZES)]
        share = deadline.share(len(jobs) - index)
        lanes: list[list[Lane]] = []
        for number, length in enumerate(lengths):
            part = share.share(len(lengths) - number)
            with products_in(precision):
                task = make_task(model, device, precision, size=size.along(axis, length))
                able = [_unless_too_slow(lane, part) for lane in lanes[-1]] if lanes else contenders
                lanes.append(measure(task, able, rounds=_ROUNDS, deadline=part, progress=stages.next()))
        found += [growth_row((model, precision, axis), lengths, each) for each in zip(*lanes, strict=True)]
    return found


def _unless_too_slow(lane: Lane, deadline: Deadline) -> Contender:
    """The contender, or its refusal where a step of the smaller size already took longer than all have together."""
    left = deadline.left()
    if lane.ms is None or left is None or lane.ms / 1e3 <= max(left, _ALWAYS_SECONDS):
        return lane.contender
    return refusing(lane.contender, "too slow for the time that is left")


def growth_row(what: tuple[str, str, str], sizes: Sequence[int], lanes: Sequence[Lane]) -> dict[str, Any]:
    """How one contender's time and memory grew along an axis; exponents over the sizes that ran."""
    model, precision, axis = what
    ms, peaks = [lane.ms for lane in lanes], [lane.peak_mib for lane in lanes]
    return {
        "model": model,
        "engine": lanes[0].contender.name,
        "precision": precision,
        "axis": axis,
        "sizes": list(sizes),
        "ms": ms,
        "exponent": _exponent_of_known(sizes, ms),
        "peak_mib": peaks,
        "memory_exponent": _exponent_of_known(sizes, peaks),
        "status": [lane.status for lane in lanes],
    }


def _exponent_of_known(sizes: Sequence[int], costs: Sequence[float | None]) -> float | None:
    known = [(size, cost) for size, cost in zip(sizes, costs, strict=True) if cost is not None and cost > 0]
    return exponent([size for size, _ in known], [cost for _, cost in known]) if len(known) > 1 else None
