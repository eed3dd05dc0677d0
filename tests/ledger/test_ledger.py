"""Opening and making ledgers: what is accepted, and what each wrong file or argument is told."""

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dp_accounting
import pytest

from tacit.core import Budget, InputError, LedgerError, Neighbours, PrivacyUnit, UnsupportedError
from tacit.ledger import Ledger, Rule, repeated
from tacit.ledger.schema import SCHEMA_VERSION

BUDGET = Budget(3.0, 1e-5)
STEP = dp_accounting.GaussianDpEvent(10.0)


def test_an_account_keeps_its_terms(address: str) -> None:
    unit = PrivacyUnit("user", 3)
    Ledger.create(address, dataset="a", budget=BUDGET, unit=unit, neighbours=Neighbours.REPLACE_ONE)
    Ledger.create(address, dataset="b", budget=None)
    ledger = Ledger.open(address)
    a, b = ledger.accounts()
    assert (a.dataset, a.budget, a.unit, a.neighbours) == ("a", BUDGET, unit, Neighbours.REPLACE_ONE)
    assert (b.dataset, b.budget, b.unit, b.neighbours) == ("b", None, PrivacyUnit(), Neighbours.ADD_REMOVE)
    assert ledger.account("a") == a


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_paths_and_addresses_name_the_same_file(path: Path, prefix: str) -> None:
    Ledger.create(f"{prefix}{path}", dataset="a", budget=BUDGET)
    assert Ledger.open(path).account("a").budget == BUDGET


def test_creating_the_same_account_again_changes_nothing(address: str) -> None:
    first = Ledger.create(address, dataset="a", budget=Budget(3, 1e-5)).accounts()
    assert Ledger.create(address, dataset="a", budget=BUDGET).accounts() == first


@pytest.mark.parametrize(
    "terms",
    [
        {"budget": Budget(4.0, 1e-5)},
        {"budget": Budget(3.0, 1e-6)},
        {"budget": None},
        {"budget": BUDGET, "unit": PrivacyUnit("user")},
        {"budget": BUDGET, "unit": PrivacyUnit("example", 2)},
        {"budget": BUDGET, "neighbours": Neighbours.REPLACE_ONE},
        {"budget": BUDGET, "rule": Rule.ADAPTIVE},
    ],
)
def test_an_account_with_other_terms_is_refused(address: str, terms: dict[str, object]) -> None:
    before = Ledger.create(address, dataset="a", budget=BUDGET).accounts()
    with pytest.raises(InputError, match=r"dataset='a': its account has other terms"):
        Ledger.create(address, dataset="a", **terms)
    assert Ledger.open(address).accounts() == before


def test_an_unknown_account_is_named_with_those_there_are(address: str) -> None:
    ledger = Ledger.create(address, dataset="digits", budget=BUDGET)
    with pytest.raises(InputError, match=r"dataset='mnist': no such account \(there are: digits\)"):
        ledger.account("mnist")


def test_an_account_needs_a_name(path: Path) -> None:
    with pytest.raises(InputError, match="dataset=''"):
        Ledger.create(path, dataset="", budget=BUDGET)
    assert not path.exists()


@pytest.mark.parametrize("name", ["a\0b", "a\udcffb", "\ud83d\ude00"])
def test_a_name_that_not_every_database_keeps_is_refused(address: str, name: str) -> None:
    with pytest.raises(InputError) as caught:
        Ledger.create(address, dataset=name, budget=BUDGET)
    assert str(caught.value) == f"dataset={name!r}: the name is no plain text in UTF-8. Give another name."
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["Zählung 2024", "数字", "\U0001f600", "a'b\\%s\u2028"])
def test_every_other_name_is_kept(address: str, name: str) -> None:
    Ledger.create(address, dataset=name, budget=BUDGET)
    account = Ledger.open(address).account(name)
    account.reserve(repeated(STEP), 2, run=name, neighbours=account.neighbours, unit=account.unit)
    assert [entry.run for entry in account.entries()] == [name]


def test_opening_makes_no_file(path: Path) -> None:
    with pytest.raises(LedgerError, match=r"there is no such file.*tacit ledger create"):
        Ledger.open(path)
    assert not path.exists()


