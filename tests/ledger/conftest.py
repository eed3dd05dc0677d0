"""An account to spend from, and the cheap event that the tests spend."""

from collections.abc import Callable
from pathlib import Path

import dp_accounting
import pytest

from tacit.core import Budget, Neighbours, PrivacyUnit
from tacit.ledger import Account, Ledger, Reservation, repeated

STEP = dp_accounting.GaussianDpEvent(10.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def account(path: Path) -> Account:
    return Ledger.create(path, dataset="digits", budget=Budget(3.0, 1e-5)).account("digits")


@pytest.fixture
def reserve(account: Account) -> Callable[..., Reservation]:
    """Reserve steps of Gaussian noise with multiplier 10 from the account."""

    def reserve_steps(steps: int, run: str = "run") -> Reservation:
        return account.reserve(repeated(STEP), steps, run=run, neighbours=Neighbours.ADD_REMOVE, unit=PrivacyUnit())

    return reserve_steps
