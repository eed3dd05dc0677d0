"""The plan: what it calibrates, what it refuses and how it says so, and that nothing in it can disagree."""

import dataclasses
import json
import math
import warnings

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.accounting import ACCOUNTANTS, epsilon
from tacit.clipping import Automatic, Flat, PerLayer
from tacit.core import InputError, Neighbours, PrivacyUnit, UnsupportedError
from tacit.plan import DPSGD, DeltaWarning
from tacit.sampling import FixedSize, Poisson, Shuffled, TruncatedPoisson

GOOD = {
    "expected_batch_size": 20,
    "examples": 1000,
    "steps": 50,
    "clipping": Flat(0.5),
    "noise_multiplier": 1.1,
    "delta": 1e-5,
}


def plan(**changes) -> DPSGD:
    arguments = {**GOOD, **changes}
    if "epsilon" in changes:
        arguments.pop("noise_multiplier")
    return DPSGD(**arguments)


def exact_gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    return ACCOUNTANTS["pld"].epsilon(dp_event.GaussianDpEvent(noise_multiplier), delta, Neighbours.ADD_REMOVE)


@pytest.mark.parametrize(
    ("sampler", "target"),
    [
        *(("poisson", target) for target in (0.3, 1.0, 3.0, 8.0)),
        *((sampler, 3.0) for sampler in ("truncated-poisson", "fixed-size", "shuffled")),
    ],
)
def test_calibrated_noise_meets_the_target_from_below_and_closely(sampler: str, target: float) -> None:
    found = plan(epsilon=target, sampler=sampler, steps=10)
    assert 0.99 * target < found.epsilon() <= target
    less = plan(noise_multiplier=found.noise_multiplier * 0.999, sampler=sampler, steps=10)
    assert less.epsilon() > target * 0.9999


def test_the_readme_plan() -> None:
    large = tacit.DPSGD(
        expected_batch_size=512, examples=60_000, steps=4_000, clipping=Flat(0.1), epsilon=3.0, delta=1e-5
    )
    assert large.noise_multiplier == pytest.approx(1.02, abs=0.01)
    assert large.sampling_rate == pytest.approx(512 / 60_000, rel=1e-12)


BAD = {
    "delta": [
        ({"delta": 0.0}, r"^delta=0\.0: must lie strictly between 0 and 1\. Take it well below 1 / number of examples"),
        ({"delta": 1.0}, r"^delta=1\.0: must lie strictly between 0 and 1\."),
        ({"delta": -1e-5}, r"^delta=-1e-05: must lie strictly"),
        ({"delta": math.nan}, r"^delta=nan: must be a number\."),
        ({"delta": "1e-5"}, r"^delta='1e-5': must be a number\."),
    ],
    "epsilon": [
        ({"epsilon": 0.0}, r"^epsilon=0\.0: must be a finite number above 0\. Typical values lie from 0\.5 to 10\.$"),
        ({"epsilon": -1.0}, r"^epsilon=-1\.0: must be a finite number above 0\."),
        ({"epsilon": math.inf}, r"^epsilon=inf: must be a finite number above 0\."),
        (
            {"epsilon": None},
            r"^epsilon=None, noise_multiplier=None: exactly one must be given\. Give epsilon to find the noise",
        ),
    ],
    "noise": [
        (
            {"noise_multiplier": 0.0},
            r"^noise_multiplier=0\.0: must be a finite number above 0\. Only unsafe_no_noise=True allows 0",
        ),
        ({"noise_multiplier": 0}, r"^noise_multiplier=0: must be a finite number above 0\. Only unsafe_no_noise=True"),
        ({"noise_multiplier": -1.0}, r"^noise_multiplier=-1\.0: must be a finite number above 0\."),
        ({"noise_multiplier": -1.0, "unsafe_no_noise": True}, r"^noise_multiplier=-1\.0: must be a finite number"),
        ({"noise_multiplier": math.nan}, r"^noise_multiplier=nan: must be a number\."),
    ],
    "sizes": [
        (
            {"expected_batch_size": 1001},
            r"^expected_batch_size=1001: must be at most the 1000 examples\. Take a smaller batch\.$",
        ),
        ({"expected_batch_size": 0}, r"^expected_batch_size=0: must be at least 1\.$"),
        ({"expected_batch_size": 2.5}, r"^expected_batch_size=2\.5: must be a whole number\.$"),
        ({"examples": 0}, r"^examples=0: must be at least 1\.$"),
        ({"examples": True}, r"^examples=True: must be a whole number\.$"),
        ({"steps": 0}, r"^steps=0: must be at least 1\. A run takes at least one step\.$"),
        ({"steps": -3}, r"^steps=-3: must be at least 1\."),
        ({"steps": 1.5}, r"^steps=1\.5: must be a whole number\."),
    ],
    "parts": [
        ({"clipping": 0.1}, r"^clipping=0\.1: must be a clipping rule\. Use one of tacit\.clipping, such as Flat"),
        ({"neighbours": "add-remove"}, r"^neighbours='add-remove': must be a Neighbours\. Use tacit\.Neighbours\.$"),
        ({"unit": "user"}, r"^unit='user': must be a PrivacyUnit\. Use tacit\.PrivacyUnit\.$"),
        ({"sampler": "uniform"}, r"^sampler='uniform': must be one of fixed-size, poisson, shuffled, truncated"),
        ({"accountant": "magic"}, r"^accountant='magic': must be one of basic, gdp, moments"),
    ],
}


