"""Rows on the grid, their exact sums, and the sensitivities of these, by brute force."""

import itertools
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transcripts import as_examples

from tacit.core.errors import InputError
from tacit.datasets.tables import Table
from tacit.linear import newton
from tacit.linear.fitting import problem_of
from tacit.linear.functional import sensitivities
from tacit.linear.gaussian_moments import gram_sensitivity
from tacit.linear.moments import UNIT, sum_moments
from tacit.linear.newton import GRADIENT_UNIT, Newton, cut_gradients, on_exact_grid
from tacit.linear.rows import RESOLUTION, PublicScale, bounds_of, targets_on_grid, unit_targets_on_grid


def _polynomial(z, y):
    """The coefficients of (y - z w)^2, quadratic and linear, written out."""
    quadratic = [z[i] * z[j] * (1 if i == j else 2) for i in range(len(z)) for j in range(i, len(z))]
    return np.array(quadratic), -2 * y * np.array(z)


def _corners(d):
    return [(1.0, *signs) for signs in itertools.product((-1.0, 0.5, 1.0), repeat=d)]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_functional_sensitivities_are_those_of_extreme_neighbours(d):
    problem = problem_of(PublicScale.box(-np.ones(d), np.ones(d)))
    quadratic, linear = sensitivities(problem)
    rows = [(_polynomial(z, y)) for z in _corners(d) for y in (-1.0, 1.0)]
    added = [max(np.abs(row[part]).sum() for row in rows) for part in (0, 1)]
    assert added == pytest.approx([quadratic, linear])  # attained, so neither too small nor too large
    assert (quadratic, linear) == pytest.approx(((d + 1) ** 2, 2 * (d + 1)))
    replaced = [max(np.abs(a[part] - b[part]).sum() for a in rows for b in rows) for part in (0, 1)]
    assert replaced[0] <= 2 * (d + 1) ** 2
    assert replaced[1] == pytest.approx(4 * (d + 1))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_gaussian_sensitivity_of_second_moments_is_attained(d):
    problem = problem_of(PublicScale.box(-np.ones(d), np.ones(d)))
    norms = [math.sqrt(sum((z[i] * z[j]) ** 2 for i in range(d + 1) for j in range(i, d + 1))) for z in _corners(d)]
    assert max(norms) == pytest.approx(gram_sensitivity(problem))


@given(st.integers(1, 5), st.floats(0.1, 3), st.integers(0, 10**6))
def test_cut_rows_keep_to_the_norms_that_are_promised(d, norm, seed):
    inputs = 5 * np.random.default_rng(seed).standard_normal((20, d))
    scale = PublicScale.box(-np.ones(d), np.ones(d), row_norm=norm)
    z = scale.on_grid(inputs)[:, 1:] / RESOLUTION
    assert np.linalg.norm(z, axis=1).max() <= scale.l2
    assert np.abs(z).sum(axis=1).max() <= scale.l1 * (1 + 1e-12)
    assert scale.l2 <= norm
    problem = problem_of(scale)
    full = np.concatenate([np.ones((20, 1)), z], axis=1)
    upper = np.triu_indices(d + 1)
    moments = np.array([np.outer(row, row)[upper] for row in full])
    assert np.linalg.norm(moments, axis=1).max() <= gram_sensitivity(problem)
    assert max(np.abs(_polynomial(row, 1.0)[0]).sum() for row in full) <= sensitivities(problem)[0] * (1 + 1e-12)


