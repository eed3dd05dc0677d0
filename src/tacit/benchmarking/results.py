"""Results in files, each with what it was measured on and with."""

import json
from pathlib import Path
from typing import Any

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
    """A result that `write_result` wrote."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"result={str(path)!r}: cannot be read ({error.strerror}). Give a file of tacit bench."
        ) from error
    except ValueError as error:
        raise InputError(f"result={str(path)!r}: is no JSON ({error}). Give a file of tacit bench.") from error
    if not isinstance(found, dict) or not isinstance(found.get("rows"), list):
        raise InputError(f"result={str(path)!r}: holds no rows. Give a file of tacit bench.")
    return found
