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
from tacit.queries.query import Setting, Tally
from tacit.queries.steps import to_steps

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


# Rows beside which another one comes or goes: sums are rounded, so that what it moves depends on them.
BESIDE = [(0.3,), tuple(np.random.default_rng(6).uniform(-1, 3, 7)), *((at,) for at in np.linspace(-0.9, 2.9, 6))]


def sums(query, rows, flags, setting: Setting) -> np.ndarray:
    """What noise would be added to."""
    cities = ["abc"[int(value * 10) % 3] for value in rows]
    return np.array(query.released(query.tally(table(rows, cities, flags)), setting), dtype=object)


def with_each(query, beside: tuple[float, ...], setting: Setting) -> list[np.ndarray]:
    """The sums with one more row, for each of its values; those beside it pass every condition."""
    return [sums(query, [*beside, value], [1] * (len(beside) + 1), setting) for value in VALUES]


def without(query, beside: tuple[float, ...], setting: Setting) -> np.ndarray:
    """The sums where the row does not count: it fails the condition, or is not there."""
    return sums(query, beside, [1] * len(beside), setting)


def norms(moved: np.ndarray) -> tuple[int, float]:
    return sum(abs(part) for part in moved), float(np.sqrt(float(sum(part**2 for part in moved))))


def check(query, setting: Setting, moves: list[np.ndarray], *, tight: float = 0.999) -> None:
    claimed = query.distance(setting)
    l1, l2 = (max(norms(move)[place] for move in moves) for place in (0, 1))
    assert tight * claimed.l1 <= l1 <= claimed.l1
    assert tight * float(claimed.l2) <= l2 <= float(claimed.l2) * (1 + 1e-12)


@pytest.mark.parametrize("query", ADDITIVE)
def test_an_added_row_moves_the_sums_by_the_distance(query) -> None:
    moves = [here - without(query, beside, ADDED) for beside in BESIDE for here in with_each(query, beside, ADDED)]
    check(query, ADDED, moves)


@pytest.mark.parametrize("query", ADDITIVE)
def test_a_replaced_row_moves_the_sums_by_the_distance(query) -> None:
    """Where the number of rows is public the first sum of a moment is not released."""
    moves = []
    for beside in BESIDE:
        each = with_each(query, beside, REPLACED)
        moves += [here - there for here, there in itertools.product(each, each)]
    check(query, REPLACED, moves, tight=0.995)


@pytest.mark.parametrize("query", [*ADDITIVE, Count("x")])
def test_under_a_condition_a_replaced_row_may_also_enter_or_leave(query) -> None:
    query = type(query)(**(vars(query) | {"where": FLAGGED}))
    moves = []
    for beside in BESIDE:
        each = [without(query, beside, REPLACED), *with_each(query, beside, REPLACED)]
        moves += [here - there for here, there in itertools.product(each, each)]
    check(query, REPLACED, moves)


TOTALS = st.lists(st.integers(0, 1 << 50), min_size=3, max_size=3)


@given(TOTALS, st.floats(0, 1), st.floats(0, 1), st.sampled_from([1, 16, 17, 1000, 1 << 20]))
def test_rounded_sums_move_by_no_more_than_the_distance_whatever_they_were(totals, first, second, records) -> None:
    """The distance is that of one row for any step, fine or coarse, and beside any rows."""
    unit = PrivacyUnit("person", records)
    for query in (Mean("x"), Variance("x"), Mean("x", where=FLAGGED), Variance("x", where=FLAGGED)):
        here, there = (np.array(query.shares(np.array([t]))).ravel().tolist() for t in (first, second))
        for neighbours in (Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE):
            setting = Setting(ADDED.schema, Terms(1.0, neighbours=neighbours, unit=unit))
            left = there if setting.terms.replaces else [0] * len(there)
            moved = np.subtract(
                *(
                    np.array(query.released(Tally([a + b for a, b in zip(totals, row, strict=False)], 1), setting))
                    for row in (here, left)
                )
            ).astype(object)
            claimed = query.distance(setting)
            assert norms(moved)[0] <= claimed.l1
            assert norms(moved)[1] <= float(claimed.l2) * (1 + 1e-12)


def test_what_rounding_adds_to_the_distance_is_needed_and_is_next_to_nothing() -> None:
    """A row that pushes two of three sums over a boundary moves them by more than the whole that it shares out."""
    query, half = Variance("x"), Variance("x").units_a_step(ADDED) // 2
    tiny = [1, WHOLE - 2, 1]
    before, after = (
        np.array(query.released(Tally([half - 1 + extra * part for part in tiny], 0), ADDED)) for extra in (0, 1)
    )
    steps = WHOLE // query.units_a_step(ADDED)
    assert steps == 49152
    assert np.abs(after - before).sum() == query.distance(ADDED).l1 == steps + 2
    replaced = query.distance(REPLACED)
    assert replaced.l1 == pytest.approx(4 / 3 * steps, rel=1e-4)
    assert float(replaced.l2) == pytest.approx(np.sqrt(128 / 125) * steps, rel=1e-4)
    assert Mean("x").distance(REPLACED).l1 == steps


@given(st.integers(-(1 << 60), 1 << 60), st.integers(0, 1 << 32), st.sampled_from([1, 2, 1 << 14, 1 << 22]))
def test_a_rounded_sum_is_the_nearest_and_moves_by_a_ceiling(value: int, moved: int, units: int) -> None:
    here, there = to_steps(value, units), to_steps(value + moved, units)
    assert 2 * abs(here * units - value) <= units
    assert 0 <= there - here <= -(-moved // units)


def test_a_count_moves_by_one() -> None:
    assert Count("x").distance(ADDED).l1 == 1
    assert Count("x", where=FLAGGED).distance(REPLACED).l1 == 1


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_are_whole_and_never_negative(first: float, second: float) -> None:
    for query in (Mean("x"), Variance("x")):
        here, there = (np.array(query.shares(np.array([t]))).ravel() for t in (first, second))
        assert here.sum() == WHOLE
        assert (here >= 0).all()
        moved = query.replaced()  # in units, before sums are rounded
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
