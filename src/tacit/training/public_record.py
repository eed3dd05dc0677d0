"""Weights that a private run may begin from for nothing: those whose record says that nobody's data shaped them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.core.errors import InputError

NOBODYS = "none"  # private data behind weights that are public


def read_public_record(folder: Path, claims: Mapping[str, Any]) -> dict[str, Any]:
    """What was written about the weights in a folder, and their digest.

    Args:
        folder: holds ``run.json`` and ``model.safetensors``.
        claims: what the record must say, besides that there is no private data behind the weights; None asks that it
            says something.

    Raises:
        InputError: it says something else, or cannot be read: such weights are not known to be public.
    """
    try:
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        raise _refused(folder, f"{type(error).__name__}: {error}") from error
    if not isinstance(record, dict):
        raise _refused(folder, "its record is no object")
    wanted = {**claims, "private_data": NOBODYS}
    wrong = [name for name, value in wanted.items() if name not in record or value not in (None, record[name])]
    if wrong:
        raise _refused(folder, f"its record has no, or another, {', '.join(wrong)}")
    return {**record, "weights_sha256": digest}


def _refused(folder: Path, reason: str) -> InputError:
    return InputError(
        f"{str(folder)!r}: holds no weights that are known to be public ({reason}). Delete the folder, and have them "
        "made again."
    )
