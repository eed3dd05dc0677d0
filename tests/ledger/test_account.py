"""What is spent, what remains, and the gate between, against closed forms."""

import json
import math
from collections.abc import Callable
from typing import Any

import dp_accounting
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from tacit.accounting import calibrate_dpsgd_noise, dpsgd_event
from tacit.core import Budget, BudgetExceededError, InputError, LedgerError, Neighbours, PrivacyUnit, UnsupportedError
from tacit.ledger import Account, EntryState, Ledger, Reservation, repeated

Reserve = Callable[..., Reservation]
STEP = dp_accounting.GaussianDpEvent(10.0)
TERMS: dict[str, Any] = {"neighbours": Neighbours.ADD_REMOVE, "unit": PrivacyUnit()}


def gaussian_delta(epsilon: float, multiplier: float) -> float:
    """The exact curve of one Gaussian release (Balle and Wang 2018, theorem 8)."""
    half = 1 / (2 * multiplier)
    return float(norm.cdf(half - epsilon * multiplier) - math.exp(epsilon) * norm.cdf(-half - epsilon * multiplier))


def gaussian_epsilon(multiplier: float, steps: int, delta: float = 1e-5) -> float:
    """Steps of Gaussian noise are one release with the multiplier divided by the root of their number."""
    return float(brentq(lambda e: gaussian_delta(e, multiplier / math.sqrt(steps)) - delta, 0, 100))


def test_everything_reserved_and_committed_is_composed(account: Account, reserve: Reserve) -> None:
    assert account.spent() == 0
    assert account.remaining() == 3.0
    reserve(10)
    stopped = reserve(30)
    for step in range(20):
        stopped.before_noise(step)
    stopped.commit()
    reserve(10).release()
    exact = gaussian_epsilon(10.0, 10 + 20)
    assert exact <= account.spent() <= 1.001 * exact
    assert account.remaining() == pytest.approx(3.0 - account.spent())


def test_equal_runs_are_composed_as_often_as_they_ran(account: Account, reserve: Reserve) -> None:
    for _ in range(3):
        reserve(10)
    exact = gaussian_epsilon(10.0, 30)
    assert exact <= account.spent() <= 1.001 * exact


def test_the_budget_is_a_wall(account: Account, reserve: Reserve) -> None:
    assert gaussian_epsilon(10.0, 51) < 3.0 < gaussian_epsilon(10.0, 52)
    reserve(49)
    with pytest.raises(BudgetExceededError):
        reserve(3)
    assert len(account.entries()) == 1
    reserve(2)
    with pytest.raises(BudgetExceededError):
        reserve(1)
    assert 2.9 < account.spent() <= 3.0


def test_a_refusal_says_what_stands_against_what(account: Account, reserve: Reserve) -> None:
    reserve(40)
    spent, alone, total = (gaussian_epsilon(10.0, steps) for steps in (40, 20, 60))
    with pytest.raises(BudgetExceededError) as caught:
        reserve(20)
    message = str(caught.value)
    for figure in (f"epsilon {alone:.3f}", f"total to {total:.3f}", f"spent {spent:.3f}"):
        assert figure[:-1] in message
    assert f"budget of 3 at delta 1e-05 (spent {account.spent():.4g}, remaining {account.remaining():.4g})" in message
    assert "Nothing was spent. Plan fewer steps or more noise." in message
    assert "\n" not in message


def test_a_stopped_run_gives_back_what_it_did_not_draw(account: Account, reserve: Reserve) -> None:
    with reserve(50) as reservation:
        reservation.before_noise(0)
    reserve(50)


def test_a_run_exactly_at_the_budget_fits(address: str) -> None:
    probe = Ledger.create(address, dataset="probe", budget=None).account("probe")
    probe.reserve(repeated(STEP), 20, run="r", **TERMS)
    exact_budget = Budget(probe.spent(1e-5), 1e-5)
    account = Ledger.create(address, dataset="exact", budget=exact_budget).account("exact")
    account.reserve(repeated(STEP), 20, run="r", **TERMS)
    assert account.remaining() == 0.0


def test_accounts_do_not_share_their_spending(address: str) -> None:
    for dataset in ("a", "b"):
        Ledger.create(address, dataset=dataset, budget=Budget(3.0, 1e-5))
    a, b = Ledger.open(address).accounts()
    a.reserve(repeated(STEP), 50, run="r", **TERMS)
    assert b.spent() == 0
    b.reserve(repeated(STEP), 50, run="r", **TERMS)


def test_an_account_without_a_budget_keeps_the_history(address: str) -> None:
    account = Ledger.create(address, dataset="a", budget=None).account("a")
    account.reserve(repeated(STEP), 500, run="r", **TERMS)
    assert account.remaining() == math.inf
    assert account.spent(1e-5) > gaussian_epsilon(10.0, 500)
    with pytest.raises(InputError, match=r"delta=None.*Give a delta"):
        account.spent()
    assert account.to_dict()["spent"] is None
    assert account.to_dict(1e-5)["spent"]["epsilon"] == account.spent(1e-5)


def test_pitfall_33_events_of_another_relation_or_unit_are_refused(account: Account) -> None:
    with pytest.raises(InputError, match=r"neighbours='replace-one'.*counts under 'add-remove'"):
        account.reserve(repeated(STEP), 1, run="r", neighbours=Neighbours.REPLACE_ONE, unit=PrivacyUnit())
    with pytest.raises(InputError, match=r"unit='user'.*protects one example"):
        account.reserve(repeated(STEP), 1, run="r", neighbours=account.neighbours, unit=PrivacyUnit("user"))
    assert account.entries() == []


