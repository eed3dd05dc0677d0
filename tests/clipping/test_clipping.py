"""Clipping bounds every example's contribution exactly, and states the sensitivity that follows."""

import dataclasses
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.clipping import Automatic, BoundClipping, Clipping, Flat, PerLayer
from tacit.core import InputError, Neighbours

NAMES = ["scale", "conv1.weight", "conv1.bias", "block.fc.weight", "block.fc.bias"]
LAYERS = [("scale",), ("conv1.weight", "conv1.bias"), ("block.fc.weight", "block.fc.bias")]
GIVEN = {"": 0.5, "conv1": 0.1, "block.fc": 2.0}
RULES = [Flat(0.3), PerLayer(0.3), PerLayer(GIVEN), Automatic(0.3), Automatic(2.0, stability=1e-6)]
rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.describe())

positive = st.floats(1e-300, 1e300)
norm = st.floats(0, 1e308)


def column(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def clipped_sum(bound: BoundClipping, gradients: torch.Tensor) -> torch.Tensor:
    """The sum over examples of gradients [examples, groups, size], each group scaled by its factor."""
    factors = bound.factors(gradients.norm(dim=2))
    return torch.einsum("bg,bgd->gd", factors, gradients)


def test_flat_keeps_small_gradients_and_shrinks_large_ones() -> None:
    factors = Flat(0.5).bind(NAMES).factors(column(0.0, 0.25, 0.5, 1.0, 5.0))
    assert factors[:3, 0].tolist() == [1.0, 1.0, 1.0]
    assert factors[3:, 0].tolist() == pytest.approx([0.5, 0.1], rel=1e-15)


def test_flat_takes_all_parameters_jointly() -> None:
    bound = Flat(0.5).bind(NAMES)
    assert bound.groups == (tuple(NAMES),)
    assert bound.bounds == (0.5,)


def test_a_layer_is_what_shares_a_module_prefix() -> None:
    bound = PerLayer(0.3).bind(NAMES)
    assert bound.groups == tuple(LAYERS)
    assert bound.bounds == (0.3 / math.sqrt(3),) * 3
    assert bound.total == pytest.approx(0.3, rel=1e-15)


def test_given_bounds_follow_the_layers_whatever_the_order_of_the_mapping() -> None:
    bound = PerLayer(dict(reversed(GIVEN.items()))).bind(NAMES)
    assert bound.bounds == (0.5, 0.1, 2.0)
    factors = bound.factors(torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.float64))
    assert factors[0].tolist() == pytest.approx([0.5, 0.1, 1.0], rel=1e-15)


def test_given_bounds_are_copied_from_the_caller() -> None:
    bounds = dict(GIVEN)
    rule = PerLayer(bounds)
    bounds["conv1"] = 1e9
    assert rule.bind(NAMES).bounds == (0.5, 0.1, 2.0)
    assert hash(rule) == hash(PerLayer(GIVEN))
    assert rule == PerLayer(GIVEN)


def test_automatic_normalises() -> None:
    factors = Automatic(2.0, stability=0.5).bind(NAMES).factors(column(0.0, 1.5, 99.5))
    assert factors[:, 0].tolist() == pytest.approx([4.0, 1.0, 0.02], rel=1e-15)


@given(bound=positive, norm=norm)
def test_flat_factor_never_lets_more_than_the_bound_through(bound: float, norm: float) -> None:
    factor = Flat(bound).bind(["w"]).factors(column(norm)).item()
    assert 0 <= factor <= 1
    assert Fraction(factor) * Fraction(norm) <= Fraction(bound)  # in exact arithmetic,
    assert factor * norm <= bound  # and hence in float64


@given(bound=positive, stability=positive, norm=norm)
def test_automatic_factor_never_lets_more_than_the_bound_through(bound: float, stability: float, norm: float) -> None:
    factor = Automatic(bound, stability).bind(["w"]).factors(column(norm)).item()
    assert math.isfinite(factor)
    assert Fraction(factor) * Fraction(norm) <= Fraction(bound)
    assert factor * norm <= bound