@pytest.mark.parametrize("address", ["", ":memory:", "sqlite:///", "sqlite:///:memory:"])
def test_a_ledger_that_dies_with_the_process_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="must outlive the process"):
        Ledger.create(address, dataset="a", budget=BUDGET)


def test_other_databases_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="only SQLite and PostgreSQL"):
        Ledger.open("mysql://host/ledger")


@pytest.mark.parametrize("use", ["open", "create"])
@pytest.mark.parametrize("content", [b"epsilon,delta\n3,1e-5\n" * 100, b"\x00" * 4096])
def test_a_file_of_another_kind_is_refused_and_untouched(path: Path, use: str, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"ledger=.*ledger\.db.*not a ledger"):
        Ledger.open(path) if use == "open" else Ledger.create(path, dataset="a", budget=BUDGET)
    assert path.read_bytes() == content


@pytest.mark.parametrize("use", ["open", "create"])
def test_another_programs_database_is_refused_and_untouched(path: Path, use: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE accounts (name TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger.open(path) if use == "open" else Ledger.create(path, dataset="a", budget=BUDGET)
    assert path.read_bytes() == before


def test_an_empty_file_is_no_ledger_but_may_become_one(path: Path) -> None:
    path.touch()
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger.open(path)
    assert Ledger.create(path, dataset="a", budget=BUDGET).account("a").budget == BUDGET


@pytest.mark.parametrize("loss", ["emptied", "deleted"])
def test_a_log_without_its_file_is_not_thrown_away(path: Path, tmp_path: Path, loss: str) -> None:
    """SQLite itself would delete the log, and with it what was spent."""
    account = Ledger.create(path, dataset="a", budget=BUDGET).account("a")
    terms = {"neighbours": account.neighbours, "unit": account.unit}
    account.reserve(repeated(STEP), 2, run="r", **terms)
    copy, log = tmp_path / "copy.db", tmp_path / "copy.db-wal"
    shutil.copy(f"{path}-wal", log)
    before = log.read_bytes()
    if loss == "emptied":
        copy.touch()
        with pytest.raises(LedgerError, match=r"copy\.db': the file is missing or empty.*with the log"):
            Ledger.open(copy)
    with pytest.raises(LedgerError, match=r"copy\.db': the file is missing or empty.*with the log"):
        Ledger.create(copy, dataset="a", budget=BUDGET)
    assert log.read_bytes() == before
    shutil.copy(path, copy)
    assert len(Ledger.open(copy).account("a").entries()) == 1


def test_a_file_emptied_under_a_running_process_is_refused(path: Path) -> None:
    account = Ledger.create(path, dataset="a", budget=BUDGET).account("a")
    os.truncate(path, 0)
    with pytest.raises(LedgerError, match="the file is missing or empty"):
        account.reserve(repeated(STEP), 2, run="r", neighbours=account.neighbours, unit=account.unit)


def test_a_truncated_ledger_is_refused(path: Path) -> None:
    Ledger.create(path, dataset="a", budget=BUDGET)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(LedgerError, match="ledger="):
        Ledger.open(path).accounts()


def test_a_folder_is_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        Ledger.open(tmp_path)
    with pytest.raises(LedgerError, match="Check that the folder exists"):
        Ledger.create(tmp_path, dataset="a", budget=BUDGET)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"nowhere.*Check that the folder exists"):
        Ledger.create(tmp_path / "nowhere" / "ledger.db", dataset="a", budget=BUDGET)


def test_a_ledger_from_the_future_is_refused(path: Path) -> None:
    Ledger.create(path, dataset="a", budget=BUDGET)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE tacit_ledger SET schema_version = ?", (SCHEMA_VERSION + 1,))
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match=rf"version {SCHEMA_VERSION + 1}.*Install a newer tacit"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match=rf"version {SCHEMA_VERSION + 1}.*Install a newer tacit"):
        Ledger.create(path, dataset="b", budget=BUDGET)


@pytest.fixture
def folder_of_someone_else() -> Iterator[Path]:
    """A folder that this process may read and not write, also where the tests run as root."""
    folder = Path(tempfile.mkdtemp())
    Ledger.create(folder / "ledger.db", dataset="a", budget=BUDGET)
    folder.chmod(0o555)
    (folder / "ledger.db").chmod(0o444)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if user == 0:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_read_only_folder_is_named_with_a_remedy(folder_of_someone_else: Path) -> None:
    with pytest.raises(LedgerError, match=r"ledger=.*new\.db.*you may write"):
        Ledger.create(folder_of_someone_else / "new.db", dataset="a", budget=BUDGET)
    with pytest.raises(LedgerError, match=r"ledger=.*ledger\.db.*you may write"):
        Ledger.create(folder_of_someone_else / "ledger.db", dataset="b", budget=BUDGET)