@pytest.mark.parametrize(
    ("changes", "message"), [pytest.param(*case, id=str(case[0])) for cases in BAD.values() for case in cases]
)
def test_bad_input_is_one_line_with_argument_value_rule_and_remedy(changes, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        plan(**changes)
    assert "\n" not in str(caught.value)


def test_both_epsilon_and_noise_are_refused() -> None:
    with pytest.raises(InputError, match=r"^epsilon=1\.0, noise_multiplier=1\.1: exactly one must be given"):
        DPSGD(**GOOD, epsilon=1.0)


@pytest.mark.parametrize("delta", [1e-3, 0.01, 0.5])
def test_a_delta_of_one_over_examples_or_more_warns(delta: float) -> None:
    with pytest.warns(DeltaWarning, match=rf"^delta={delta:g}: is at least 1 / 1000 examples") as caught:
        plan(delta=delta)
    assert caught[0].filename == __file__  # the warning points at the caller


def test_a_smaller_delta_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan(delta=0.99e-3)


@pytest.mark.parametrize("name", ["gdp", "strong"])
def test_estimates_are_refused_as_accountants(name: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"^accountant='{name}': is an estimate that can lie below"):
        plan(accountant=name)


@pytest.mark.parametrize("name", ["pld", "rdp", "moments", "basic", "strong-rigorous"])
def test_every_proven_accountant_is_taken_and_none_lies_below_pld(name: str) -> None:
    found = plan(accountant=name)
    assert found.accountant == name
    assert found.epsilon() >= plan(accountant="pld").epsilon() * 0.999


@pytest.mark.parametrize(
    ("sampler", "neighbours", "accountant"),
    [
        ("poisson", Neighbours.ADD_REMOVE, "pld"),
        ("truncated-poisson", Neighbours.ZERO_OUT, "pld"),
        ("fixed-size", Neighbours.REPLACE_ONE, "rdp"),
        ("shuffled", Neighbours.ZERO_OUT, "pld"),
    ],
)
def test_defaults_of_each_sampler(sampler: str, neighbours: Neighbours, accountant: str) -> None:
    found = plan(sampler=sampler)
    assert (found.sampler.name, found.neighbours, found.accountant) == (sampler, neighbours, accountant)
    assert 0 < found.epsilon() < math.inf


@pytest.mark.parametrize(
    ("sampler", "neighbours"),
    [
        ("fixed-size", Neighbours.ADD_REMOVE),
        ("shuffled", Neighbours.ADD_REMOVE),
        ("truncated-poisson", Neighbours.ADD_REMOVE),
        ("fixed-size", Neighbours.ZERO_OUT),
    ],
)
def test_relations_that_a_sampler_has_no_event_for_are_refused(sampler: str, neighbours: Neighbours) -> None:
    with pytest.raises(UnsupportedError, match=rf"^neighbours={neighbours.value}: "):
        plan(sampler=sampler, neighbours=neighbours)


@pytest.mark.parametrize(
    ("accountant", "sampler", "neighbours"),
    [
        ("pld", "fixed-size", None),
        ("moments", "fixed-size", None),
        ("rdp", "truncated-poisson", None),
        ("rdp", "poisson", Neighbours.REPLACE_ONE),
    ],
)
def test_an_accountant_that_cannot_bound_the_sampler_is_refused_before_training(accountant, sampler, neighbours):
    with pytest.raises(UnsupportedError, match=rf"^accountant='{accountant}': does not bound {sampler} sampling"):
        plan(accountant=accountant, sampler=sampler, neighbours=neighbours)


def test_pitfall_33_the_event_is_the_samplers_own() -> None:
    found = plan(sampler=Poisson(0.02))
    assert found.event() == dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.1)), 50
    )
    assert found.event(7).count == 7
    assert found.epsilon(7) == pytest.approx(epsilon(found.event(7), 1e-5), rel=1e-12)
    assert isinstance(found.event(0), dp_event.NoOpDpEvent)
    assert found.epsilon(0) == 0


