"""Private-kNN with as little noise as an epsilon allows."""

from tacit.accounting import epsilon as event_epsilon
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_count, check_positive
from tacit.pate.aggregation import ConfidentGNMax, GNMax
from tacit.pate.answering import event_of
from tacit.pate.neighbours import PrivateKNN

DEFAULT_RATE = 0.05
_NEAR = 1 / 30  # of a sample's records vote
_TEST_NOISE = 3.0  # times the noise of an answer: a test sees the largest count alone, which is less in the dark


def calibrated_knn(
    records: int,
    queries: int,
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float = DEFAULT_RATE,
    voters: int | None = None,
    threshold: float | None = None,
) -> PrivateKNN:
    """The least noise with which so many questions, all of them answered, cost this epsilon under add-remove.

    Args:
        records: how many private records there are about, for the number of voters alone; a public constant.
        queries: how many questions.
        epsilon, delta: of the whole.
        sampling_rate: of records for each test and answer.
        voters: k; a thirtieth of a sample by default.
        threshold: how many voters must agree for an answer, which a noisy test decides; None answers every question,
            and spends all of epsilon on answers.
    """
    check_count("queries", queries)
    check_positive("epsilon", epsilon)
    count = max(2, round(_NEAR * sampling_rate * records)) if voters is None else voters

    def with_noise(sigma: float) -> PrivateKNN:
        tested = None if threshold is None else ConfidentGNMax(threshold, _TEST_NOISE * sigma, sigma)
        return PrivateKNN(sampling_rate, count, tested or GNMax(sigma))

    def costs_too_much(sigma: float) -> bool:
        event = event_of(with_noise(sigma), Neighbours.ADD_REMOVE, queries, queries)
        return event_epsilon(event, delta, neighbours=Neighbours.ADD_REMOVE) > epsilon

    low, high = 0.5, 1.0
    while costs_too_much(high):
        low, high = high, 2 * high
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if costs_too_much(middle) else (low, middle)
    return with_noise(high)
