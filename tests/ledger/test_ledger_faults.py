"""Power loss, a killed server, a full disk: what was acknowledged is there afterwards, and the rest is refused."""

import contextlib
import itertools
import os
import random
import resource
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dp_accounting
import pytest
import sqlalchemy as sa

from tacit.benchmarking.postgres_server import Server
from tacit.core import Budget, LedgerError
from tacit.ledger import Account, Ledger, Reservation, repeated

STEP = dp_accounting.GaussianDpEvent(1000.0)
SECTOR = 512


def opened(address: str | Path) -> Account:
    return Ledger.create(address, dataset="d", budget=Budget(3.0, 1e-5)).account("d")


def reserve(account: Account, run: str = "r", steps: int = 1) -> Reservation:
    return account.reserve(repeated(STEP), steps, run=run, neighbours=account.neighbours, unit=account.unit)


class Moment(NamedTuple):
    """The files just before the log is synchronised: what the disk is sure to hold, and what it may hold."""

    acknowledged: int
    database: bytes
    synchronised_log: bytes
    written_log: bytes


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> list[Moment]:
    """Of some hundred reservations, during which SQLite moves the log into the database and begins it anew."""
    path = tmp_path_factory.mktemp("power") / "ledger.db"
    account, found = opened(path), []
    log = Path(f"{path}-wal")
    reserve(account)
    known = [path.read_bytes(), log.read_bytes()]
    acknowledged = 1
    real = os.fdatasync

    def spy(file: int) -> None:
        database, written = path.read_bytes(), log.read_bytes()
        if database == known[0]:  # else SQLite has synchronised the log itself meanwhile
            found.append(Moment(acknowledged, database, known[1], written))
        real(file)
        known[:] = database, written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", spy)
        for _ in range(300):
            reserve(account, "r" * 3_000)
            acknowledged += 1
    assert len({moment.database for moment in found}) > 1
    assert any(moment.written_log[:32] != moment.synchronised_log[:32] for moment in found)  # begun anew
    return found


def torn(old: bytes, new: bytes, choice: random.Random) -> bytes:
    """What was written reached each sector or not, or is garbage there, and the file may end early.

    The bytes before a write stay as they are, as SQLite relies on (its "powersafe overwrite").
    """
    result, arrives = bytearray(old[: len(new)].ljust(len(new), b"\0")), choice.choice((0.6, 1.0))
    for start in range(0, len(new), SECTOR):
        wanted = new[start : start + SECTOR]
        if result[start : start + SECTOR] == wanted:
            continue
        written = next(at for at, byte in enumerate(wanted) if byte != result[start + at])
        fate, place = choice.random(), slice(start + written, start + len(wanted))
        if fate < arrives:
            result[place] = wanted[written:]
        elif fate < 0.8:
            result[place] = choice.randbytes(len(wanted[written:]))
    return bytes(result if arrives == 1 else result[: choice.randint(min(len(old), len(new)), len(new))])


def recovered(folder: Path, database: bytes, log: bytes) -> Account:
    path = folder / "ledger.db"
    for suffix, content in (("", database), ("-wal", log)):
        Path(f"{path}{suffix}").write_bytes(content)
    Path(f"{path}-shm").unlink(missing_ok=True)
    return Ledger.open(path).account("d")


def test_after_a_power_loss_everything_acknowledged_is_there(moments: list[Moment], tmp_path: Path) -> None:
    choice = random.Random(1)
    whole = 0
    for moment in choice.sample(moments, 40):
        log = torn(moment.synchronised_log, moment.written_log, choice)
        account = recovered(tmp_path, moment.database, log)
        entries = account.entries()
        assert len(entries) in (moment.acknowledged, moment.acknowledged + 1)
        whole += len(entries) > moment.acknowledged
        reserve(account)
        assert len(account.entries()) == len(entries) + 1
        account._journal.database.close()
    assert 0 < whole < 40  # both came about: the last write survived, and it did not


def test_a_log_torn_anywhere_gives_an_older_history_or_a_refusal(moments: list[Moment], tmp_path: Path) -> None:
    """On a disk that lies, nothing is made up: what is read is a beginning of what was written."""
    choice = random.Random(2)
    for moment in choice.sample(moments, 30):
        log = bytearray(moment.written_log[: choice.randint(0, len(moment.written_log))])
        if choice.random() < 0.5 and log:
            start = choice.randrange(len(log))
            log[start : start + SECTOR] = choice.randbytes(len(log[start : start + SECTOR]))
        with contextlib.suppress(LedgerError):
            entries = recovered(tmp_path, moment.database, bytes(log)).entries()
            assert [entry.id for entry in entries] == list(range(1, len(entries) + 1))
            assert len(entries) <= moment.acknowledged + 1