def test_pitfall_33_shuffling_reports_what_shuffling_earns() -> None:
    """One epoch of shuffled batches costs one unsampled Gaussian, far more than Poisson sampling's amplified cost."""
    shuffled, poisson = plan(sampler="shuffled"), plan(sampler="poisson")
    assert shuffled.steps * shuffled.expected_batch_size == shuffled.examples
    assert shuffled.epsilon() == pytest.approx(exact_gaussian_epsilon(1.1, 1e-5), rel=1e-3)
    assert shuffled.epsilon() > 3 * poisson.epsilon()
    two_epochs = plan(sampler="shuffled", steps=51)
    assert two_epochs.epsilon() == pytest.approx(exact_gaussian_epsilon(1.1 / math.sqrt(2), 1e-5), rel=1e-3)


def test_a_replaced_record_moves_the_sum_twice_as_far() -> None:
    """Full batches without sampling: replace-one at noise z is the plain Gaussian at z / 2."""
    changes = {"expected_batch_size": 1000, "steps": 1, "noise_multiplier": 4.0}
    once, twice = plan(**changes), plan(**changes, neighbours=Neighbours.REPLACE_ONE)
    assert once.epsilon() == pytest.approx(exact_gaussian_epsilon(4.0, 1e-5), rel=1e-3)
    assert twice.epsilon() == pytest.approx(exact_gaussian_epsilon(2.0, 1e-5), rel=1e-3)
    for sampler in ("fixed-size", "shuffled"):
        other = plan(**changes, sampler=sampler, neighbours=Neighbours.REPLACE_ONE)
        assert other.epsilon() >= twice.epsilon() * 0.999
    # The noise itself has one scale under every relation.
    assert once.mechanism(0.5).scale == twice.mechanism(0.5).scale == 2.0


@pytest.mark.parametrize("sampler", [object(), [1, 2], 0.1, range(5)])
def test_pitfall_34_an_unknown_sampler_is_refused(sampler: object) -> None:
    with pytest.raises(UnsupportedError, match=rf"^sampler={type(sampler).__name__}: cannot be accounted for"):
        plan(sampler=sampler)


@pytest.mark.parametrize(
    "sampler",
    [Poisson(0.05), Poisson(0.0189), TruncatedPoisson(0.02, 1000, 15), FixedSize(1000, 21), Shuffled(1000, 10)],
)
def test_a_sampler_that_draws_another_batch_size_is_refused(sampler) -> None:
    with pytest.raises(InputError, match=r"^expected_batch_size=20: the sampler draws .* of 1000 examples on average"):
        plan(sampler=sampler)


@pytest.mark.parametrize("sampler", [FixedSize(999, 20), Shuffled(2000, 20), TruncatedPoisson(0.02, 999, 100)])
def test_a_sampler_for_another_public_size_is_refused(sampler) -> None:
    with pytest.raises(InputError, match=r"^examples=1000: must be the declared "):
        plan(sampler=sampler)


@pytest.mark.parametrize(
    "sampler", [Poisson(0.02), Poisson(0.0203), TruncatedPoisson(0.02, 1000, 60), FixedSize(1000, 20)]
)
def test_pitfall_02_the_stated_rate_is_the_samplers(sampler) -> None:
    found = plan(sampler=sampler)
    assert found.sampling_rate == pytest.approx(sampler.expected_batch_size(1000) / 1000, rel=1e-12)
    assert found.to_dict()["sampling_rate"] == found.sampling_rate