@given(bound=st.floats(1e-3, 1e3), norm=st.floats(0, 1e6))
def test_rounding_down_costs_next_to_nothing(bound: float, norm: float) -> None:
    factor = Flat(bound).bind(["w"]).factors(column(norm)).item()
    assert factor >= min(1.0, bound / norm if norm else 1.0) * (1 - 1e-15)


@rules
@pytest.mark.parametrize("seed", range(5))
def test_clipped_gradients_of_random_examples_stay_within_every_group_bound(rule: Clipping, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    bound = rule.bind(NAMES)
    shape = (50, len(bound.groups), 7)
    gradients = torch.randn(shape, generator=generator, dtype=torch.float64)
    gradients *= torch.logspace(-6, 6, 50, dtype=torch.float64)[:, None, None]
    clipped = bound.factors(gradients.norm(dim=2))[:, :, None] * gradients
    limits = torch.tensor(bound.bounds, dtype=torch.float64)
    assert bool((clipped.norm(dim=2) <= limits * (1 + 1e-14)).all())
    assert float(clipped.flatten(1).norm(dim=1).max()) <= bound.total * (1 + 1e-14)


@rules
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_pitfall_05_a_norm_that_is_not_finite_gets_factor_zero(rule: Clipping, bad: float) -> None:
    bound = rule.bind(NAMES)
    norms = torch.ones(3, len(bound.groups), dtype=torch.float64)
    norms[1] = bad
    factors = bound.factors(norms)
    assert factors[1].tolist() == [0.0] * len(bound.groups)
    assert torch.equal(factors[[0, 2]], bound.factors(norms[[0, 2]]))
    assert bool((factors[0] > 0).all())


@rules
@pytest.mark.parametrize("zero", [0.0, -0.0, 5e-324])
def test_a_vanishing_norm_gets_a_finite_factor(rule: Clipping, zero: float) -> None:
    bound = rule.bind(NAMES)
    factors = bound.factors(torch.full((1, len(bound.groups)), zero, dtype=torch.float64))
    assert bool((factors.isfinite() & (factors > 0)).all())
    if not isinstance(rule, Automatic):
        assert factors.tolist() == [[1.0] * len(bound.groups)]


@rules
def test_no_examples_give_no_factors(rule: Clipping) -> None:
    bound = rule.bind(NAMES)
    assert bound.factors(torch.empty(0, len(bound.groups))).shape == (0, len(bound.groups))


@rules
def test_factors_are_float64_whatever_the_precision_of_the_norms(rule: Clipping) -> None:
    bound = rule.bind(NAMES)
    norms = torch.full((2, len(bound.groups)), 3.0, dtype=torch.bfloat16)
    factors = bound.factors(norms)
    assert factors.dtype == torch.float64
    assert torch.equal(factors, bound.factors(norms.double()))


def extreme(bound: BoundClipping, sign: float) -> torch.Tensor:
    """One example whose every group points along one axis, far beyond its bound."""
    gradient = torch.zeros(1, len(bound.groups), 3, dtype=torch.float64)
    gradient[:, :, 0] = sign * 1e12
    return gradient


@rules
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_sensitivity_is_attained_under_every_relation(rule: Clipping, neighbours: Neighbours) -> None:
    bound = rule.bind(NAMES)
    others = torch.ones(4, len(bound.groups), 3, dtype=torch.float64)
    alternatives = {
        Neighbours.ADD_REMOVE: others,
        Neighbours.ZERO_OUT: torch.cat([others, torch.zeros_like(extreme(bound, 1))]),
        Neighbours.REPLACE_ONE: torch.cat([others, extreme(bound, -1)]),
    }
    moved = clipped_sum(bound, torch.cat([others, extreme(bound, 1)]))
    distance = float((moved - clipped_sum(bound, alternatives[neighbours])).norm())
    assert distance == pytest.approx(bound.sensitivity(neighbours), rel=1e-11)


@rules
@given(seed=st.integers(0, 2**32), log_scale=st.floats(-8, 8))
def test_sensitivity_is_never_exceeded(rule: Clipping, seed: int, log_scale: float) -> None:
    bound = rule.bind(NAMES)
    generator = torch.Generator().manual_seed(seed)
    records = 10**log_scale * torch.randn(6, len(bound.groups), 3, generator=generator, dtype=torch.float64)
    full, removed, replaced = records[:5], records[:4], torch.cat([records[:4], records[5:]])
    slack = 1 + 1e-12
    moved = float((clipped_sum(bound, full) - clipped_sum(bound, removed)).norm())
    assert moved <= bound.sensitivity(Neighbours.ADD_REMOVE) * slack
    assert moved <= bound.sensitivity(Neighbours.ZERO_OUT) * slack
    moved = float((clipped_sum(bound, full) - clipped_sum(bound, replaced)).norm())
    assert moved <= bound.sensitivity(Neighbours.REPLACE_ONE) * slack


def test_pitfall_38_per_layer_sensitivity_is_that_of_the_stacked_gradient() -> None:
    total = math.sqrt(0.5**2 + 0.1**2 + 2.0**2)
    bound = PerLayer(GIVEN).bind(NAMES)
    assert bound.sensitivity(Neighbours.ADD_REMOVE) == pytest.approx(total, rel=1e-15)
    assert bound.sensitivity(Neighbours.ZERO_OUT) == pytest.approx(total, rel=1e-15)
    assert bound.sensitivity(Neighbours.REPLACE_ONE) == pytest.approx(2 * total, rel=1e-15)
    assert PerLayer(0.3).bind(NAMES).sensitivity(Neighbours.ADD_REMOVE) == pytest.approx(0.3, rel=1e-15)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, "1", None, True])
