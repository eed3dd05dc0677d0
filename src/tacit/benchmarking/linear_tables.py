"""Linear models on files: the census sample at every epsilon, and a file of many rows, timed."""

import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from tacit.core.privacy import Neighbours
from tacit.datasets.tables import Table
from tacit.linear import Guarantee
from tacit.linear.experiment import unsafe_test_scores
from tacit.linear.plain import plain_regression
from tacit.linear.tables import Task, TrainingRows, fit_table

Progress = Callable[[str], None]
EPSILONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
_DELTA = 1e-6
# (label, method, split, delta)
_CONTENDERS: Sequence[tuple[str, str, float | None, float]] = (
    ("functional", "functional", None, 0.0),
    ("functional, even split", "functional", 0.5, 0.0),
    ("adassp", "adassp", None, _DELTA),
    ("sufficient", "sufficient", None, _DELTA),
    ("newton", "newton", None, _DELTA),
    ("auto", "auto", None, _DELTA),
)
_MANY_FEATURES = 14
_ROWS_A_GROUP = 1 << 16


def measure_file(
    path: Path, schema: Path, target: str, repeats: int, split_seed: int | None, progress: Progress
) -> list[dict[str, Any]]:
    """Median and quartiles of the test error of every method at every epsilon, under two relations."""
    task = Task.of(Table.open(path, schema), target, test_fraction=0.2, split_seed=split_seed)
    rows = TrainingRows(task)
    plain, constant = unsafe_test_scores(task, plain_regression(rows))[0]
    found = []
    for relation in (Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE):
        for label, method, split, delta in _CONTENDERS:
            fitted = [
                fit_table(task, Guarantee(epsilon, delta, relation), method=method, split=split, rows=rows)
                for epsilon in EPSILONS
                for _ in range(repeats)
            ]
            scores = unsafe_test_scores(task, [model.coefficients for model in fitted])[0]
            quartiles = np.quantile(scores.reshape(len(EPSILONS), repeats), [0.5, 0.25, 0.75], axis=1).T
            for number, (epsilon, (median, low, high)) in enumerate(zip(EPSILONS, quartiles.tolist(), strict=True)):
                found.append(
                    {
                        **{"method": label, "chosen": fitted[number * repeats].method, "delta": delta},
                        **{"neighbours": relation.value, "epsilon": epsilon, "median": median},
                        **{"quartiles": [low, high], "plain": float(plain), "constant": float(constant)},
                        **{"draws": repeats, "split_seed": split_seed},
                    }
                )
            progress(f"{relation.value}: {label}")
    return found


def measure_many_rows(folder: Path, counts: Sequence[int], progress: Progress) -> list[dict[str, Any]]:
    """Seconds and memory of a fit to Parquet files of so many rows, each in a process of its own."""
    found = []
    for count in counts:
        path = folder / f"rows-{count}.parquet"
        _write_rows(path, count)
        for method in ("auto", "newton"):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                seconds, grown = pool.apply(_timed_fit, (path, method, count))
            found.append({"rows": count, "method": method, "seconds": seconds, "grown_mib": grown})
            progress(f"{count:,} rows, {method}: {seconds:.2f} s, {grown:.0f} MiB")
        path.unlink()
    return found


def _timed_fit(path: Path, method: str, count: int) -> tuple[float, float]:
    """Seconds of one fit with its reading, and by how much the process grew over it, in MiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    task = Task.of(Table.open(path, _many_schema()), "y")
    fit_table(task, Guarantee(1.0, _DELTA), method=method, examples=count)
    seconds = time.perf_counter() - started
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def _write_rows(path: Path, count: int) -> None:
    names = [*(f"x{number}" for number in range(_MANY_FEATURES)), "y"]
    kinds = pa.schema([(name, pa.float64()) for name in names])
    stream = np.random.default_rng(0)
    with pyarrow.parquet.ParquetWriter(path, kinds) as writer:
        for start in range(0, count, _ROWS_A_GROUP):
            features = stream.uniform(0, 1, (min(_ROWS_A_GROUP, count - start), _MANY_FEATURES))
            target = np.clip(features.mean(axis=1) + 0.1 * stream.standard_normal(len(features)), 0, 1)
            writer.write_table(pa.table(dict(zip(names, [*features.T, target], strict=True)), schema=kinds))


def _many_schema() -> dict[str, Any]:
    names = [*(f"x{number}" for number in range(_MANY_FEATURES)), "y"]
    return {"columns": {name: {"type": "number", "lower": 0, "upper": 1} for name in names}}