def test_categories_are_centred_within_their_bounds():
    frame = pd.DataFrame({"k": ["a", "b", "c", "a"], "n": [0.0, 1.0, 0.3, 1.0], "y": [0.0, 1.0, 0.0, 1.0]})
    schema = {
        "columns": {
            "k": {"type": "category", "categories": ["a", "b", "c"]},
            "n": {"type": "number", "lower": 0, "upper": 1},
            "y": {"type": "number", "lower": 0, "upper": 1},
        }
    }
    table = Table.open(frame, schema)
    scale = PublicScale.of_table(table, ("k", "n"))
    z = scale.on_grid(next(table.chunks(("k", "n"), "y")).inputs)[:, 1:] / RESOLUTION
    assert np.abs(z).max() <= scale.largest
    assert np.linalg.norm(z, axis=1).max() == pytest.approx(scale.l2, rel=1e-3)
    assert np.linalg.norm(z, axis=1).max() <= scale.l2
    assert np.abs(z).sum(axis=1).max() <= scale.l1
    assert scale.l2**2 < 4  # a box of four features has 4


@given(st.integers(0, 10**6), st.integers(1, 7))
def test_sums_do_not_depend_on_blocks_and_equal_whole_numbers(seed, blocks):
    stream = np.random.default_rng(seed)
    inputs, targets = stream.uniform(-1.5, 1.5, (30, 3)), stream.uniform(-1, 1, 30)
    whole, scale = as_examples(inputs, targets)
    parts, _ = as_examples(inputs, targets, blocks=blocks)
    one, many = sum_moments(whole), sum_moments(parts)
    assert (one.gram == many.gram).all()
    assert (one.cross == many.cross).all()
    rows = [[int(value) for value in row] for row in scale.on_grid(inputs)]
    goals = [int(value) for value in targets_on_grid(targets, (-1, 1))]
    for i, j in itertools.product(range(4), repeat=2):
        assert one.gram[i, j] == sum(row[i] * row[j] for row in rows)
    assert one.cross[2] == sum(row[2] * goal for row, goal in zip(rows, goals, strict=True))
    assert one.gram[0, 0] == 30 * UNIT


@given(st.integers(0, 10**6), st.floats(0.01, 10), st.floats(0.001, 1000))
def test_cut_gradients_never_exceed_the_bound(seed, bound, size):
    stream = np.random.default_rng(seed)
    rows, residuals = size * stream.standard_normal((12, 4)), stream.standard_normal((12, 2))
    cut = cut_gradients(rows, residuals, bound)
    assert (cut == np.trunc(cut)).all()
    exact = [sum(int(value) ** 2 for value in row.ravel()) for row in cut]
    assert max(exact) <= math.ceil(bound * GRADIENT_UNIT) ** 2
    plain = np.einsum("ri,rj->rij", rows, residuals)
    small = np.linalg.norm(plain.reshape(12, -1), axis=1) < 0.99 * bound
    assert np.abs(cut[small] / GRADIENT_UNIT - plain[small]).max(initial=0) <= 1e-5 * max(1, bound)


@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([0, 2, 11]))
def test_a_gradient_is_a_function_of_its_row_alone(seed, d, classes):
    """The sum over all rows is the sum over rows one by one: no row moves with its neighbours.

    On a grid so fine that a last bit shows: with weights off the exact grid most of these sums differ.
    """
    stream = np.random.default_rng(seed)
    inputs = stream.uniform(-1, 1, (70, d))
    targets = stream.integers(classes, size=70) if classes else stream.uniform(-1, 1, 70)
    whitening = on_exact_grid(10 * stream.standard_normal((d + 1, d + 1)))
    coefficients = on_exact_grid(stream.standard_normal((d + 1, max(classes, 1))))
    sums = []
    for blocks in (1, 3, 70):
        examples, scale = as_examples(inputs, targets, classes=classes, blocks=blocks)
        problem = problem_of(scale, classes=classes)
        with mock.patch.object(newton, "GRADIENT_UNIT", 1 << 42):
            sums.append(Newton()._gradient_sum(problem, examples, whitening, coefficients))
    assert (sums[0] == sums[1]).all()
    assert (sums[0] == sums[2]).all()