def test_an_event_that_no_accountant_bounds_is_refused(account: Account) -> None:
    with pytest.raises((UnsupportedError, BudgetExceededError)):
        account.reserve(repeated(dp_accounting.NonPrivateDpEvent()), 1, run="r", **TERMS)
    with pytest.raises(UnsupportedError):
        account.reserve(repeated(dp_accounting.UnsupportedDpEvent()), 1, run="r", **TERMS)
    assert account.entries() == []


def test_events_need_not_be_stepwise(account: Account) -> None:
    # Batches of one pass are disjoint: any number of its steps costs one release, and passes add up.
    def passes(steps: int) -> dp_accounting.DpEvent:
        return dp_accounting.SelfComposedDpEvent(STEP, math.ceil(steps / 100))

    with account.reserve(passes, 1000, run="r", **TERMS) as reservation:
        for step in range(150):
            reservation.before_noise(step)
    assert account.entries()[0].event == dp_accounting.SelfComposedDpEvent(STEP, 2)


def test_a_unit_of_several_examples_pays_by_group_privacy(address: str) -> None:
    unit = PrivacyUnit("user", 4)
    account = Ledger.create(address, dataset="a", budget=Budget(3.0, 1e-5), unit=unit).account("a")
    account.reserve(repeated(STEP), 2, run="r", neighbours=account.neighbours, unit=unit)
    multiplier = 10.0 / math.sqrt(2)

    def excess(epsilon: float) -> float:
        group_delta = gaussian_delta(epsilon, multiplier) * math.expm1(4 * epsilon) / math.expm1(epsilon)
        return group_delta - 1e-5

    exact = 4 * brentq(excess, 0.01, 10)
    assert exact <= account.spent() <= 1.01 * exact
    # For Gaussian noise the group of four has the exact curve of a quarter of the multiplier: a lower bound.
    assert account.spent() > gaussian_epsilon(multiplier / 4, 1)


def test_the_account_as_plain_values(account: Account, reserve: Reserve) -> None:
    with reserve(10, run="runs/1") as reservation:
        reservation.before_noise(0)
    plain = json.loads(json.dumps(account.to_dict()))
    assert plain["budget"] == {"epsilon": 3.0, "delta": 1e-5}
    assert plain["spent"] == {"epsilon": account.spent(), "delta": 1e-5}
    assert plain["remaining"] == {"epsilon": account.remaining(), "delta": 1e-5}
    assert (plain["dataset"], plain["neighbours"], plain["unit"]) == ("digits", "add-remove", "example")
    (entry,) = plain["entries"]
    assert (entry["run"], entry["state"], entry["steps_reserved"], entry["steps_charged"]) == (
        "runs/1",
        "committed",
        10,
        1,
    )


def test_a_run_calibrated_to_the_budget_fits_once(account: Account) -> None:
    budget = Budget(3.0, 1e-5)
    noise = calibrate_dpsgd_noise(0.01, 500, budget)
    event_for = repeated(dpsgd_event(0.01, noise, 1))
    account.reserve(event_for, 500, run="first", **TERMS)
    assert 2.99 < account.spent() <= 3.0
    with pytest.raises(BudgetExceededError, match="Nothing was spent"):
        account.reserve(event_for, 1, run="second", **TERMS)


def test_pure_budgets_hold_pure_events_only(address: str) -> None:
    account = Ledger.create(address, dataset="a", budget=Budget(1.0, 0.0)).account("a")
    account.reserve(repeated(dp_accounting.LaplaceDpEvent(10.0)), 9, run="r", **TERMS)
    assert account.spent() == pytest.approx(0.9, rel=1e-3)
    with pytest.raises(BudgetExceededError):
        account.reserve(repeated(dp_accounting.LaplaceDpEvent(10.0)), 2, run="r", **TERMS)
    with pytest.raises(BudgetExceededError):
        account.reserve(repeated(STEP), 1, run="r", **TERMS)


def test_a_unit_of_several_examples_pays_for_each_where_there_is_no_delta(address: str) -> None:
    unit = PrivacyUnit("user", 4)
    account = Ledger.create(address, dataset="a", budget=Budget(1.0, 0.0), unit=unit).account("a")
    laplace = repeated(dp_accounting.LaplaceDpEvent(10.0))
    account.reserve(laplace, 2, run="r", neighbours=account.neighbours, unit=unit)
    assert account.spent() == pytest.approx(0.8)
    with pytest.raises(BudgetExceededError):
        account.reserve(laplace, 1, run="r", neighbours=account.neighbours, unit=unit)


@pytest.mark.parametrize("text", ["{", '{"type": "miracle"}', "[]"])
def test_an_entry_that_cannot_be_read_stops_all_spending(account: Account, reserve: Reserve, text: str) -> None:
    account._journal.append(lambda _: {"kind": "reserved", "run": "r", "note": "", "steps": 1, "event": text})
    for action in (account.spent, lambda: reserve(1)):
        with pytest.raises(LedgerError, match=r"event of an entry cannot be read.*Restore"):
            action()


def test_after_reads_and_a_refusal_the_account_can_be_spent_from(account: Account, reserve: Reserve) -> None:
    """A driver that prepares what it has sent often must not confuse that with what the ledger has prepared."""
    first = reserve(1)
    for _ in range(10):
        account.spent()
    for _ in range(2):
        with pytest.raises(BudgetExceededError):
            reserve(1000)
        reserve(1)
    first.before_noise(0)
    first.commit()
    assert [entry.state for entry in account.entries()] == [EntryState.COMMITTED, *[EntryState.RESERVED] * 2]
