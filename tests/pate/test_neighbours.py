"""Private-kNN: who votes, how far one record moves the votes, and what sampling costs."""

import math

import numpy as np
import pytest
import torch
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.datasets import Split
from tacit.pate.aggregation import ConfidentGNMax
from tacit.pate.neighbours import PrivateKNN, _order, on_grid

CONFIDENT = ConfidentGNMax(threshold=6, sigma_threshold=2, sigma=3)


def everybody(voters: int) -> PrivateKNN:
    """Rates this near to 1 take every record in these tests."""
    return PrivateKNN(1 - 1e-15, voters, CONFIDENT)


def records(count: int, seed: int, *, coarse: bool = False) -> Split:
    rng = np.random.default_rng(seed)
    inputs = rng.integers(-2, 3, (count, 4)).astype(np.float32) if coarse else rng.normal(size=(count, 4))
    return Split(torch.from_numpy(inputs).float(), torch.from_numpy(rng.integers(0, 3, count)))


def votes(how: PrivateKNN, known: Split, questions: torch.Tensor, seed: int = 0) -> np.ndarray:
    return how.votes(known, questions, range(len(questions)), 3, Randomness(unsafe_seed=seed), purpose="answer")


def test_nearest_by_angle_vote_as_a_slow_loop_says():
    known, questions = records(60, 1), records(7, 2).inputs
    grid, asked = on_grid(known.inputs).to(torch.int64).tolist(), on_grid(questions).to(torch.int64).tolist()
    expected = np.zeros((7, 3), dtype=np.int64)
    for row, question in enumerate(asked):
        nearness = [sum(a * b for a, b in zip(question, record, strict=True)) for record in grid]
        for place in sorted(range(60), key=lambda place: (-nearness[place], place))[:9]:
            expected[row, int(known.targets[place])] += 1
    assert (votes(everybody(9), known, questions) == expected).all()


@given(st.integers(0, 10_000), st.integers(0, 40), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_one_record_moves_one_vote_also_where_many_are_equally_near(seed: int, place: int, voters: int):
    known, questions = records(41, seed, coarse=True), records(5, seed + 1, coarse=True).inputs
    kept = torch.arange(41) != place
    without = Split(known.inputs[kept], known.targets[kept])
    moved = votes(everybody(voters), known, questions) - votes(everybody(voters), without, questions)
    assert (np.abs(moved).sum(1) <= 2).all()
    assert (np.linalg.norm(moved, axis=1) <= math.sqrt(2) + 1e-12).all()


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_a_record_never_changes_the_order_of_the_others(seed: int):
    """Products of grid vectors are integers that float32 holds, so no sum depends on what is computed beside it."""
    rng = np.random.default_rng(seed)
    width = int(rng.integers(1, 400))
    vectors = on_grid(torch.from_numpy(rng.normal(size=(20, width)) * 10.0 ** rng.integers(-30, 30, (20, 1))))
    assert vectors.abs().max() <= 2048
    exact = vectors.long() @ vectors.long().t()
    assert int(exact.abs().max()) < 2**24
    assert torch.equal((vectors @ vectors.t()).long(), exact)


def test_a_question_sees_records_at_the_sampling_rate_and_another_sample_for_each_purpose():
    known, questions = records(4000, 3), records(50, 4).inputs
    how = PrivateKNN(0.05, 4000, CONFIDENT)
    counts = votes(how, known, questions).sum(1)
    expected = stats.binom(4000, 0.05)
    assert stats.kstest(counts, expected.cdf).pvalue > 1e-3
    for near_miss in (0.045, 0.056):
        assert stats.kstest(counts, stats.binom(4000, near_miss).cdf).pvalue < 1e-3
    rng = Randomness(unsafe_seed=0)
    test, answer = (how.votes(known, questions, range(50), 3, rng, purpose=purpose) for purpose in ("test", "answer"))
    assert (test != answer).any()


def test_questions_that_are_not_asked_get_no_votes():
    found = everybody(5).votes(records(20, 5), records(6, 6).inputs, [4, 1], 3, Randomness(), purpose="answer")
    assert found.sum(1).tolist() == [0, 5, 0, 0, 5, 0]


def test_fewer_records_than_voters_all_vote():
    assert votes(everybody(50), records(8, 7), records(2, 8).inputs).sum(1).tolist() == [8, 8]


def test_features_that_are_not_finite_are_near_to_nothing_and_huge_ones_do_no_harm():
    features = torch.tensor([[math.nan, 1.0], [math.inf, 0.0], [0.0, 0.0], [3e38, 3e38], [1e-40, 0.0]])
    expected = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1448.0, 1448.0], [2048.0, 0.0]])
    assert torch.equal(on_grid(features), expected)


def test_events_are_sampled_gaussians_of_both_noises():
    how = PrivateKNN(0.1, 10, CONFIDENT)
    for event, multiplier in (
        (how.question_event(Neighbours.ADD_REMOVE), 2.0),
        (how.answer_event(Neighbours.ADD_REMOVE), 3.0 / math.sqrt(2)),
    ):
        assert event == dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(multiplier))


def test_of_equally_near_records_the_earlier_ones_vote():
    known = Split(torch.ones(6, 2), torch.tensor([0, 0, 1, 1, 2, 2]))
    order = _order(on_grid(torch.ones(1, 2)), on_grid(known.inputs))[0]
    assert order.argsort(descending=True).tolist() == list(range(6))
    assert len(order.unique()) == 6
    assert votes(everybody(3), known, torch.ones(1, 2)).tolist() == [[2, 1, 0]]


def test_bad_input():
    with pytest.raises(InputError, match="sampling_rate=1"):
        PrivateKNN(1.0, 10, CONFIDENT)
    with pytest.raises(InputError, match="voters=0"):
        PrivateKNN(0.1, 0, CONFIDENT)
    with pytest.raises(InputError, match="Flatten images"):
        everybody(3).votes(
            Split(torch.zeros(2, 1, 4, 4), torch.zeros(2, dtype=torch.long)),
            torch.zeros(1, 16),
            [0],
            3,
            Randomness(),
            purpose="test",
        )