@settings(max_examples=200)
@given(st.integers(1, 5000), st.data())
def test_pitfall_02_planned_sampled_and_accounted_rate_are_one(examples: int, data) -> None:
    batch = data.draw(st.integers(1, examples))
    found = plan(examples=examples, expected_batch_size=batch, steps=3, delta=1e-9)
    assert found.sampler.sampling_rate == batch / examples
    assert found.event().event.sampling_probability == batch / examples
    assert found.event().count == 3


def test_a_unit_of_several_examples_costs_group_privacy() -> None:
    people = PrivacyUnit("person", 4)
    single, person = plan(accountant="rdp"), plan(accountant="rdp", unit=people)
    assert person.epsilon() > 4 * single.epsilon()
    calibrated = plan(epsilon=3.0, accountant="rdp", unit=people)
    assert 0.99 * 3.0 < calibrated.epsilon() <= 3.0
    assert calibrated.noise_multiplier > plan(epsilon=3.0, accountant="rdp").noise_multiplier
    sentence = str(person.statement())
    assert "for one person (up to 4 examples)" in sentence
    assert "accounted by rdp with group privacy for 4 examples" in sentence


def test_no_noise_needs_its_flag_and_is_stated() -> None:
    bare = plan(noise_multiplier=0, unsafe_no_noise=True)
    assert bare.noise_multiplier == 0
    assert bare.epsilon() == math.inf
    assert "not differentially private" in str(bare.statement())
    assert bare.statement().to_dict()["epsilon"] is None
    assert bare.mechanism(1.0).scale == 0
    assert plan(unsafe_no_noise=True).epsilon() == plan().epsilon()


def test_the_statement_holds_every_assumption() -> None:
    sentence = str(plan(sampler="truncated-poisson").statement(30, caveats=("a caveat of the caller",)))
    for part in (
        "1e-05)-differentially private",
        "for one example",
        "zero-out relation",
        "30 steps of DP-SGD",
        "noise multiplier 1.1",
        "flat clipping at norm 0.5",
        "Poisson sampling at rate 0.02 truncated to 43 of 1000 examples",
        "accounted by pld",
        "a caveat of the caller",
    ):
        assert part in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("clipping", [Flat(0.5), PerLayer({"a": 1.0, "b": 2.0}), Automatic(1.0)], ids=repr)
def test_to_dict_is_plain_json(clipping) -> None:
    found = plan(clipping=clipping, examples=np.int64(1000), expected_batch_size=np.int32(20))
    values = json.loads(json.dumps(found.to_dict()))
    assert values["algorithm"] == "DP-SGD"
    assert values["clipping"] == clipping.describe()
    assert values["neighbours"] == "add-remove"
    assert values["examples"] == 1000
    assert set(values) >= {"expected_batch_size", "sampling_rate", "steps", "noise_multiplier", "delta", "accountant"}


def test_the_plan_is_frozen_and_compares_by_value() -> None:
    found = plan()
    for field in dataclasses.fields(found):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(found, field.name, None)
    assert found == plan()
    assert hash(found) == hash(plan())
    assert found != plan(steps=51)


@settings(max_examples=12)
@given(st.integers(1, 400), st.integers(1, 400), st.floats(0.6, 5.0), st.floats(1.05, 2.0))
def test_epsilon_is_monotone_in_steps_and_noise(steps: int, more: int, noise: float, factor: float) -> None:
    found = plan(noise_multiplier=noise, steps=steps)
    slack = 1 + 1e-3
    assert found.epsilon() <= plan(noise_multiplier=noise, steps=steps + more).epsilon() * slack
    assert found.epsilon() >= plan(noise_multiplier=noise * factor, steps=steps).epsilon() / slack
    assert found.epsilon(steps=0) == 0


@pytest.mark.parametrize("bound", [0.1, 1.0, 7.0])
def test_the_clipping_norm_changes_the_scale_and_not_epsilon(bound: float) -> None:
    found = plan(clipping=Flat(bound))
    assert found.epsilon() == plan().epsilon()
    assert found.mechanism(bound).scale == pytest.approx(1.1 * bound)
