"""Faults of the machine: a full disk, a folder that is read-only, a clock moved back, a power loss in the ledger's log;
and of its keeper, who puts an older copy of a checkpoint back.

Each ends in a clear refusal, after which the run goes on once the fault is gone, or in an exact continuation.
"""

import abc
import contextlib
import ctypes
import datetime
import json
import mmap
import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
from pathlib import Path

from tacit.benchmarking.torture.processes import Hooks, killed_at, run_process, stopped_before_noise
from tacit.benchmarking.torture.victim import Trial
from tacit.ledger.history import link


class Fault(abc.ABC):
    """A fault that strikes a run between two of its processes, or before the first.

    Attributes:
        name: what the figures call it.
        must_refuse: whether some runs of a series have to be refused; else the fault was not there.
        is_final: whether a run that was refused is lost, because the fault took away what explains it.
        forbids_spending: whether nothing at all may be charged while the fault lasts.
        least_kills: how many processes must have died before it can strike.
        engine: what the next process computes its sums with.

    Args:
        trial: whom it strikes.
        choice: of its particulars.
    """

    name: str
    must_refuse = True
    is_final = False
    forbids_spending = False
    least_kills = 0
    engine = "auto"

    def __init__(self, trial: Trial, choice: random.Random) -> None:
        self._trial, self._choice = trial, choice

    def hooks(self) -> Hooks:
        """What the processes before the fault do where."""
        return {}

    def strike(self) -> None:  # noqa: B027 - nothing unless told, as the two below
        """Does to the files what the fault does."""

    def prepare(self) -> None:  # noqa: B027
        """Does to the next process what the fault does; called in it."""

    def lift(self) -> None:  # noqa: B027
        """Undoes it after a refusal."""


class DiskFull(Fault):
    """No file grows beyond a size. A limit of the process stands for the end of the disk: the system ends a write in
    the middle.
    """

    name = "disk full"

    def __init__(self, trial: Trial, choice: random.Random) -> None:
        super().__init__(trial, choice)
        small, large = 10 ** choice.uniform(1.5, 4.5), choice.uniform(33_000, 250_000)
        self._limit = int(choice.choice((small, large)))  # within the first files, or within the ledger's log

    def prepare(self) -> None:
        """Sets the limit."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._limit, self._limit))


class ReadOnly(Fault):
    """The checkpoint's folder, the ledger's, or the ledger's file cannot be written to."""

    name = "read-only"
    forbids_spending = True

    def strike(self) -> None:
        """Takes the permission away."""
        trial = self._trial
        trial.account()
        path = self._choice.choice((trial.checkpoint, trial.folder, trial.ledger))
        self._path = path if path.exists() else trial.folder
        self._mode = self._path.stat().st_mode
        self._path.chmod(self._mode & ~0o222)

    def prepare(self) -> None:
        """Nothing is read-only to the superuser, unless it gives its privileges up."""
        drop_privileges()

    def lift(self) -> None:
        """Gives the permission back."""
        self._path.chmod(self._mode)


class ClockBack(Fault):
    """The ledger's records are ahead of the clock, by more than clocks of a team may differ."""

    name = "clock moved back"
    forbids_spending = True

    def strike(self) -> None:
        """Moves all records forward, which is the same as the clock back."""
        self._trial.account()
        self._seconds = self._choice.choice((360, 3600, 86_400))
        move_records(self._trial.ledger, self._seconds)

    def lift(self) -> None:
        """Moves them back."""
        move_records(self._trial.ledger, -self._seconds)


class PowerLoss(Fault):
    """Of what was not synchronised anything may be lost: the log beyond its last synchronisation, digests of sums."""

    name = "power loss"
    must_refuse = False
    least_kills = 1

    def __init__(self, trial: Trial, choice: random.Random) -> None:
        super().__init__(trial, choice)
        self._log = trial.ledger.with_name(f"{trial.ledger.name}-wal")
        self._noted = mmap.mmap(-1, 16)  # inode and size of the synchronised log; shared with forked processes

    def hooks(self) -> Hooks:
        """Notes how much of the log is synchronised."""
        return {("SqliteDatabase._make_durable", "return"): self._note}

    def strike(self) -> None:
        """Tears the log; what processes shared is gone with them."""
        self._trial.ledger.with_name(f"{self._trial.ledger.name}-shm").unlink(missing_ok=True)
        self._tear(self._log, self._synchronised())
        for sums in self._trial.checkpoint.glob("sums-*"):
            os.truncate(sums, self._choice.randint(0, sums.stat().st_size))

    def _note(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            found = self._log.stat()
            self._noted[:] = struct.pack("<QQ", found.st_ino, found.st_size)

    def _synchronised(self) -> int:
        inode, size = struct.unpack("<QQ", self._noted)
        return int(size) if self._log.exists() and self._log.stat().st_ino == inode else 0

    def _tear(self, path: Path, kept: int) -> None:
        if path.exists():
            content = path.read_bytes()
            cut = self._choice.randint(min(kept, len(content)), len(content))
            lost = len(content) - cut
            path.write_bytes(content[:cut] + self._choice.choice((b"", bytes(lost), self._choice.randbytes(lost))))


class LyingDisk(PowerLoss):
    """A power loss on a disk that had not written what it said it had: log and database may end anywhere."""

    name = "power loss on a lying disk"
    is_final = True

    def strike(self) -> None:
        """Tears the database, too."""
        super().strike()
        if self._choice.random() < 0.3:
            self._tear(self._trial.ledger, 0)

    def _synchronised(self) -> int:
        return 0


class OlderCopy(Fault):
    """A run stops in order and goes on, and then the checkpoint of its stop is put back.

    It says that nothing was drawn after it, so that any machine might go on with it, or draw again for no more than the
    steps that were done. Where the run has a key, another engine tries.
    """

    name = "older copy of an orderly stop"
    engine = "reference"

    def __init__(self, trial: Trial, choice: random.Random) -> None:
        super().__init__(trial, choice)
        self._stop, self._further = choice.randint(1, 9), choice.choice((1, 1, 2, 3))

    def strike(self) -> None:
        """Lets a process stop in order and the next one draw some steps, and puts the copy back."""
        trial, older = self._trial, self._trial.folder / "older"
        run_process(trial, hooks=stopped_before_noise(self._stop))
        shutil.copytree(trial.checkpoint, older)
        run_process(trial, hooks=killed_at("sum seen, not marked", self._further + 1, trial))
        shutil.rmtree(trial.checkpoint)
        older.rename(trial.checkpoint)
        if trial.kind == "redrawn":
            trial.key.unlink(missing_ok=True)


FAULTS: tuple[type[Fault], ...] = (DiskFull, ReadOnly, ClockBack, PowerLoss, LyingDisk, OlderCopy)


def drop_privileges() -> None:
    """Gives up every capability, so that permissions hold for the superuser too."""
    capabilities = ctypes.create_string_buffer(24)
    header = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0))  # version 3, this process
    if ctypes.CDLL(None, use_errno=True).capset(header, capabilities) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def move_records(path: Path, seconds: int) -> None:
    """Changes the time of every record of a ledger's file, with hashes that fit."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        head = ""
        for number, body in database.execute("SELECT number, body FROM history ORDER BY number").fetchall():
            record = json.loads(body)
            created = datetime.datetime.fromisoformat(record["created"]) + datetime.timedelta(seconds=seconds)
            body = json.dumps({**record, "created": created.isoformat(timespec="seconds")})
            head = link(head, number, body)
            database.execute("UPDATE history SET body = ?, hash = ? WHERE number = ?", (body, head, number))
        database.execute("UPDATE accounts SET head = ?", (head,))
