"""Digests of files on disk, and a note of which ones were found right so that they are not hashed at every
load.

The note, ``.verified.json``, lies in the data's own folder. It records size and modification time beside the
digest, and counts only while both are unchanged. Where the folder is not writable there is no note, and the
files are hashed again.
"""

import contextlib
import gzip
import hashlib
import json
import os
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from tacit.core.errors import InputError
from tacit.datasets.catalogue import FileInfo, SetInfo

_NOTE = ".verified.json"
_BLOCK = 1 << 20


def present(folder: Path, file: FileInfo) -> Path | None:
    """Where in ``folder`` the file lies, in whichever of its forms, or None."""
    return next((folder / name for name in file.accepted_names if (folder / name).is_file()), None)


def missing_files(folder: Path, info: SetInfo) -> list[FileInfo]:
    """The files of the set that ``folder`` does not hold."""
    return [file for file in info.files if present(folder, file) is None]


def content_digest(path: Path, *, unpack: bool, limit: int) -> str:
    """SHA-256 of the content, or words that say why there is none.

    At most ``limit`` bytes and one block are read, so that a file that unpacks without end is not followed.
    """
    total = hashlib.sha256()
    seen = 0
    try:
        with _open(path, unpack=unpack) as stream:
            while seen <= limit and (block := stream.read(_BLOCK)):
                total.update(block)
                seen += len(block)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        return f"no digest (the file cannot be unpacked: {error})"
    return total.hexdigest() if seen <= limit else f"no digest (the content is longer than {limit} bytes)"


def _open(path: Path, *, unpack: bool) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if unpack else path.open("rb")


def verify(folder: Path, file: FileInfo) -> Path:
    """The path of a file whose content is what was published; anything else is refused by name."""
    path = present(folder, file)
    if path is None:
        raise InputError(f"{folder / file.published_name}: the file is missing. Fetch the set again.")
    if not is_noted(path, file.sha256):
        found = content_digest(path, unpack=path.name != file.name, limit=file.size)
        if found != file.sha256:
            raise InputError(
                f"{path}: the file is corrupt or truncated: expected SHA-256 {file.sha256}, found {found}. "
                "Delete it and fetch it again."
            )
        note(path, file.sha256)
    return path


def is_noted(path: Path, digest: str) -> bool:
    """Whether the note in the file's folder vouches for this digest, and the file is unchanged since."""
    return _read_note(path.parent).get(path.name) == _entry(path, digest)


def note(path: Path, digest: str) -> None:
    """Records that ``path`` was found to have this digest; does nothing where the folder is not writable."""
    entries = _read_note(path.parent) | {path.name: _entry(path, digest)}
    written = path.parent / f"{_NOTE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        written.write_text(json.dumps(entries, indent=1), encoding="utf-8")
        written.replace(path.parent / _NOTE)


def _entry(path: Path, digest: str) -> dict[str, Any]:
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "digest": digest}


def _read_note(folder: Path) -> dict[str, Any]:
    """The note's entries; a missing, foreign or damaged note counts as none."""
    try:
        entries = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}
