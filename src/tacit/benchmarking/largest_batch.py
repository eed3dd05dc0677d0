"""The largest batch that fits: doubled until it does not, then halved into place; guessed where a try takes long."""

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tacit.benchmarking.contenders import Contender
from tacit.benchmarking.measuring import OK, Lane, Progress, runs_once
from tacit.benchmarking.memory import MIB
from tacit.benchmarking.precision import products_in
from tacit.benchmarking.tasks import WORKLOADS, make_task
from tacit.core.validation import check_count, check_positive

_LONG = 2.0  # seconds for one try, as compilers take
_FAR = 4  # times the largest batch that was measured: too far to guess from there


def largest_that_fits(
    fits: Callable[[int], bool], *, start: int = 1, most: int = 2**20, tolerance: float = 0.02
) -> int | None:
    """The largest batch up to ``most`` for which ``fits`` holds, to within ``tolerance``; None where not even 1 does.

    ``fits`` must be monotone: what is smaller than a batch that fits, fits too. It is asked about twice the logarithm
    of the answer times, and a batch that fitted is returned, never one that was not tried.

    Args:
        start: a batch to begin with; the answer does not depend on it beyond the tolerance.
        tolerance: the answer times 1 + tolerance does not fit, or is not a whole number apart.
    """
    check_count("start", start)
    check_count("most", most, minimum=start)
    check_positive("tolerance", tolerance)
    low, high = 0, most + 1  # the largest that fitted, the smallest that did not
    trial = start
    while high - low > max(1, tolerance * low):
        if fits(trial):
            low = trial
        else:
            high = trial
        trial = _next_trial(low, high, most)
    return low or None


def largest_near(fits: Callable[[int], bool], guess: int, *, known: int = 0, step: float = 0.05) -> int | None:
    """The same from a guess, up or down by ``step`` of it until the answer changes; two tries where it was good.

    What is returned has fitted, and a batch larger by ``step`` of the guess has not. None where nothing fits.

    Args:
        known: a batch that has fitted already; no smaller one is tried.
    """
    check_count("guess", guess)
    check_positive("step", step)
    guess = max(guess, known)
    width = max(1, round(step * guess))
    if fits(guess):
        batch = guess
        while fits(batch + width):
            batch += width
        return batch
    smaller = (batch for batch in range(guess - width, known, -width) if fits(batch))
    return next(smaller, known or None)


def batch_in(limit: float, sizes: tuple[int, int], needed: tuple[float, float]) -> int:
    """The batch at which memory that grows linearly reaches the limit, from two batches and what they needed."""
    slope = (needed[1] - needed[0]) / (sizes[1] - sizes[0])
    return max(1, int(sizes[1] + (limit - needed[1]) / slope)) if slope > 0 else sizes[1]


def guess_largest(needed: Callable[[int], float | None], limit: float, start: int) -> int:
    """About the largest batch that ``limit`` holds, from what batches that fit need, with few tries.

    Extrapolated from the two largest that were measured, and from a larger one where the answer is far from them: what
    does not grow with the batch weighs the less the larger it is. Where a try does not fit, the batch that was tried.
    The first one after ``start`` is the batch that would fit if all memory grew with it, or twice ``start`` if less.
    """
    first = needed(start)
    if first is None:
        return start
    second = max(start + 1, min(2 * start, int(start * limit / first)))
    sizes, needs = (start, second), (first, needed(second))
    while needs[1] is not None:
        guess = batch_in(limit, sizes, (needs[0], needs[1]))
        if guess <= _FAR * sizes[1]:
            return guess
        sizes = sizes[1], math.isqrt(guess * sizes[1])
        needs = needs[1], needed(sizes[1])
    return sizes[1]


def _next_trial(low: int, high: int, most: int) -> int:
    if high > most:  # nothing has failed yet
        return min(2 * low, most)
    return (low + high) // 2 if low else high // 2


def largest_batches(
    device: torch.device,
    limit_mib: int,
    tasks: Sequence[tuple[str, str]],
    contenders: Sequence[Contender],
    progress: Progress,
) -> list[dict[str, Any]]:
    """The largest batch of each contender in that much of a GPU's memory, records included, in one chunk.

    ``ratio`` is to the largest batch of plain training. Contenders whose memory is not torch's are left out.
    """
    total = torch.cuda.get_device_properties(device).total_memory
    limited = [contender for contender in contenders if contender.framework == "torch"]
    jobs = [(model, precision, contender) for model, precision in tasks for contender in limited]
    found: list[dict[str, Any]] = []
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_mib * MIB / total), device)
    try:
        for model, precision, contender in jobs:
            label, share = f"{model} {precision}: largest batch of {contender.name}", len(found) / len(jobs)
            tell = functools.partial(_tell_try, progress, label, share)
            with products_in(precision):
                found.append(_largest_batch(device, limit_mib, model, precision, contender, tell))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    return with_ratios(found)


def with_ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the ratio of each batch to the largest plain one of the same model and precision."""
    largest: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["kind"] == "plain" and row["batch"]:
            key = row["model"], row["precision"]
            largest[key] = max(row["batch"], largest.get(key, 0))
    found = []
    for row in rows:
        plain = largest.get((row["model"], row["precision"]))
        found.append({**row, "ratio": row["batch"] / plain if row["batch"] and plain else None})
    return found


def _tell_try(progress: Progress, label: str, share: float, batch: int) -> None:
    progress(f"{label}: {batch}", share)


def _largest_batch(
    device: torch.device,
    limit_mib: int,
    model: str,
    precision: str,
    contender: Contender,
    tell: Callable[[int], None],
) -> dict[str, Any]:
    base = WORKLOADS[model].size(device)
    last: list[Lane] = []
    fitted = [0]

    @functools.cache
    def needed(batch: int) -> float | None:
        """MiB, records included; None where it does not fit."""
        tell(batch)
        try:
            task = make_task(model, device, precision, size=base.along("batch", batch), lean=True)
        except torch.OutOfMemoryError:
            return None
        last[:] = [runs_once(task, contender)]
        if last[0].status != OK:
            return None
        fitted.append(batch)
        return (last[0].peak_mib or 0.0) + sum(part.numel() * part.element_size() for part in task.records) / MIB

    def fits(batch: int) -> bool:
        return needed(batch) is not None

    started = time.perf_counter()
    batch = None
    if fits(base.batch) and time.perf_counter() - started > _LONG:
        guess = guess_largest(needed, limit_mib, base.batch)
        batch = largest_near(fits, guess, known=max(fitted))
    if batch is None:  # tries are short, or the guess was far too high
        batch = largest_that_fits(fits, start=base.batch)
    return {
        "model": model,
        "engine": contender.name,
        "kind": contender.kind,
        "precision": precision,
        "batch": batch,
        "reason": last[0].reason if batch is None and last else None,
    }
