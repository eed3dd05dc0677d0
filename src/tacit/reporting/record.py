"""What a report may know of a run: the whitelisted part of ``run.json`` and ``history.jsonl``.

A folder may hold more than a report may show, such as figures on training data that no budget paid for. Each
key that is read stands in this file; every other key is left where it is.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.core.errors import InputError

SCHEMA_VERSION = 1
STATUSES = ("finished", "interrupted", "failed")

PLAN_KEYS: Mapping[str, str] = {
    "algorithm": "Algorithm",
    "epsilon": "Epsilon asked for",
    "delta": "Delta",
    "noise_multiplier": "Noise multiplier",
    "clipping": "Clipping",
    "clip": "Clipping norm",
    "sampler": "Sampler",
    "sampling_rate": "Sampling rate",
    "expected_batch_size": "Expected batch size",
    "max_batch_size": "Largest batch size",
    "examples": "Examples (public)",
    "canaries": "Canaries in the places of examples",
    "steps": "Steps",
    "epochs": "Epochs",
    "neighbours": "Neighbouring relation",
    "unit": "Privacy unit",
    "accountant": "Accountant",
    "optimizer": "Optimizer",
    "learning_rate": "Learning rate",
    "momentum": "Momentum",
    "schedule": "Learning-rate schedule",
    "weight_decay": "Weight decay",
    "ema": "Averaging of the weights",
    "engine": "Gradient engine",
    "chunk_size": "Chunk size",
    "precision": "Precision",
}
VERSION_KEYS = ("tacit", "python", "torch", "numpy", "scipy", "dp-accounting", "dp_accounting", "scikit-learn")
HARDWARE_KEYS = (
    *("device", "accelerator", "gpu", "cpu", "processor", "machine"),
    *("cores", "threads", "memory", "system", "platform"),
)


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """The statement of a run. An ``epsilon`` of None means that there is no guarantee."""

    sentence: str
    epsilon: float | None
    delta: float | None
    accountant: str
    caveats: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Point:
    """One line of the history: what was spent, and possibly what was reached, after a number of steps."""

    seed: int
    step: int
    epsilon: float | None
    test_accuracy: float | None
    test_mse: float | None


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run as its report shows it; every field is public."""

    name: str
    created: str
    command: str
    dataset: str
    model: str
    status: str
    steps_done: int | None
    seeds: tuple[str, ...]
    guarantee: Guarantee
    epsilon_by_accountant: Mapping[str, float | None]
    plan: Mapping[str, Any]
    versions: Mapping[str, Any]
    hardware: Mapping[str, Any]
    test_accuracy: float | None
    test_accuracy_std: float | None
    test_mse: float | None
    test_mse_std: float | None
    seconds: float | None
    history: tuple[Point, ...]


def read_values(folder: Path) -> dict[str, Any]:
    """What ``run.json`` holds, of whichever command.

    Raises:
        InputError: it is missing, is not JSON or comes from a newer tacit.
    """
    path = folder / "run.json"
    run = _read_json(path)
    if run.get("schema") != SCHEMA_VERSION:
        raise InputError(
            f"schema={run.get('schema')!r} in {path}: this tacit reads {SCHEMA_VERSION}. "
            "Install the tacit that wrote it."
        )
    return run


def read_run(folder: Path) -> RunRecord:
    """The public record of a run folder.

    Raises:
        InputError: ``run.json`` is missing, is not JSON, comes from a newer tacit or lacks its statement, or
            a line of ``history.jsonl`` is not JSON. A last line that was cut off when its run died is passed
            over.
    """
    path, run = folder / "run.json", read_values(folder)
    metrics = mapping(run.get("metrics"))
    steps_done = number(run.get("steps_done"))
    return RunRecord(
        name=text(run.get("name")) or folder.resolve().name,
        created=text(run.get("created")),
        command=text(run.get("command")),
        dataset=text(run.get("dataset")),
        model=text(run.get("model")),
        status=_status(run.get("status"), path),
        steps_done=None if steps_done is None else int(steps_done),
        seeds=tuple(str(seed) for seed in run.get("seeds") or ()),
        guarantee=_guarantee(run.get("statement"), path),
        epsilon_by_accountant={
            str(name): number(value) for name, value in mapping(run.get("epsilon_by_accountant")).items()
        },
        plan=picked(run.get("plan"), PLAN_KEYS),
        versions=picked(run.get("versions"), VERSION_KEYS),
        hardware=picked(run.get("hardware"), HARDWARE_KEYS),
        test_accuracy=number(metrics.get("test_accuracy")),
        test_accuracy_std=number(metrics.get("test_accuracy_std")),
        test_mse=number(metrics.get("test_mse")),
        test_mse_std=number(metrics.get("test_mse_std")),
        seconds=number(metrics.get("seconds")),
        history=_read_history(folder / "history.jsonl"),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"run={str(path.parent)!r}: has no run.json. Give the folder that a run wrote.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}). Run again, or restore the file.") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: must hold one JSON object. Run again, or restore the file.")
    return value


def _read_history(path: Path) -> tuple[Point, ...]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}). Run again, or restore the file.") from error
    points = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            points.append(_point(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # Only a line without its end can be the last words of a run that was killed.
            if number == len(lines):
                break
            raise InputError(
                f"{path}: line {number} is not a step of a run ({error}). Remove the line, or run again."
            ) from error
    return tuple(points)


def _point(value: Mapping[str, Any]) -> Point:
    return Point(
        seed=int(value["seed"]),
        step=int(value["step"]),
        epsilon=number(value.get("epsilon")),
        test_accuracy=number(value.get("test_accuracy")),
        test_mse=number(value.get("test_mse")),
    )


def _guarantee(value: object, path: Path) -> Guarantee:
    statement = mapping(value)
    if not statement.get("sentence"):
        raise InputError(f"{path}: has no statement. Run again: a report without its statement says nothing.")
    return Guarantee(
        sentence=str(statement["sentence"]),
        epsilon=number(statement.get("epsilon")),
        delta=number(statement.get("delta")),
        accountant=text(statement.get("accountant")),
        caveats=tuple(str(caveat) for caveat in statement.get("caveats") or ()),
    )


def _status(value: object, path: Path) -> str:
    if value not in STATUSES:
        raise InputError(f"status={value!r} in {path}: must be one of {', '.join(STATUSES)}. Run again.")
    return str(value)


def picked(value: object, keys: Mapping[str, str] | tuple[str, ...]) -> dict[str, Any]:
    """The known keys that are there, in the order of the whitelist."""
    given = mapping(value)
    return {key: given[key] for key in keys if given.get(key) is not None}


def mapping(value: object) -> Mapping[str, Any]:
    """A mapping, or an empty one for everything else."""
    return value if isinstance(value, dict) else {}


def text(value: object) -> str:
    """Words; those of a list in one line."""
    if isinstance(value, list):
        return " ".join(str(part) for part in value)
    return "" if value is None else str(value)


def number(value: object) -> float | None:
    """A finite number, or None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
