"""An account to spend from, on each database, and the cheap event that the tests spend."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dp_accounting
import pytest
import sqlalchemy as sa

from tacit.benchmarking.postgres_server import Server, find_programs, temporary_server
from tacit.core import Budget, Neighbours, PrivacyUnit
from tacit.ledger import Account, Ledger, Reservation, repeated

STEP = dp_accounting.GaussianDpEvent(10.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger in a file."""
    return tmp_path / "ledger.db"


@pytest.fixture(scope="session")
def running_server() -> Iterator[Server]:
    """A PostgreSQL server for this session."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'tacit[postgres]'")
    if find_programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with temporary_server() as started:
        yield started


@pytest.fixture(scope="session")
def server(running_server: Server) -> str:
    """Its address."""
    return running_server.address


@pytest.fixture
def postgres(server: str) -> str:
    """A ledger on PostgreSQL, empty."""
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    return server


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest) -> str:
    """One conformance suite for both databases."""
    return str(request.getfixturevalue("path" if request.param == "sqlite" else "postgres"))


@pytest.fixture
def account(address: str) -> Account:
    return Ledger.create(address, dataset="digits", budget=Budget(3.0, 1e-5)).account("digits")


@pytest.fixture
def reserve(account: Account) -> Callable[..., Reservation]:
    """Reserve steps of Gaussian noise with multiplier 10 from the account."""

    def reserve_steps(steps: int, run: str = "run") -> Reservation:
        return account.reserve(repeated(STEP), steps, run=run, neighbours=Neighbours.ADD_REMOVE, unit=PrivacyUnit())

    return reserve_steps
