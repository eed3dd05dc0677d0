"""Judges for users: what they say of a run of one's own, how they fail, and that their p-values are what they claim."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from tacit.auditing.judges import (
    FALSE_ACCUSATION,
    JUDGES,
    Subject,
    Verdict,
    judge,
    judge_event,
    judge_reuse,
    judge_sensitivity,
)
from tacit.auditing.judges.event import _judge_poisson
from tacit.auditing.judges.subject import noise_of
from tacit.auditing.judges.verdict import (
    Evidence,
    alike_p_values,
    count_p_value,
    missed_scale,
    scale_p_value,
    shape_p_value,
)
from tacit.clipping import Automatic, Flat, PerLayer, Tanh
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.randomness import Randomness
from tacit.plan import DPSGD


def plan(**changes):
    usual = {
        "expected_batch_size": 4,
        "examples": 8,
        "steps": 12,
        "clipping": Flat(1.0),
        "delta": 1e-5,
        "noise_multiplier": 2.0,
    }
    return DPSGD(**{**usual, **changes})


def model():
    torch.manual_seed(0)
    return nn.Linear(6, 3).double()


def loss(network, x, y):
    return F.cross_entropy(network(x), y, reduction="none")


def records(count=8):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, 3, (count,), generator=generator)


def subject(**changes):
    return Subject(model, loss, records(), plan(**changes))


@pytest.mark.parametrize("clipping", [Automatic(1.0), Tanh(0.5, 0.1), Tanh(1.0, 1.0, 0.7)], ids=repr)
def test_every_clipping_passes_every_judge(clipping):
    verdicts = list(judge(subject(clipping=clipping)))
    assert [verdict.judge for verdict in verdicts] == list(JUDGES)
    assert [str(verdict) for verdict in verdicts if verdict.accused] == []


def test_a_clipping_rule_of_ones_own_that_keeps_no_bound_is_accused():
    assert not judge_sensitivity(subject(clipping=Flat(0.1))).accused
    verdict = judge_sensitivity(subject(clipping=_Unclipped(0.1)))
    assert verdict.accused
    assert "the sum moves by" in verdict.finding


class _Unclipped(Flat):
    """States a bound and keeps none."""

    def bind(self, names):
        bound = super().bind(names)
        return type(bound)(bound.groups, bound.bounds, rule=lambda norms, bounds: torch.ones_like(norms))


def test_pairs_of_ones_own_are_tried_too():
    x, y = records()
    verdict = judge_sensitivity(subject(), [("my record", (x[:2], y[:2]), (x[:1], y[:1]))])
    assert not verdict.accused
    # Two records more are no neighbours, and the judge notices.
    assert judge_sensitivity(subject(clipping=Flat(0.1)), [("two", (x[:3], y[:3]), (x[:1], y[:1]))]).accused


def test_an_event_of_an_unknown_kind_is_refused():
    with pytest.raises(UnsupportedError, match="no judge knows its lots"):
        judge_event(subject(sampler="fixed-size"))


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({"sampler": "fixed-size"}, "event"),
        ({"clipping": PerLayer({"": 0.5})}, "canaries"),
    ],
)
def test_what_a_judge_has_no_test_for_does_not_silence_the_others(changes, unjudged):
    verdicts = list(judge(subject(**changes)))
    assert [verdict.judge for verdict in verdicts] == list(JUDGES)
    assert [verdict.judge for verdict in verdicts if not verdict.judged] == [unjudged]
    assert not any(verdict.accused for verdict in verdicts)
    assert any(str(verdict).startswith(f"{unjudged}: not judged, ") for verdict in verdicts)


def test_shuffled_lots_that_are_accounted_as_such_pass():
    assert not judge_event(subject(sampler="shuffled")).accused


def test_the_global_generators_are_left_as_they_were():
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    fixed = model()
    torch.set_rng_state(before[2])
    judge_reuse(Subject(lambda: fixed, loss, records(), plan()))
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])
    assert torch.equal(torch.get_rng_state(), before[2])


def test_noise_is_what_is_left_of_a_release():
    noise = noise_of(subject(), randomness=Randomness(unsafe_seed=3))
    assert noise.shape == (12, 21)
    assert scale_p_value(noise, 2.0) > 1e-6
    first = noise_of(subject(), steps=3, randomness=Randomness(unsafe_seed=3))
    np.testing.assert_allclose(first, noise[:3])


@pytest.mark.parametrize("columns", [(), (torch.zeros(0, 2),), [torch.zeros(3, 2)]])
def test_records_that_are_none_are_refused(columns):
    with pytest.raises(InputError, match="records: must be a tuple of tensors"):
        Subject(model, loss, columns, plan())


def test_a_verdict_is_one_line():
    assert str(Verdict("noise", accused=False, finding="noise of 1")) == "noise: passed, noise of 1"
    assert str(Verdict("noise", accused=True, finding="noise of 0")) == "noise: accused, noise of 0"


def test_evidence_pays_for_every_test():
    evidence = Evidence()
    evidence.add("a", FALSE_ACCUSATION / 10, tests=9)
    assert evidence.verdict("x").accused
    evidence.add("b", 1.0, tests=2)
    assert not evidence.verdict("x").accused
    evidence.add("c", 0.0)
    assert evidence.verdict("x").accused


@pytest.fixture
def stream():
    return np.random.default_rng(0)


def repeated(draw, stream, count=800):
    """P-values of correct data."""
    return np.array([draw(stream) for _ in range(count)])


@pytest.mark.parametrize(
    "draw",
    [
        lambda stream: scale_p_value(stream.normal(0, 3, 50), 3.0),
        lambda stream: shape_p_value(stream.normal(0, 3, 50), 3.0),
        lambda stream: alike_p_values(stream.standard_normal((1, 20)), stream.standard_normal((1, 20)))[0, 0],
        lambda stream: count_p_value(int(stream.binomial(40, 0.3)), 40, 0.3),
    ],
    ids=["scale", "shape", "alike", "count"],
)
def test_p_values_of_correct_data_are_rarely_small(draw, stream):
    found = repeated(draw, stream)
    for level in (0.01, 0.05, 0.2):
        assert np.mean(found <= level) <= level + 4 * np.sqrt(level / len(found))


def test_likeness_is_exact_and_zeros_are_like_nothing(stream):
    found = repeated(lambda s: alike_p_values(s.standard_normal((1, 8)), s.standard_normal((1, 8)))[0, 0], stream)
    assert stats.kstest(found, "uniform").pvalue > 1e-4
    row = stream.standard_normal((1, 8))
    assert alike_p_values(row, -2 * row)[0, 0] < 1e-30
    assert alike_p_values(row, 0 * row)[0, 0] == 1


def test_what_is_not_finite_is_accused():
    for p_value in (scale_p_value, shape_p_value):
        assert p_value(np.array([1.0, np.nan]), 1.0) == 0
        assert p_value(np.array([1.0, np.inf]), 1.0) == 0


def test_the_chance_to_miss_is_that_of_repeated_draws(stream):
    """At a level that draws can show: noise of 1.5 on 60 numbers, among one test."""
    expected = missed_scale(1.5, 60)
    found = [scale_p_value(stream.normal(0, 1.5, 60), 1.0) >= FALSE_ACCUSATION for _ in range(1500)]
    assert np.mean(found) == pytest.approx(expected, abs=0.06)
    assert 0.05 < expected < 0.95


def test_a_sampler_that_prefers_a_record_is_accused(stream):
    drawn = stream.random((200, 10)) < 0.3
    assert not _judge_poisson(drawn, 0.3).accused
    drawn[:, 4] = stream.random(200) < 0.75
    verdict = _judge_poisson(drawn, 0.3)
    assert verdict.accused
    assert "record 4" in verdict.finding
