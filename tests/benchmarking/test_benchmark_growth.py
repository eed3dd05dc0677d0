"""Exponents against known slopes, and the search for the largest batch against every answer there is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.benchmarking.contenders import RefusedError
from tacit.benchmarking.growth import _unless_too_slow, exponent, growth_row
from tacit.benchmarking.largest_batch import batch_in, guess_largest, largest_near, largest_that_fits, with_ratios
from tacit.benchmarking.measuring import REFUSED, Deadline, Lane
from tacit.benchmarking.plain import CONTENDERS
from tacit.core.errors import InputError


@given(
    power=st.floats(-3, 3),
    factor=st.floats(1e-6, 1e6),
    sizes=st.lists(st.integers(1, 10**6), min_size=2, max_size=6, unique=True),
)
def test_a_power_law_gives_back_its_exponent(power, factor, sizes):
    costs = [factor * size**power for size in sizes]
    assert exponent(sizes, costs) == pytest.approx(power, abs=1e-5)


def test_the_exponent_is_the_least_squares_slope():
    sizes, costs = [1, 2, 4, 8], [1.0, 3.0, 3.5, 11.0]
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]

    def squares(slope):
        return sum((b - sum(y) / 4 - slope * (a - sum(x) / 4)) ** 2 for a, b in zip(x, y, strict=True))

    best = exponent(sizes, costs)
    assert all(squares(best) < squares(best + step) for step in (-0.01, 0.01))


def test_the_order_of_sizes_and_the_unit_of_cost_do_not_matter():
    assert exponent([4, 1, 2], [16e3, 1e3, 4e3]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("sizes", "costs", "part"),
    [
        ([4], [1.0], "two different sizes"),
        ([4, 4], [1.0, 2.0], "two different sizes"),
        ([1, 2], [1.0], "two different sizes"),
        ([1, 2], [0.0, 1.0], "above 0"),
        ([0, 2], [1.0, 1.0], "above 0"),
    ],
)
def test_what_has_no_exponent_is_refused(sizes, costs, part):
    with pytest.raises(InputError, match=part):
        exponent(sizes, costs)


def test_sizes_that_did_not_run_are_left_out_of_the_exponent():
    lanes = [Lane(CONTENDERS[0], seconds=[0.001 * size]) for size in (1, 2)]
    lanes.append(Lane(CONTENDERS[0], status=REFUSED))
    row = growth_row(("mlp", "float32", "width"), (1, 2, 4), lanes)
    assert row["exponent"] == pytest.approx(1.0)
    assert row["ms"][2] is None
    assert row["memory_exponent"] is None
    assert row["status"] == ["ok", "ok", "refused"]


@given(answer=st.integers(0, 5000), start=st.integers(1, 5000), most=st.sampled_from([5000, 6000]))
def test_the_largest_batch_is_within_the_tolerance_and_was_tried(answer, start, most):
    tried = []

    def fits(batch):
        tried.append(batch)
        return batch <= answer

    found = largest_that_fits(fits, start=start, most=most, tolerance=0.02)
    assert len(tried) == len(set(tried)) <= 2 * math.log2(most) + 4
    if answer == 0:
        assert found is None
    else:
        assert found in tried
        assert found <= answer <= max(found + 1, 1.02 * found + 1)


def test_ratios_of_batches_are_to_the_largest_plain_one():
    rows = [
        {"model": "mlp", "precision": "tf32", "kind": "plain", "batch": 80},
        {"model": "mlp", "precision": "tf32", "kind": "plain", "batch": 100},
        {"model": "mlp", "precision": "tf32", "kind": "private", "batch": 90},
        {"model": "cnn", "precision": "tf32", "kind": "private", "batch": None},
    ]
    assert [row["ratio"] for row in with_ratios(rows)] == [0.8, 1.0, 0.9, None]


def test_whoever_was_too_slow_on_a_small_size_is_left_out_of_the_larger_ones():
    slow, quick = (Lane(CONTENDERS[0], seconds=[seconds]) for seconds in (9.0, 0.1))
    assert _unless_too_slow(slow, Deadline.after(None)) is CONTENDERS[0]
    assert _unless_too_slow(slow, Deadline.after(60)) is CONTENDERS[0]
    assert _unless_too_slow(quick, Deadline.after(0)) is CONTENDERS[0]
    left_out = _unless_too_slow(slow, Deadline.after(5))
    assert (left_out.name, left_out.kind) == ("plain", "plain")
    with pytest.raises(RefusedError, match="too slow"):
        left_out.prepare(None)


@given(truth=st.integers(1, 5000), guess=st.integers(1, 5000))
def test_from_a_guess_the_answer_fits_and_a_step_more_does_not(truth, guess):
    tried = []

    def fits(batch):
        tried.append(batch)
        return batch <= truth

    found = largest_near(fits, guess, step=0.05)
    width = max(1, round(0.05 * guess))
    if found is None:
        assert truth < min(tried) <= width
    else:
        assert found in tried
        assert found <= truth < found + width


def test_a_good_guess_takes_two_tries():
    tried = []
    assert largest_near(lambda batch: not tried.append(batch) and batch <= 100, 99) == 99
    assert tried == [99, 104]


def test_nothing_fits():
    assert largest_near(lambda batch: False, 40) is None


@pytest.mark.parametrize(("guess", "truth", "expected", "tries"), [(33, 30, 30, [33, 31]), (29, 31, 30, [30, 32])])
def test_no_batch_is_tried_that_is_known_to_fit(guess, truth, expected, tries):
    tried = []
    assert largest_near(lambda batch: not tried.append(batch) and batch <= truth, guess, known=30) == expected
    assert tried == tries


def test_memory_that_grows_linearly_reaches_its_limit():
    assert batch_in(1000.0, (16, 32), (100.0 + 16 * 3, 100.0 + 32 * 3)) == 300
    assert batch_in(1000.0, (16, 32), (100.0, 100.0)) == 32


@given(start=st.integers(1, 4096), fixed=st.floats(0, 1e3), each=st.floats(1e-3, 1e3), limit=st.floats(1e3, 1e6))
def test_few_tries_guess_where_memory_that_grows_linearly_ends(start, fixed, each, limit):
    tried = []

    def needed(batch):
        tried.append(batch)
        need = fixed + each * batch
        return need if need <= limit else None

    found = guess_largest(needed, limit, start)
    assert len(tried) <= 7
    if needed(start) is None:
        assert found == start
    else:
        assert found == pytest.approx((limit - fixed) / each, rel=0.01, abs=1.01)


def test_a_guess_is_mended_by_larger_batches():
    """What batches below a thousand waste hides how little each example needs."""
    found = guess_largest(lambda batch: batch + 3 * min(batch, 1000), 1e6, 100)
    assert found == pytest.approx(1e6 - 3000, rel=1e-3)


def test_a_guess_that_is_far_off_ends_where_a_try_did_not_fit():
    assert guess_largest(lambda batch: 100.0 + batch if batch < 500 else None, 1e6, 100) == 14141