def test_a_reservation_that_is_not_synchronised_would_be_noticed(moments: list[Moment], tmp_path: Path) -> None:
    """The planted fault: a ledger that forgets to synchronise, on the same torn files."""
    lost = 0
    for earlier, moment in itertools.pairwise(moments):
        if earlier.database == moment.database and len(earlier.written_log) < len(moment.written_log):
            entries = recovered(tmp_path, moment.database, earlier.synchronised_log).entries()
            lost += len(entries) < moment.acknowledged
        if lost:
            return
    pytest.fail("nothing was ever lost")


@contextlib.contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The system refuses to write beyond, in the middle of a write, as it does at the end of a disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 24, 4_000, 4_121, 9_000])
def test_a_file_that_cannot_grow_refuses_and_spends_nothing(path: Path, room: int) -> None:
    account = opened(path)
    reservation = reserve(account, "before")
    before = account.to_dict()
    size = Path(f"{path}-wal").stat().st_size + room
    with files_no_larger_than(size), pytest.raises(LedgerError, match=r"ledger=.*ledger\.db.*disk"):
        reserve(account, "r" * 50_000)
    assert account.to_dict() == before
    reservation.before_noise(0)
    reserve(account, "after")
    assert [entry.run for entry in Ledger.open(path).account("d").entries()] == ["before", "after"]


class Spender(threading.Thread):
    """Reserves until the server is gone, and notes what was acknowledged."""

    def __init__(self, address: str, run: str) -> None:
        super().__init__()
        self.account, self.run_name = Ledger.open(address).account("d"), run
        self.acknowledged: list[int] = []
        self.refusal = ""

    def run(self) -> None:
        with contextlib.suppress(LedgerError):
            while True:
                reservation: Any = reserve(self.account, self.run_name)
                self.acknowledged.append(reservation.id)
                if len(self.acknowledged) % 3 == 0:
                    reservation.before_noise(0)
        try:
            reserve(self.account, self.run_name)
        except LedgerError as error:
            self.refusal = str(error)


def test_a_killed_server_forgets_nothing_that_it_acknowledged(running_server: Server, postgres: str) -> None:
    account = opened(postgres)
    reserve(account)
    spenders = [Spender(postgres, f"run {number}") for number in range(6)]
    for spender in spenders:
        spender.start()
    time.sleep(0.8)
    running_server.kill()
    for spender in spenders:
        spender.join(timeout=60)
        assert spender.acknowledged
        assert "Check the address and that the server runs" in spender.refusal
    running_server.start()
    found = {entry.id: entry.run for entry in Ledger.open(postgres).account("d").entries()}
    for spender in spenders:
        assert dict.fromkeys(spender.acknowledged, spender.run_name).items() <= found.items()
    in_all = 1 + sum(len(spender.acknowledged) for spender in spenders)
    assert in_all <= len(found) <= in_all + len(spenders)  # those under way may have been written
    with pytest.raises(LedgerError, match=r"try again|server"):
        reserve(account)  # its connection is of the server before
    reserve(account)


def test_a_read_only_server_is_named(postgres: str) -> None:
    account = opened(postgres)
    with account._journal.database.write() as connection:
        connection.execute(sa.text("ALTER ROLE tacit SET default_transaction_read_only = on"))
    try:
        with pytest.raises(LedgerError, match="The server is read-only: name the primary one"):
            reserve(Ledger.open(postgres).account("d"))
        assert account.entries() == []
    finally:
        with account._journal.database.write() as connection:
            connection.execute(sa.text("ALTER ROLE tacit RESET default_transaction_read_only"))


@pytest.mark.parametrize(("code", "waits"), [(sqlite3.SQLITE_BUSY_SNAPSHOT, True), (sqlite3.SQLITE_FULL, False)])
def test_who_switches_to_the_log_at_once_with_others_tries_again(
    code: int, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite may refuse that without waiting, so that of several who make a ledger one would fail."""
    real, tried = sa.Connection.exec_driver_sql, []

    def refused_twice(connection: sa.Connection, statement: str, *arguments: Any) -> Any:
        if "journal_mode" in statement:
            tried.append(statement)
            if len(tried) <= 2:
                cause = sqlite3.OperationalError("database is locked")
                cause.sqlite_errorcode = code
                raise sa.exc.OperationalError(statement, None, cause)
        return real(connection, statement, *arguments)

    monkeypatch.setattr(sa.Connection, "exec_driver_sql", refused_twice)
    path = tmp_path / "ledger.db"
    if waits:
        assert opened(path).spent() == 0
    else:
        with pytest.raises(LedgerError, match="locked"):
            opened(path)
    assert len(tried) == (3 if waits else 1)
