"""How far one row moves what is released: never further than a query says, and as far somewhere."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from query_tables import SCHEMA, table

from tacit.core.privacy import Neighbours, PrivacyUnit
from tacit.datasets.tables import as_schema
from tacit.queries import Count, Histogram, Mean, Quantile, Sum, Terms, Top, Variance, Where
from tacit.queries.moments import WHOLE
from tacit.queries.query import Setting

FLAGGED = Where("flag", "1")
ADDED = Setting(as_schema(SCHEMA), Terms(1.0))
REPLACED = Setting(as_schema(SCHEMA), Terms(1.0, neighbours=Neighbours.REPLACE_ONE))
VALUES = np.linspace(-1, 3, 41)
ADDITIVE = [
    Histogram("city"),
    Histogram("x", 4),
    Histogram("x", (-1.0, 0.0, 2.5)),
    Sum("x"),
    Mean("x"),
    Variance("x"),
]


def row(value: float, flag: int = 0) -> dict:
    return {"x": [value], "city": ["abc"[int(value * 10) % 3]], "flag": [flag]}


def contribution(query, value: float, flag: int = 0) -> np.ndarray:
    """What one row adds to the sums: exactly what a table of it alone has."""
    return np.array(query.tally(table(**row(value, flag))).sums, dtype=object)


def norms(moved: np.ndarray) -> tuple[int, float]:
    return sum(abs(part) for part in moved), float(np.sqrt(float(sum(part**2 for part in moved))))


def check(query, setting: Setting, moves: list[np.ndarray], *, tight: float = 0.999) -> None:
    claimed = query.distance(setting)
    l1, l2 = (max(norms(move)[place] for move in moves) for place in (0, 1))
    assert tight * claimed.l1 <= l1 <= claimed.l1
    assert tight * float(claimed.l2) <= l2 <= float(claimed.l2) * (1 + 1e-12)


@pytest.mark.parametrize("query", ADDITIVE)
def test_an_added_row_moves_the_sums_by_the_distance(query) -> None:
    check(query, ADDED, [contribution(query, value) for value in VALUES])


@pytest.mark.parametrize("query", ADDITIVE)
def test_a_replaced_row_moves_the_sums_by_the_distance(query) -> None:
    """Where the number of rows is public the first sum of a moment is not released."""
    each = [contribution(query, value)[1 if query.first_may_follow else 0 :] for value in VALUES]
    check(query, REPLACED, [here - there for here, there in itertools.product(each, each)], tight=0.995)


@pytest.mark.parametrize("query", [*ADDITIVE, Count("x")])
def test_under_a_condition_a_replaced_row_may_also_enter_or_leave(query) -> None:
    query = type(query)(**(vars(query) | {"where": FLAGGED}))
    each = [np.array(query.tally(table([0.0], flag=[0])).sums, dtype=object)]
    each += [contribution(query, value, flag=1) for value in VALUES]
    check(query, REPLACED, [here - there for here, there in itertools.product(each, each)])


def test_a_count_moves_by_one() -> None:
    assert Count("x").distance(ADDED).l1 == 1
    assert Count("x", where=FLAGGED).distance(REPLACED).l1 == 1


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_are_whole_and_never_negative(first: float, second: float) -> None:
    for query in (Mean("x"), Variance("x")):
        here, there = (np.array(query.shares(np.array([t]))).ravel() for t in (first, second))
        assert here.sum() == WHOLE
        assert (here >= 0).all()
        moved = query.replaced()
        l1, l2 = norms((here - there)[1:].astype(object))
        assert l1 <= moved.l1
        assert l2 <= float(moved.l2)


def losses(query, xs: tuple[float, ...]) -> np.ndarray:
    tally = query.tally(table(xs)).sums if xs else [0] * len(query.tally(table([0.0])).sums)
    sums = np.array(tally)
    return query.losses(sums) if isinstance(query, Quantile) else -sums


@pytest.mark.parametrize(
    "query", [Quantile("x", 0.5), Quantile("x", 0.1), Quantile("x", 0), Quantile("x", 1), Top("x", 4)]
)
def test_losses_spread_by_no_more_than_is_claimed(query) -> None:
    """All tables of up to three rows on a coarse grid of values, and all of their neighbours.

    A tenth of so few rows is less than one, so that the spread for 0.1 is not reached here.
    """
    values = (-1.0, 0.0, 0.5, 3.0)
    tables = [rows for size in range(4) for rows in itertools.combinations_with_replacement(values, size)]
    known = {rows: losses(query, rows) for rows in tables}
    spreads = {"added": 0, "replaced": 0}
    for rows in tables:
        for place in range(len(rows)):
            shorter = rows[:place] + rows[place + 1 :]
            neighbours = {"added": [shorter], "replaced": [tuple(sorted((*shorter, value))) for value in values]}
            for relation, others in neighbours.items():
                for other in others:
                    change = known[rows] - known[other]
                    spreads[relation] = max(spreads[relation], int(change.max() - change.min()))
    for relation, setting in {"added": ADDED, "replaced": REPLACED}.items():
        claimed = query.cost(setting).mechanism.spread
        assert spreads[relation] == claimed or (query == Quantile("x", 0.1) and spreads[relation] < claimed)


def test_group_privacy_multiplies_noise_by_the_rows_of_a_person() -> None:
    three = PrivacyUnit("person", 3)
    for delta in (0.0, 1e-6):
        one, many = (
            Mean("x").noise(Setting(ADDED.schema, Terms(1.0, delta, unit=unit))) for unit in (PrivacyUnit(), three)
        )
        assert many.scale == pytest.approx(3 * one.scale, rel=1e-12)
    assert Top("city").cost(Setting(ADDED.schema, Terms(1.0, unit=three))).mechanism.rate * 3 == pytest.approx(1)
