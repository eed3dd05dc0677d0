"""Noise on all sums of a step at once, in place: its law, its independence, and every element exactly once."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.mechanisms import Gaussian, StepNoise, step_noise

ACCEPT, REJECT = 1e-4, 1e-8
SCALE, DIVISOR = 1.5 * 0.4, 8.0


def noise(multiplier: float = 1.5, divisor: float = DIVISOR) -> StepNoise:
    return StepNoise(Gaussian(multiplier, 0.4, unsafe_no_noise=multiplier == 0), divisor)


def sums(dtype: torch.dtype = torch.float32, size: int = 20_000) -> dict[str, Tensor]:
    return {"a.weight": torch.zeros(size // 2, 2, dtype=dtype), "b.weight": torch.zeros(size, dtype=dtype)}


def applied(values: dict[str, Tensor], step: int = 0, randomness: Randomness | None = None) -> dict[str, Tensor]:
    noise().apply_(values, randomness or Randomness(unsafe_seed=1), step)
    return values


def flat(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.double().flatten() for value in values.values()])


def check_law(values: Tensor, scale: float) -> None:
    """Mean zero, this scale, this shape; neither nine nor eleven tenths of the scale, nor a mean of a tenth."""
    z = values.double().numpy() / scale
    p_scale = stats.chi2.cdf(float((z**2).sum()), z.size)
    assert ACCEPT < p_scale < 1 - ACCEPT
    assert abs(z.mean()) * math.sqrt(z.size) < 4.5
    assert stats.kstest(z, stats.norm.cdf).pvalue > ACCEPT
    for near_miss in (0.9, 1.1):
        assert stats.kstest(z / near_miss, stats.norm.cdf).pvalue < REJECT
    assert stats.kstest(z + 0.1, stats.norm.cdf).pvalue < REJECT


def check_independent(rows: list[Tensor]) -> None:
    correlations = np.corrcoef(torch.stack([row.double() for row in rows]).numpy())[np.triu_indices(len(rows), k=1)]
    statistic = float(np.sum(correlations**2) * rows[0].numel())
    assert stats.chi2.sf(statistic, correlations.size) > REJECT  # not all rows are seeded; shared noise gives 0


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_pitfall_14_the_law_of_the_noise(dtype, fast):
    check_law(flat(applied(sums(dtype), randomness=Randomness(unsafe_seed=1, fast=fast))) * DIVISOR, SCALE)


def test_one_object_for_sources_of_both_modes():
    """Each gets what it would get alone."""
    steps, sources = noise(), [Randomness(unsafe_seed=1, fast=fast) for fast in (False, True, False)]
    found = [sums() for _ in sources]
    for values, source in zip(found, sources, strict=True):
        steps.apply_(values, source, 0)
        assert torch.equal(flat(values), flat(applied(sums(), randomness=source)))
    assert torch.equal(flat(found[0]), flat(found[2]))
    assert not torch.equal(flat(found[0]), flat(found[1]))


def test_noise_is_added_to_the_sums_and_the_divisor_divides_both():
    bare, shifted = applied(sums()), {name: value + 3.0 for name, value in sums().items()}
    applied(shifted)
    for name, value in bare.items():
        torch.testing.assert_close(shifted[name], value + 3.0 / DIVISOR)


@pytest.mark.parametrize("divisor", [1.0, 3.0, 4096.0])
def test_pitfall_01_the_divisor_divides_the_noise_too(divisor):
    values = sums()
    noise(divisor=divisor).apply_(values, Randomness(unsafe_seed=1), 0)
    torch.testing.assert_close(flat(values) * divisor, flat(applied(sums())) * DIVISOR, rtol=1e-6, atol=1e-7)


def test_the_scale_is_never_rounded_below_itself():
    """A float32 scale below the float64 one would be less noise than was accounted for."""
    for multiplier in (0.3, 1 / 3, 1.1, 7.7):
        used = []

        class Noted(StepNoise):
            pass

        scale = Gaussian(multiplier, 0.1).scale
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(step_noise, "add_normal_", lambda values, scale, key, nonce: used.append(scale))  # noqa: B023
            for dtype in (torch.float32, torch.bfloat16, torch.float64):
                Noted(Gaussian(multiplier, 0.1), 1.0).apply_({"a": torch.zeros(2, dtype=dtype)}, Randomness(), 0)
        assert np.float32(used[0]) >= scale
        assert np.float32(used[1]) >= scale
        assert used[2] == scale


@pytest.mark.parametrize("fast", [False, True])
def test_steps_parameters_and_runs_have_noise_of_their_own(fast):
    randomness = Randomness(unsafe_seed=3, fast=fast)
    rows = []
    for step in range(5):
        values = {"a": torch.zeros(5000), "b": torch.zeros(5000)}
        applied(values, step, randomness)
        rows += list(values.values())
    shared = Randomness(fast=fast)
    for source in (Randomness(unsafe_seed=4), *(shared.fork(may_be_fast=fast) for _ in range(2))):
        rows.append(applied({"a": torch.zeros(5000)}, 0, source)["a"])
    check_independent(rows)
    with pytest.raises(AssertionError):
        check_independent([*rows, rows[0] + 0.3 * rows[1]])
    assert len({float(row[0]) for row in rows}) == len(rows)


def test_within_a_parameter_no_two_elements_share_noise():
    values = applied(sums(torch.float64, 100_000))
    assert len(values["b.weight"].unique()) == values["b.weight"].numel()


def test_the_same_step_twice_is_the_same_noise():
    """A step that is repeated after a crash releases nothing new; the ledger counts it all the same."""
    one, two = applied(sums(), 7), applied(sums(), 7)
    for name, value in one.items():
        assert torch.equal(value, two[name])
    assert not torch.equal(flat(one), flat(applied(sums(), 8)))


def test_noise_belongs_to_the_name_whatever_the_other_parameters():
    """Another parameter more, or in another order, changes no noise of the others."""
    alone = applied({"b": torch.zeros(100)})["b"]
    together = applied({"a": torch.zeros(50), "b": torch.zeros(100)})["b"]
    assert torch.equal(alone, together)


def test_one_object_for_sums_in_another_order():
    """The same names in another order: each parameter still has the noise of its own name."""
    steps, randomness = noise(), Randomness(unsafe_seed=1)
    one = {"a": torch.zeros(100), "b": torch.zeros(100)}
    steps.apply_(one, randomness, 0)
    other = {"b": torch.zeros(100), "a": torch.zeros(100)}
    steps.apply_(other, randomness, 0)
    assert not torch.equal(other["a"], other["b"])
    assert torch.equal(one["a"], other["a"])


def every_layout(shape: tuple[int, ...]) -> st.SearchStrategy[list[int]]:
    return st.permutations(range(len(shape)))


@hypothesis_settings(max_examples=40)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=5)
    .map(tuple)
    .flatmap(lambda s: st.tuples(st.just(s), every_layout(s)))
)
def test_every_dense_layout_gets_noise_on_each_element_once(case):
    """Whatever the order of dimensions in memory; the elements are counted by a noise of one."""
    shape, order = case
    values = torch.zeros([shape[dim] for dim in order]).permute([order.index(dim) for dim in range(len(shape))])
    assert values.shape == shape
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_noise, "add_normal_", lambda values, scale, key, nonce: values.add_(1.0))
        noise().apply_({"a": values}, Randomness(unsafe_seed=1), 0)
    assert bool((values == 1 / DIVISOR).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(40, 30, 5, 6).contiguous(memory_format=torch.channels_last),
        torch.zeros(10, 20, 3, 5, 6).contiguous(memory_format=torch.channels_last_3d),
        torch.zeros(300, 100).t(),
        torch.zeros(1, 36_000).t(),
        torch.zeros(20, 1, 30, 60).contiguous(memory_format=torch.channels_last),
    ],
    ids=lambda values: f"{tuple(values.shape)}-{values.stride()}",
)
def test_other_layouts_have_the_law_of_the_noise(values, dtype):
    values = values.to(dtype, memory_format=torch.preserve_format, copy=True)
    strides = values.stride()
    applied({"a": values})
    assert values.stride() == strides
    assert bool((values != 0).all())
    check_law(values.flatten() * DIVISOR, SCALE)


@pytest.mark.parametrize(
    "values",
    [torch.zeros(4, 8)[:, ::2], torch.zeros(4, 1).expand(4, 3), torch.zeros(6, 6)[1:4, 1:4]],
    ids=["step", "expanded", "inner"],
)
def test_sums_that_do_not_fill_their_memory_are_refused(values):
    """Elements that share memory would have noise several times, and gaps would be written to."""
    with pytest.raises(InputError, match="must be contiguous"):
        applied({"a": values})
    assert bool((values == 0).all())


def test_sums_of_no_size_and_of_one_number():
    values = {"none": torch.zeros(0, 3), "scalar": torch.zeros(()), "one": torch.zeros(1, 1)}
    applied(values)
    assert values["none"].shape == (0, 3)
    assert float(values["scalar"]) != 0
    assert float(values["one"]) != 0


def test_no_noise_leaves_the_mean():
    values = {"a": torch.full((100,), 2.0)}
    noise(0.0).apply_(values, Randomness(), 0)
    assert bool((values["a"] == 2.0 / DIVISOR).all())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("multiplier", [1.5, 0.0])
def test_pitfall_05_sums_that_are_not_finite_are_refused_before_any_noise(value, dtype, multiplier):
    first, second = torch.zeros(10, dtype=dtype), torch.zeros(10, dtype=dtype)
    second[3] = value
    with pytest.raises(InputError, match="finite"):
        noise(multiplier).apply_({"a": first, "b": second}, Randomness(), 0)
    assert bool((first == 0).all())


@pytest.mark.parametrize("divisor", [0.0, -1.0, math.nan, math.inf])
def test_a_divisor_that_is_none_is_refused(divisor):
    with pytest.raises(InputError, match="divisor"):
        noise(divisor=divisor)


def test_values_are_changed_in_place_and_autograd_knows():
    values = torch.zeros(1000)
    version = values._version
    place = values.data_ptr()
    applied({"a": values})
    assert values.data_ptr() == place
    assert values._version > version


# Planted bugs: each is rejected by a check above.


def skip_some(values: Tensor, scale: float, key: Tensor, nonce: tuple[int, int, int]) -> None:
    """Leaves the last elements without noise."""
    REAL(values.view(-1)[: values.numel() - values.numel() // 50], scale, key, nonce)


def twice(values: Tensor, scale: float, key: Tensor, nonce: tuple[int, int, int]) -> None:
    REAL(values, scale, key, nonce)
    REAL(values, scale, key, (nonce[0] ^ 1, *nonce[1:]))


def one_nonce(values: Tensor, scale: float, key: Tensor, nonce: tuple[int, int, int], *, fast: bool = False) -> None:
    REAL(values, scale, key, (0, 0, 0), fast=fast)


def one_key(values: Tensor, scale: float, key: Tensor, nonce: tuple[int, int, int], *, fast: bool = False) -> None:
    REAL(values, scale, torch.zeros_like(key), nonce, fast=fast)


REAL = step_noise.add_normal_


def test_planted_noise_twice_is_rejected(monkeypatch):
    monkeypatch.setattr(step_noise, "add_normal_", twice)
    with pytest.raises(AssertionError):
        test_pitfall_14_the_law_of_the_noise(torch.float32, fast=False)


def test_planted_elements_without_noise_are_rejected(monkeypatch):
    monkeypatch.setattr(step_noise, "add_normal_", skip_some)
    with pytest.raises(AssertionError):
        test_within_a_parameter_no_two_elements_share_noise()


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("bug", [one_nonce, one_key])
def test_planted_noise_that_repeats_is_rejected(bug, fast, monkeypatch):
    monkeypatch.setattr(step_noise, "add_normal_", bug)
    with pytest.raises(AssertionError):
        test_steps_parameters_and_runs_have_noise_of_their_own(fast)


def test_planted_a_noise_that_is_not_divided_is_rejected(monkeypatch):
    monkeypatch.setattr(
        StepNoise,
        "_add_and_divide",
        lambda self, values, key: [v.div_(DIVISOR).add_(torch.randn_like(v)) for v in values],
    )
    with pytest.raises(AssertionError):
        test_pitfall_14_the_law_of_the_noise(torch.float32, fast=False)