def test_bounds_that_are_no_positive_numbers_are_refused(bad: float) -> None:
    for make in (Flat, PerLayer, Automatic, lambda value: Automatic(1.0, value)):
        with pytest.raises(InputError, match=r"bound=|stability="):
            make(bad)
    with pytest.raises(InputError, match=r"bound\['fc'\]="):
        PerLayer({"conv": 1.0, "fc": bad})


def test_layers_without_a_bound_and_bounds_without_a_layer_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"no entry for the layers \['conv1'\]"):
        PerLayer({"": 0.5, "block.fc": 2.0}).bind(NAMES)
    with pytest.raises(InputError, match=r"layers \['conv2'\] that are not trained.*'block.fc'"):
        PerLayer({**GIVEN, "conv2": 1.0}).bind(NAMES)
    with pytest.raises(InputError, match="at least one layer"):
        PerLayer({})


@rules
def test_no_names_and_repeated_names_are_refused(rule: Clipping) -> None:
    with pytest.raises(InputError, match="at least one trainable parameter"):
        rule.bind([])
    with pytest.raises(InputError, match=r"\['scale'\].*unique"):
        rule.bind([*NAMES, "scale"])


@rules
def test_norms_of_the_wrong_shape_are_refused(rule: Clipping) -> None:
    bound = rule.bind(NAMES)
    for shape in [(4,), (4, len(bound.groups) + 1), (4, len(bound.groups), 1)]:
        with pytest.raises(InputError, match=rf"\[examples, {len(bound.groups)}\]"):
            bound.factors(torch.ones(shape))


@rules
def test_rules_are_frozen_and_describe_themselves(rule: Clipping) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.bound = 1.0  # type: ignore[misc]
    assert "clipping" in rule.describe()


def test_descriptions_name_the_bounds() -> None:
    assert Flat(0.1).describe() == "flat clipping at norm 0.1"
    assert PerLayer(0.1).describe() == "per-layer clipping with equal norms of total 0.1"
    assert PerLayer({"": 1, "fc": 0.5}).describe() == ("per-layer clipping at norms the model itself: 1, fc: 0.5")
    assert Automatic().describe() == "automatic clipping to norm 1 with stability 0.01"
