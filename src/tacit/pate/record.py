"""A run of PATE as plain JSON values: what may be told, and apart from it what the votes show, which is private."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit.core.privacy import PrivacyUnit, Statement
from tacit.core.randomness import Randomness
from tacit.mechanisms import Laplace
from tacit.pate.account import data_dependent_epsilon, data_independent_epsilon, first, query_counts
from tacit.pate.aggregation import Aggregator, ConfidentGNMax, GNMax, LNMax
from tacit.pate.experiment import PateResult
from tacit.pate.neighbours import PrivateKNN
from tacit.pate.plan import Pate
from tacit.pate.votes import Votes

_BINS = 20
_GAMMAS = tuple(float(gamma) for gamma in np.geomspace(0.005, 1.0, 13).round(4))
_SHOWN_GAPS = 1000


def public_record(result: PateResult, pate: Pate, *, dataset: str, unit: PrivacyUnit) -> dict[str, Any]:
    """What may be told, under the keys that `tacit.reporting.pate_record` reads: nothing of votes without noise."""
    statement = pate_statement(result, pate, unit)
    figures = result.to_dict()
    for name in ("epsilon", "epsilon_is_private", "excluded_teachers", "private"):
        del figures[name]
    return {
        **figures,
        "dataset": dataset,
        "statement": statement.to_dict(),
        "teachers": result.poll.voters,
        "noise_deviation": _noise_deviation(pate.aggregator),
        "student_curve": [{"step": step, "accuracy": accuracy} for step, accuracy in result.student_curve],
        "epsilon_by_queries": _epsilons(result, pate),
        "seed": pate.seed,
        "plan": {
            "aggregator": pate.aggregation,
            "student": pate.learning,
            "features": pate.features,
            "selection": pate.choose,
            "rounds": pate.rounds,
            "public": pate.public,
            "public_inputs": len(result.truth),
            "neighbours": result.neighbours.value,
            "unit": str(unit),
            "delta": pate.delta,
        },
    }


def pate_statement(result: PateResult, pate: Pate, unit: PrivacyUnit) -> Statement:
    """What may be said of the student: the guarantee whatever the votes."""
    answers, published = result.answers, result.epsilon_released is not None
    sampled = isinstance(pate.aggregator, PrivateKNN)
    beside = ", and of a published epsilon for these votes" if published else ""
    return Statement(
        epsilon=result.epsilon_data_independent,
        delta=result.delta,
        neighbours=result.neighbours,
        unit=unit,
        mechanism=f"{len(answers.asked)} questions and {len(answers.rows)} answers by {pate.aggregation}{beside}",
        sampler="a Poisson sample for each" if sampled else "every record with one teacher",
        accountant="rdp" if published else "pld",
        released="student",
    )


def private_record(result: PateResult, pate: Pate) -> dict[str, Any]:
    """What votes without noise show: the key ``private`` of a record, for the owner of the data alone."""
    votes = result.poll.unsafe_votes
    asked = votes[votes.sum(1) > 0]
    truth = result.truth[votes.sum(1) > 0]
    ordered = np.sort(asked, axis=1)
    teachers = int(asked.sum(1).max())
    return {
        "epsilon": None if result.epsilon is None else result.epsilon.unsafe_value,
        "teacher_accuracy": float(np.mean(asked[np.arange(len(asked)), truth] / asked.sum(1))),
        "plurality_accuracy": float(np.mean(asked.argmax(1) == truth)),
        "agreement_histogram": np.histogram(ordered[:, -1], bins=_BINS, range=(0, teachers))[0].tolist(),
        "gaps": (ordered[:, -1] - ordered[:, -2])[:_SHOWN_GAPS].tolist(),
        "gammas": list(_GAMMAS),
        "aggregate_accuracy_by_gamma": [accuracy_at(asked, truth, gamma) for gamma in _GAMMAS],
        "epsilon_by_queries": _private_epsilons(result, pate),
    }


def accuracy_at(votes: Votes, truth: npt.NDArray[np.int64], gamma: float) -> float:
    """How often the largest count is right after Laplace noise of scale 1 / gamma; a look at private votes."""
    noisy = Laplace(1 / gamma, 2.0).add_noise(torch.from_numpy(votes).double(), Randomness().stream("figure"))
    return float(np.mean(noisy.argmax(1).numpy() == truth))


def _epsilons(result: PateResult, pate: Pate) -> list[dict[str, float]]:
    return [
        {
            "queries": int(count),
            "epsilon": data_independent_epsilon(first(result.rounds, count), pate.delta, result.neighbours),
        }
        for count in query_counts(len(result.answers.asked))
    ]


def _private_epsilons(result: PateResult, pate: Pate) -> list[dict[str, float]]:
    found = []
    for count in query_counts(len(result.answers.asked)):
        epsilon = data_dependent_epsilon(result.poll.unsafe_votes, first(result.rounds, count), pate.delta)
        if epsilon is not None:
            found.append({"queries": int(count), "epsilon": epsilon.unsafe_value})
    return found


def _noise_deviation(aggregator: Aggregator) -> float | None:
    """The standard deviation of the noise on a count."""
    if isinstance(aggregator, LNMax):
        return float(np.sqrt(2) / aggregator.gamma)
    if isinstance(aggregator, GNMax | ConfidentGNMax):
        return aggregator.sigma
    return aggregator.noise.sigma if isinstance(aggregator, PrivateKNN) else None
