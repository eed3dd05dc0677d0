"""Opening and making ledgers: what is accepted, and what each wrong file or argument is told."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit.core import Budget, InputError, LedgerError, Neighbours, PrivacyUnit, UnsupportedError
from tacit.ledger import Ledger
from tacit.ledger.schema import SCHEMA_VERSION

BUDGET = Budget(3.0, 1e-5)


def test_an_account_keeps_its_terms(path: Path) -> None:
    unit = PrivacyUnit("user", 3)
    Ledger.create(path, dataset="a", budget=BUDGET, unit=unit, neighbours=Neighbours.REPLACE_ONE)
    Ledger.create(path, dataset="b", budget=None)
    ledger = Ledger.open(path)
    a, b = ledger.accounts()
    assert (a.dataset, a.budget, a.unit, a.neighbours) == ("a", BUDGET, unit, Neighbours.REPLACE_ONE)
    assert (b.dataset, b.budget, b.unit, b.neighbours) == ("b", None, PrivacyUnit(), Neighbours.ADD_REMOVE)
    assert ledger.account("a") == a


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_paths_and_addresses_name_the_same_file(path: Path, prefix: str) -> None:
    Ledger.create(f"{prefix}{path}", dataset="a", budget=BUDGET)
    assert Ledger.open(path).account("a").budget == BUDGET


def test_creating_the_same_account_again_changes_nothing(path: Path) -> None:
    first = Ledger.create(path, dataset="a", budget=Budget(3, 1e-5)).accounts()
    assert Ledger.create(path, dataset="a", budget=BUDGET).accounts() == first


@pytest.mark.parametrize(
    "terms",
    [
        {"budget": Budget(4.0, 1e-5)},
        {"budget": Budget(3.0, 1e-6)},
        {"budget": None},
        {"budget": BUDGET, "unit": PrivacyUnit("user")},
        {"budget": BUDGET, "unit": PrivacyUnit("example", 2)},
        {"budget": BUDGET, "neighbours": Neighbours.REPLACE_ONE},
    ],
)
def test_an_account_with_other_terms_is_refused(path: Path, terms: dict[str, object]) -> None:
    before = Ledger.create(path, dataset="a", budget=BUDGET).accounts()
    with pytest.raises(InputError, match=r"dataset='a': its account has other terms"):
        Ledger.create(path, dataset="a", **terms)
    assert Ledger.open(path).accounts() == before


def test_an_unknown_account_is_named_with_those_there_are(path: Path) -> None:
    ledger = Ledger.create(path, dataset="digits", budget=BUDGET)
    with pytest.raises(InputError, match=r"dataset='mnist': no such account \(there are: digits\)"):
        ledger.account("mnist")


def test_an_account_needs_a_name(path: Path) -> None:
    with pytest.raises(InputError, match="dataset=''"):
        Ledger.create(path, dataset="", budget=BUDGET)
    assert not path.exists()


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
    with pytest.raises(LedgerError, match=r"version 3.*Install a newer tacit"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match=r"version 3.*Install a newer tacit"):
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


def test_every_write_reaches_the_disk(path: Path) -> None:
    ledger = Ledger.create(path, dataset="a", budget=BUDGET)
    with ledger._database.write() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
