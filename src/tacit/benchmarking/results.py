"""Results in files, each with what it was measured on and with."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.benchmarking.result_checks import REMEDY, check_step_result
from tacit.core.errors import InputError
from tacit.core.plain import to_json


def check_writable(name: str, path: Path | None) -> None:
    """Refuses a file that cannot be written before anything is measured for it."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise InputError(f"{name}={str(path)!r}: cannot be written ({error.strerror}). Choose another file.") from error
    if not path.stat().st_size:
        path.unlink()


def write_result(result: dict[str, Any], path: Path) -> None:
    """Writes a result as JSON."""
    path.write_text(to_json(result, indent=1) + "\n", encoding="utf-8")


def read_result(path: Path) -> dict[str, Any]:
    """A result of ``tacit bench step`` that `write_result` wrote.

    Raises:
        InputError: the file cannot be read, or holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(found, ensure_ascii=False).encode()  # half a character could be read, and not written again
    except OSError as error:
        raise InputError(f"result={str(path)!r}: cannot be read ({error.strerror}). {REMEDY}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"result={str(path)!r}: is no JSON ({error}). {REMEDY}") from error
    return check_step_result(str(path), found)


def merged(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several results of one machine as one: all rows, every command, the last date.

    A contender that several of them measured on the same task has its row from the one with the most rows of that task:
    what was timed in turn belongs together, and growth begins with a few contenders alone.

    Raises:
        InputError: the results come from different hardware or versions, so that their rows must not be compared.
    """
    first, *others = results
    for key in ("hardware", "versions"):
        if any(other.get(key) != first.get(key) for other in others):
            raise InputError(f"results: differ in {key}, so that they cannot be compared. Draw a page for each.")
    whole = dict(first)
    for other in others:
        for key in ("growth", "largest_batch"):
            if key in other:
                whole[key] = [*whole.get(key, []), *other[key]]
        if "memory_limit_mib" in other:
            whole.setdefault("memory_limit_mib", other["memory_limit_mib"])
    whole["rows"] = _each_contender_once([result["rows"] for result in results])
    whole["command"] = "; ".join(str(result.get("command", "")) for result in results)
    whole["date"] = max(str(result.get("date", "")) for result in results)
    return whole


def _each_contender_once(runs: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    counts = [Counter(_task(row) for row in rows) for rows in runs]
    best: dict[object, int] = {}
    for run, rows in enumerate(runs):
        for row in rows:
            held = best.setdefault((_task(row), row.get("engine")), run)
            if counts[run][_task(row)] > counts[held][_task(row)]:
                best[_task(row), row.get("engine")] = run
    return [row for run, rows in enumerate(runs) for row in rows if best[_task(row), row.get("engine")] == run]


def _task(row: dict[str, Any]) -> tuple[object, ...]:
    return row.get("model"), row.get("precision"), row.get("batch")
