"""Gaussian and Laplace noise has the scale that its event says, in every shape and precision."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.accounting import delta, epsilon, event_from_json, event_to_json, gaussian_delta
from tacit.core import InputError, Neighbours
from tacit.core.randomness import Randomness
from tacit.mechanisms import AdditiveMechanism, Gaussian, Laplace

RNG = Randomness(unsafe_seed=11)
ACCEPT = 1e-3
MECHANISMS = {"gaussian": (Gaussian(1.5, 2.0), stats.norm), "laplace": (Laplace(3.0, 2.0), stats.laplace)}
both = pytest.mark.parametrize("kind", sorted(MECHANISMS))


def scale_pvalue(noise: np.ndarray, family: stats.rv_continuous, scale: float) -> float:
    """Two-sided: the sum of squares of normals, and of twice the magnitudes of Laplace draws, is chi-square."""
    n = len(noise)
    total, freedom = (
        (np.sum(noise**2) / scale**2, n) if family is stats.norm else (2 * np.abs(noise).sum() / scale, 2 * n)
    )
    return float(2 * min(stats.chi2.cdf(total, freedom), stats.chi2.sf(total, freedom)))


def assert_scale(noise: np.ndarray, family: stats.rv_continuous, scale: float) -> None:
    """Kolmogorov-Smirnov and chi-square accept the scale; chi-square rejects a tenth less or more."""
    assert stats.kstest(noise, family(scale=scale).cdf).pvalue > ACCEPT
    assert scale_pvalue(noise, family, scale) > ACCEPT
    for near_miss in (0.9, 1.1):
        assert scale_pvalue(noise, family, near_miss * scale) < 1e-6


@both
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_tensor_noise_has_the_right_distribution(kind: str, dtype: torch.dtype) -> None:
    mechanism, family = MECHANISMS[kind]
    noised = mechanism.add_noise(torch.zeros(200, 200, dtype=dtype), RNG.stream(kind, "tensor"))
    assert noised.dtype == dtype
    assert noised.shape == (200, 200)
    noise = noised.double().flatten().numpy()  # rounded to 8 bits and more, which is less than KS can see
    assert_scale(noise, family, 3.0)
    for near_miss in (0.9, 1.1):
        assert stats.kstest(noise, family(scale=near_miss * 3.0).cdf).pvalue < 1e-6


@both
def test_scalar_noise_has_the_right_distribution(kind: str) -> None:
    mechanism, family = MECHANISMS[kind]
    noised = [mechanism.add_noise(10.0, RNG.stream(kind, draw)) for draw in range(4000)]
    assert all(type(value) is float for value in noised)
    assert_scale(np.array(noised) - 10.0, family, 3.0)


@both
def test_named_tensors_share_one_scale_and_no_noise(kind: str) -> None:
    mechanism, family = MECHANISMS[kind]
    tensors = {"a.weight": torch.full((90, 90), 5.0), "b.weight": torch.full((90, 90), 5.0)}
    noised = mechanism.add_noise_to(tensors, lambda name: RNG.stream("noise", kind, name))
    assert list(noised) == list(tensors)
    noise = [(noised[name] - 5.0).double().flatten().numpy() for name in tensors]
    for part in noise:
        assert_scale(part, family, 3.0)
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 4 / 90


@both
def test_coordinates_and_calls_are_independent(kind: str) -> None:
    mechanism, _ = MECHANISMS[kind]
    stream = RNG.stream(kind, "independence")
    rows = np.stack([mechanism.add_noise(torch.zeros(2000), stream).numpy() for _ in range(5)])
    correlations = np.corrcoef(rows)[np.triu_indices(5, k=1)]
    assert np.abs(correlations).max() < 4 / math.sqrt(2000)
    assert abs(np.corrcoef(rows[0, :-1], rows[0, 1:])[0, 1]) < 4 / math.sqrt(2000)


def test_pitfall_23_low_precision_noise_is_drawn_and_added_in_float32() -> None:
    value = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    low = Gaussian(1.0, 1.0).add_noise(value, RNG.stream("bf16"))
    full = Gaussian(1.0, 1.0).add_noise(value.float(), RNG.stream("bf16"))
    assert torch.equal(low, full.bfloat16())


@both
@given(
    shape=st.lists(st.integers(0, 4), max_size=4).map(tuple),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**32),
)
def test_noise_keeps_shape_and_precision_and_leaves_the_value_alone(
    kind: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int
) -> None:
    mechanism, _ = MECHANISMS[kind]
    value = torch.ones(shape, dtype=dtype)
    noised = mechanism.add_noise(value, Randomness(unsafe_seed=seed).stream("a"))
    assert noised.shape == value.shape
    assert noised.dtype == dtype
    assert torch.equal(value, torch.ones(shape, dtype=dtype))
    again = mechanism.add_noise(value, Randomness(unsafe_seed=seed).stream("a"))
    assert torch.equal(noised, again)


@both
def test_noise_follows_strides_and_needs_no_gradient(kind: str) -> None:
    mechanism, _ = MECHANISMS[kind]
    value = torch.arange(12.0).reshape(3, 4).T.requires_grad_()
    noised = mechanism.add_noise(value, RNG.stream("strided"))
    dense = mechanism.add_noise(value.detach().contiguous(), RNG.stream("strided"))
    assert torch.equal(noised, dense)
    assert not noised.requires_grad


@both
def test_pitfall_19_global_seeds_change_no_noise_and_noise_changes_no_global_state(kind: str) -> None:
    mechanism, _ = MECHANISMS[kind]
    draws = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        before = torch.get_rng_state(), np.random.get_state()[1], random.getstate()
        draws.append(mechanism.add_noise(torch.zeros(50), RNG.stream("global")))
        assert torch.equal(torch.get_rng_state(), before[0])
        np.testing.assert_array_equal(np.random.get_state()[1], before[1])
        assert random.getstate() == before[2]
    assert torch.equal(*draws)
    torch.manual_seed(0)
    fresh = [mechanism.add_noise(torch.zeros(50), Randomness().stream("global")) for _ in range(2)]
    assert not torch.equal(*fresh)


@both
def test_pitfall_21_every_draw_goes_through_the_stream(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a global generator was used")

    for owner, names in {
        torch: ["normal", "randn", "randn_like", "rand", "rand_like"],
        torch.Tensor: ["normal_", "uniform_", "exponential_", "cauchy_", "random_"],
        np.random: ["normal", "standard_normal", "randn", "laplace", "rand", "random"],
        random: ["gauss", "normalvariate", "random"],
    }.items():
        for name in names:
            monkeypatch.setattr(owner, name, forbidden)
    stream = RNG.stream("spy")
    before = stream.bit_generator.state["state"]["ctr"].copy()
    mechanism, _ = MECHANISMS[kind]
    mechanism.add_noise(torch.zeros(1000), stream)
    assert not np.array_equal(before, stream.bit_generator.state["state"]["ctr"])


# Events and refusals


def test_events_state_the_noise_over_the_sensitivity() -> None:
    assert Gaussian(1.5, 2.0).event() == dp_event.GaussianDpEvent(1.5)
    assert Gaussian(1.5, 2.0).scale == 3.0
    assert Laplace(3.0, 2.0).event() == dp_event.LaplaceDpEvent(1.5)
    assert Laplace.from_epsilon(0.5, 2.0) == Laplace(4.0, 2.0)


@both
def test_events_are_known_to_the_ledger(kind: str) -> None:
    event = MECHANISMS[kind][0].event()
    assert event_from_json(event_to_json(event)) == event


def test_accountants_read_the_events_as_noise_over_one_record() -> None:
    assert epsilon(Laplace.from_epsilon(0.5, 2.0).event(), 0) == pytest.approx(0.5)
    claimed = delta(Gaussian(1.5, 2.0).event(), 1.0)
    assert claimed == pytest.approx(float(gaussian_delta(1.5, 1.0)), rel=1e-2)
    doubled = delta(Gaussian(1.5, 2.0).event(), 1.0, neighbours=Neighbours.REPLACE_ONE)
    assert doubled == pytest.approx(float(gaussian_delta(0.75, 1.0)), rel=1e-2)


Make = Callable[..., AdditiveMechanism]


@pytest.mark.parametrize("make", [Gaussian, Laplace])
def test_no_noise_is_refused_unless_the_flag_says_so(make: Make) -> None:
    with pytest.raises(InputError, match=r"=0: gives no privacy.*unsafe_no_noise=True"):
        make(0.0, 1.0)
    silent = make(0.0, 1.0, unsafe_no_noise=True)
    value = torch.tensor([1.5, -2.0, 0.0])
    assert silent.event() == dp_event.NonPrivateDpEvent()
    assert torch.equal(silent.add_noise(value, RNG.stream("silent")), value)
    assert silent.add_noise(1.25, RNG.stream("silent")) == 1.25
    assert make(1.0, 1.0, unsafe_no_noise=True).event() == make(1.0, 1.0).event()


@pytest.mark.parametrize("make", [Gaussian, Laplace])
@pytest.mark.parametrize(("noise", "sensitivity"), [(-1, 1), (math.nan, 1), (math.inf, 1), (1, 0), (1, -1), (1, "1")])
def test_parameters_out_of_range_are_refused(make: Make, noise: float, sensitivity: float) -> None:
    with pytest.raises(InputError, match=r"noise_multiplier=|scale=|sensitivity="):
        make(noise, sensitivity)


@both
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_values_that_are_not_finite_are_refused(kind: str, bad: float) -> None:
    mechanism, _ = MECHANISMS[kind]
    for value in (bad, torch.tensor([0.0, bad]), torch.tensor(bad, dtype=torch.bfloat16)):
        with pytest.raises(InputError, match="finite"):
            mechanism.add_noise(value, RNG.stream("bad"))


@both
@pytest.mark.parametrize("value", [torch.arange(3), torch.ones(2, dtype=torch.complex64), torch.tensor([True])])
def test_tensors_of_other_types_are_refused(kind: str, value: torch.Tensor) -> None:
    with pytest.raises(InputError, match="floating-point"):
        MECHANISMS[kind][0].add_noise(value, RNG.stream("bad"))


@both
@pytest.mark.parametrize("value", [None, "a", [1.0, 2.0], np.ones(2)])
def test_values_that_are_no_numbers_are_refused_without_being_shown(kind: str, value: object) -> None:
    with pytest.raises(InputError, match=f"value of type {type(value).__name__}"):
        MECHANISMS[kind][0].add_noise(value, RNG.stream("bad"))  # type: ignore[call-overload]


def test_epsilon_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="epsilon="):
        Laplace.from_epsilon(0.0, 1.0)
