"""A checkpoint's files: states that are whole or absent, the last few of them, and the run's secret key.

A state is one safetensors file with a JSON header, never a pickle: reading it runs nothing. It is written under
another name, flushed to the disk and renamed, and then the folder is flushed, so that a kill or a power loss at any
moment leaves the old states or the new one. A digest over header and tensors tells a damaged file.

The key is in a file of its own that its owner alone can read. `Store.destroy_key` overwrites it and takes it away.
That is as much as a program can do: a copying file system, a solid-state disk's spare blocks, snapshots, backups and
swap may keep what was written once. Put the folder on an encrypted disk without backups where that matters.
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tacit.core.errors import InputError
from tacit.training.fingerprint import digest_tensors
from tacit.training.packing import Tensors

SCHEMA_VERSION = 3  # with 2 dropout drew from torch's seed, with 1 lots came from other streams
_STATE = re.compile(r"state-(\d{4})-(\d{9})\.safetensors")
_PART = ".part"
_KEY_SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class Saved:
    """One state of a run.

    Attributes:
        header: plain JSON values.
        tensors: what the header's state refers to.
    """

    header: dict[str, Any]
    tensors: Tensors


class Store:
    """The folder of one run's checkpoint. One process at a time holds it.

    Args:
        folder: made where it is missing; its parent must exist.
        keep: how many states stay.
    """

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder, self._keep = folder, keep
        with self._refusal():
            folder.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with self._refusal():
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for leftover in folder.glob(f"*{_PART}"):
                    if leftover.name.startswith("key"):
                        _overwrite_and_unlink(leftover)
                    else:
                        leftover.unlink()
                # Before anything is changed elsewhere: a folder that takes no new file would stop the run halfway.
                probe = folder / f"probe{_PART}"
                probe.touch()
                probe.unlink()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets another process have the folder."""
        os.close(self._lock)

    def write(self, stretch: int, step: int, saved: Saved) -> None:
        """Adds a state, durably and in one piece, then drops the oldest beyond those to keep.

        Raises:
            InputError: it cannot be written; the states before it are untouched.
        """
        text = json.dumps(saved.header, sort_keys=True, allow_nan=False)
        metadata = {"tacit": text, "digest": _digest(text, saved.tensors)}

        def save(path: Path) -> None:
            save_file(saved.tensors, path, metadata=metadata)

        with self._refusal():
            self._replace(f"state-{stretch:04}-{step:09}.safetensors", save)
            for old in self._states()[self._keep :]:
                old.unlink()

    def newest(self) -> Saved | None:
        """The newest state that is whole; None where there is none at all.

        Raises:
            InputError: there are states, and all of them are damaged.
        """
        damaged: list[str] = []
        for path in self._states():
            try:
                return read_state(path)
            except InputError as error:
                damaged.append(str(error))
        if damaged:
            raise InputError(
                f"checkpoint={str(self.folder)!r}: no state in it can be read. {damaged[0]} What the run reserved "
                "stays counted. Restore the folder, or start a new run in another one."
            )
        return None

    def write_key(self, run: str, stretch: int, key: bytes) -> None:
        """Keeps the secret key of a stretch of a run, readable by its owner alone; the one before is destroyed."""
        self.destroy_key()
        text = json.dumps({"schema": _KEY_SCHEMA, "run": run, "stretch": stretch, "key": key.hex()})

        def save(path: Path) -> None:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(text)

        with self._refusal():
            self._replace("key", save)

    def read_key(self, run: str, stretch: int) -> bytes | None:
        """The key of this stretch of this run; None where there is none, or another's.

        Raises:
            InputError: others than its owner may have read it.
        """
        path = self.folder / "key"
        with self._refusal():
            try:
                text, mode = path.read_text(encoding="ascii", errors="replace"), path.stat()
            except FileNotFoundError:
                return None
        if stat.S_IMODE(mode.st_mode) & 0o077 or mode.st_uid != os.geteuid():
            raise InputError(
                f"key={str(path)!r}: others than you may read it (mode {stat.S_IMODE(mode.st_mode):04o}), and with it "
                "subtract the noise. If nobody did, take it back with chmod 600; else delete it and resume with "
                "redraw=True (--redraw)."
            )
        try:
            values = json.loads(text)
            found = values["schema"], values["run"], values["stretch"]
            return bytes.fromhex(values["key"]) if found == (_KEY_SCHEMA, run, stretch) else None
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    def destroy_key(self) -> None:
        """Overwrites the key and takes its file away; see the module's limits."""
        with self._refusal():
            if (self.folder / "key").exists():
                _overwrite_and_unlink(self.folder / "key")
                _flush(self.folder)

    def discard(self) -> None:
        """Takes away the key and every state: for a run that was refused before it began."""
        self.destroy_key()
        with self._refusal():
            for path in self._states():
                path.unlink()

    def sums_path(self, stretch: int) -> Path:
        """Where the digests of a stretch's sums are."""
        return self.folder / f"sums-{stretch:04}"

    def forget_sums(self, stretch: int) -> None:
        """Takes the digests of a stretch's sums away."""
        with self._refusal():
            self.sums_path(stretch).unlink(missing_ok=True)

    def _states(self) -> list[Path]:
        """The files of states, newest first; by stretch, then by step."""
        with self._refusal():
            return sorted((path for path in self.folder.iterdir() if _STATE.fullmatch(path.name)), reverse=True)

    def _replace(self, name: str, save: Callable[[Path], None]) -> None:
        part = self.folder / f"{name}{_PART}"
        try:
            save(part)
            _flush(part)
            os.replace(part, self.folder / name)
            _flush(self.folder)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def _refusal(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            raise InputError(
                f"checkpoint={str(self.folder)!r}: another process is using it. Wait for it, or choose another folder."
            ) from None
        except (OSError, SafetensorError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            full = any(os.strerror(code) in reason for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
            remedy = "Make room, then resume." if full else "Choose a folder of your own on a disk with room."
            raise InputError(f"checkpoint={str(self.folder)!r}: cannot be written ({reason}). {remedy}") from error


def read_state(path: Path) -> Saved:
    """A state from its file, if it is whole.

    Raises:
        InputError: it is cut short, changed, or of a form that this version does not know.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        text = metadata["tacit"]
        if metadata["digest"] != _digest(text, tensors):
            raise ValueError("its digest does not fit")
        header = json.loads(text)
        schema = header["schema"]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path.name}: is damaged or no checkpoint ({error}).") from None
    if schema != SCHEMA_VERSION:
        raise InputError(f"{path.name}: its form is version {schema!r}, and this tacit knows {SCHEMA_VERSION}.")
    return Saved(header, tensors)


def _digest(text: str, tensors: Tensors) -> str:
    of_tensors = digest_tensors({name: tensors[name] for name in sorted(tensors)})
    return hashlib.blake2b(f"{text}{of_tensors}".encode(), digest_size=16).hexdigest()


def _overwrite_and_unlink(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
