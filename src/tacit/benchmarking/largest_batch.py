"""The largest batch that fits: doubled until it does not, then halved into place."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tacit.benchmarking.contenders import Contender
from tacit.benchmarking.measuring import OK, Lane, Progress, runs_once
from tacit.benchmarking.memory import MIB
from tacit.benchmarking.precision import products_in
from tacit.benchmarking.tasks import WORKLOADS, make_task
from tacit.core.validation import check_count, check_positive


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
            progress(f"{model} {precision}: largest batch of {contender.name}", len(found) / len(jobs))
            with products_in(precision):
                found.append(_largest_batch(device, model, precision, contender))
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


def _largest_batch(device: torch.device, model: str, precision: str, contender: Contender) -> dict[str, Any]:
    base = WORKLOADS[model].size(device)
    last: list[Lane] = []

    def fits(batch: int) -> bool:
        try:
            task = make_task(model, device, precision, size=base.along("batch", batch), lean=True)
        except torch.OutOfMemoryError:
            return False
        last[:] = [runs_once(task, contender)]
        return last[0].status == OK

    batch = largest_that_fits(fits, start=base.batch)
    return {
        "model": model,
        "engine": contender.name,
        "kind": contender.kind,
        "precision": precision,
        "batch": batch,
        "reason": last[0].reason if batch is None and last else None,
    }