def test_errors_are_one_line(path: Path) -> None:
    path.write_text("no ledger " * 100)
    with pytest.raises(LedgerError) as caught:
        Ledger.open(path)
    assert "\n" not in str(caught.value)


def test_every_write_reaches_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write is committed to the log, and only then synchronised, before the caller goes on."""
    synchronised = []
    real = os.fdatasync

    def spy(file: int) -> None:
        with contextlib.closing(sqlite3.connect(path)) as other:
            synchronised.append(other.execute("SELECT length FROM accounts").fetchone())
        assert os.readlink(f"/proc/self/fd/{file}") == f"{path}-wal"
        real(file)

    Ledger.create(path, dataset="a", budget=BUDGET)
    monkeypatch.setattr(os, "fdatasync", spy)
    account = Ledger.open(path).account("a")
    reservation = account.reserve(repeated(STEP), 2, run="r", neighbours=account.neighbours, unit=account.unit)
    assert synchronised == [(2,)]
    reservation.before_noise(0)
    assert synchronised == [(2,), (3,)]
    with account._journal.database.write() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1  # NORMAL
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_a_link_to_a_ledger_is_written_as_durably(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite keeps the log beside the file, not beside the link."""
    (tmp_path / "elsewhere").mkdir()
    path.symlink_to(tmp_path / "elsewhere" / "real.db")
    account = Ledger.create(path, dataset="a", budget=BUDGET).account("a")
    synchronised = []
    monkeypatch.setattr(os, "fdatasync", lambda file: synchronised.append(os.readlink(f"/proc/self/fd/{file}")))
    account.reserve(repeated(STEP), 2, run="r", neighbours=account.neighbours, unit=account.unit)
    assert synchronised == [f"{tmp_path / 'elsewhere' / 'real.db'}-wal"]


def test_where_synchronising_cannot_be_shared_sqlite_does_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.ledger.sqlite._SHARES_SYNCHRONISATION", False)
    monkeypatch.setattr(os, "fdatasync", None)
    ledger = Ledger.create(path, dataset="a", budget=BUDGET)
    with ledger._database.write() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_a_failing_disk_refuses_the_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Ledger.create(path, dataset="a", budget=BUDGET).account("a")
    reservation = account.reserve(repeated(STEP), 2, run="r", neighbours=account.neighbours, unit=account.unit)

    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(LedgerError, match=r"Input/output error\. Check the disk"):
            reservation.before_noise(0)
    assert reservation.steps_begun == 0
    reservation.before_noise(0)


def test_a_ledger_moved_away_is_not_replaced_by_an_empty_one(path: Path) -> None:
    account = Ledger.create(path, dataset="a", budget=BUDGET).account("a")
    account.reserve(repeated(STEP), 2, run="r", neighbours=account.neighbours, unit=account.unit)
    path.rename(path.with_suffix(".away"))
    for action in (account.entries, account.spent):
        with pytest.raises(LedgerError, match="there is no such file"):
            action()
    assert not path.exists()
    path.with_suffix(".away").rename(path)
    assert len(account.entries()) == 1


def test_a_ledger_replaced_by_an_older_copy_is_refused(path: Path, tmp_path: Path) -> None:
    """A process that has seen more than the file holds does not spend again what was spent."""
    account = Ledger.create(path, dataset="a", budget=BUDGET).account("a")
    with contextlib.closing(sqlite3.connect(path)) as now, contextlib.closing(sqlite3.connect(tmp_path / "old")) as old:
        now.backup(old)
    account.reserve(repeated(STEP), 2, run="r", neighbours=account.neighbours, unit=account.unit)
    account.reserve(repeated(STEP), 2, run="r", neighbours=account.neighbours, unit=account.unit)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    (tmp_path / "old").rename(path)
    with pytest.raises(LedgerError, match=r"should hold 1 records"):
        account.reserve(repeated(STEP), 2, run="r", neighbours=account.neighbours, unit=account.unit)
