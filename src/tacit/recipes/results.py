"""Result files: one JSON file a measurement, named by what was measured."""

import contextlib
import json
import math
import os
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit.core.errors import InputError
from tacit.core.plain import to_json
from tacit.recipes.earlier_settings import earlier_settings, settings_of
from tacit.reporting.rendering import write_whole

REQUIRED = ("name", "measured", "epsilon", "seeds", "hardware", "versions", "command", "date")
_ON_THE_PAGE = (
    *("method", "dataset", "knobs", "measured_on", "std", "epsilon_by_accountant", "noise_multiplier", "steps"),
    *("seconds_a_seed", "history"),
)
_OF_SWEEPS = ("name", "over", "settings", "measured_on", "seeds", "command")
SWEEP = "sweep"


def write_result(result: dict[str, Any], folder: Path, changes: Iterable[str]) -> Path:
    """Writes ``FOLDER/NAME-CHANGES.json``; the same measurement again replaces the file.

    One that was interrupted has a name of its own, ``NAME-CHANGES-1-of-3-seeds.json``, and replaces no whole one.
    """
    words = [str(result["name"]), *(change.replace("=", "-") for change in changes)]
    if _was_interrupted(result):
        words.append(f"{result['seeds']} of {result['seeds_asked']} seeds")
    path = folder / f"{re.sub(r'[^a-z0-9.]+', '-', ' '.join(words).lower())}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, to_json(result, indent=1) + "\n")
    except OSError as error:
        raise _cannot_be_written(folder, error) from error
    return path


@contextlib.contextmanager
def folder_for_result(folder: Path | None) -> Iterator[None]:
    """Makes the folder that `write_result` will be given, before anything is trained for it; None asks for none.

    A folder that was made here and is still empty at the end is removed again.

    Raises:
        InputError: nothing can be written there.
    """
    made = [] if folder is None else [part for part in (folder, *folder.parents) if not os.path.exists(part)]
    try:
        if folder is not None:
            _make_writable(folder)
        yield
    finally:
        with contextlib.suppress(OSError):  # the first that holds something stays, and all above it
            for part in made:
                part.rmdir()


def _make_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass  # a folder that is there already may still refuse a file
    except OSError as error:
        raise _cannot_be_written(folder, error) from error


def _cannot_be_written(folder: Path, error: OSError) -> InputError:
    return InputError(f"out={str(folder)!r}: cannot be written ({error.strerror}). Choose another folder.")


def read_results(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All measurements and all sweeps of a folder, by file name.

    A measurement's ``earlier`` is what its recipe has changed since (`earlier_settings`).
    What was interrupted is left out with a warning: whoever may stop when the seeds so far look well has chosen them.

    Raises:
        InputError: a file that is no result, or has not all that a page shows.
    """
    _check_folder(folder)
    found = [_read(path) for path in sorted(folder.glob("*.json"))]
    for result in found:
        _check_fields(folder / result["file"], result, _OF_SWEEPS if "rows" in result else _ON_THE_PAGE)
    for result in filter(_was_interrupted, found):
        warnings.warn(
            f"{result['file']}: was interrupted after {result['seeds']} of {result['seeds_asked']} seeds, and is left "
            "out. Measure it again, or delete it.",
            stacklevel=2,
        )
    whole = [result for result in found if not _was_interrupted(result)]
    return [r for r in whole if "rows" not in r], [r for r in whole if "rows" in r]


def results_by_recipe(folder: Path, *, required: bool) -> dict[str, list[dict[str, Any]]]:
    """The measurements of a folder by recipe and in order of epsilon, other files and what was interrupted left out;
    none where there is no such folder, unless it is ``required``.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    if not required and not folder.is_dir():
        return found
    _check_folder(folder)
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(InputError, OSError):
            result = _read(path)
            if "rows" not in result and not _was_interrupted(result):
                found.setdefault(result["name"], []).append(result)
    for results in found.values():
        results.sort(key=lambda result: math.inf if result["epsilon"] is None else result["epsilon"])
    return found


def _was_interrupted(result: Mapping[str, Any]) -> bool:
    """Whether fewer seeds ended than were asked for; files from before that was written down are whole."""
    return bool(result.get("seeds_asked", 0) > result.get("seeds", 0))


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"results={str(folder)!r}: there is no such folder. Make results with tacit recipe run --out.")


def _check_fields(path: Path, result: Any, fields: Iterable[str]) -> None:
    missing = [field for field in fields if not isinstance(result, dict) or field not in result]
    if missing:
        raise InputError(f"result={str(path)!r}: has no {', '.join(missing)}. Measure it again with tacit recipe run.")


def _read(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"result={str(path)!r}: cannot be read ({error.strerror}). Move it away.") from error
    except ValueError as error:
        raise InputError(f"result={str(path)!r}: is no JSON ({error}). Measure it again.") from error
    _check_fields(path, result, () if isinstance(result, dict) and "rows" in result else REQUIRED)
    found = {**result, "file": path.name}
    if "rows" in result:
        return found
    return {**found, "settings": settings_of(result) or {}, "earlier": earlier_settings(result)}