@given(st.integers(0, 10**6), st.integers(1, 300), st.floats(1e-6, 1e6))
def test_products_of_rows_with_weights_on_the_exact_grid_are_exact(seed, p, size):
    stream = np.random.default_rng(seed)
    raw = size * stream.standard_normal(p)
    weights = on_exact_grid(raw)
    assert np.abs(weights - raw).max() <= 2.0**-28 * np.abs(raw).max()
    row = stream.integers(-2 * RESOLUTION, 2 * RESOLUTION, p, endpoint=True).astype(np.float64)
    exact = sum(Fraction(float(entry)) * Fraction(float(weight)) for entry, weight in zip(row, weights, strict=True))
    assert Fraction(float(row @ weights)) == exact
    assert Fraction(float(row[::-1].copy() @ weights[::-1].copy())) == exact


_FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.tuples(_FINITE, _FINITE), st.lists(_FINITE, min_size=1, max_size=4), st.none() | st.floats(0.1, 1))
@example((1e16, 1e16 + 2), [1e16 + 2], None)  # the middle is rounded to the lower bound: z = 2 without a second cut
@example((1e308, 1.7e308), [1.2e308], None)
@example((0.0, 5e-324), [5e-324], None)
@example((-1.7e308, 1.7e308), [0.0], None)
def test_bounds_of_any_size_keep_rows_and_targets_within_one_or_are_refused(ends, values, row_norm):
    lower, upper = sorted(ends)
    ends = np.array([lower]), np.array([upper])
    if not (math.isfinite(lower + upper) and math.isfinite(upper - lower) and (upper - lower) / 2 > 0):
        with pytest.raises(InputError, match="bounds="):
            PublicScale.box(*ends, row_norm)
        with pytest.raises(InputError, match="target_bounds="):
            targets_on_grid(np.array(values), (lower, upper))
        return
    scale = PublicScale.box(*ends, row_norm)
    targets = targets_on_grid(np.array(values), (lower, upper))
    z = scale.on_grid(np.array(values)[:, None])[:, 1:]
    assert np.abs(z).max() <= scale.l1 * RESOLUTION
    assert np.abs(targets).max() <= RESOLUTION


@given(st.integers(0, 10**6), st.integers(1, 12), st.booleans())
def test_a_cut_row_is_a_function_of_that_row_alone(seed, d, by_columns):
    """However many rows stand beside it, and however they lie in memory."""
    inputs = np.random.default_rng(seed).uniform(-1, 1, (9, d))
    scale = PublicScale.box(-np.ones(d), np.ones(d), row_norm=0.5)
    together = scale.scaled(np.asfortranarray(inputs) if by_columns else inputs)
    alone = np.concatenate([scale.scaled(inputs[row : row + 1]) for row in range(9)])
    assert (together == alone).all()


def test_targets_of_tables_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="not a finite number"):
        unit_targets_on_grid(np.array([0.0, math.nan]))
    assert unit_targets_on_grid(np.array([1.0 + 2**-10])).tolist() == [RESOLUTION]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((1, 0), "each lower bound must be finite and below"),
        ((0, math.inf), "each lower bound must be finite"),
        (([0, 0, 0], [1, 1, 1]), "must be a pair (lower, upper) of numbers, or of lists with 2"),
        ((-1.7e308, 1.7e308), "the middle or the width is too large"),
        (3, "must be a pair"),
        ({"a": (0, 1)}, "has no bounds for 'b'"),
    ],
)
def test_bad_bounds_are_named(bounds, message):
    with pytest.raises(InputError, match="bounds=") as error:
        bounds_of(bounds, 2, ["a", "b"])
    assert message in str(error.value)


def test_values_that_are_not_finite_are_named_by_row_and_column():
    scale = PublicScale.box(np.zeros(2), np.ones(2))
    with pytest.raises(InputError, match="row 2, column 1"):
        scale.on_grid(np.array([[0.0, 0.0], [math.nan, 1.0]]))
    with pytest.raises(InputError, match="y: row 1"):
        targets_on_grid(np.array([math.inf]), (0, 1))
