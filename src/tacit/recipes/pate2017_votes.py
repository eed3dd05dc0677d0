"""What PATE's votes cost: the pair of epsilons of 2017 for 100 and for 1,000 questions, on votes much like the paper's.

The authors gave their teachers' labels away beside their code, but they are no part of this repository, and votes of
good teachers cost far less. So these teachers are weak: linear models after one step of descent, on scattering
features whose directions the public inputs decide. Their whitening and their steps were chosen among some thirty
settings, networks and pixels among them, so that the votes cost about what the paper's did and the noisy answers are
right at least as often. That was a choice on the test images themselves, by the first two partitions; the others came
afterwards. What it shows is that the accountant gives the paper's pair for votes that agree as these do, not how good
the paper's teachers were: ours are right less often each (``beside``), and their noisy answers more often. The
accountant is that of the paper, with its eight moments, and nothing of it was chosen.

All test images are public and asked for in the order of the file; the paper's 100 questions were those that its
student saw. Nobody learns from the answers. Every seed is a partition of its own; ``partitions`` holds what each of
them gave.

What it is for depends on votes without noise: epsilons, and how often a teacher is right. No budget can pay for that,
so it takes no account.
"""

import dataclasses
import statistics
import time
from typing import Any

import numpy as np

from tacit.accounting.pate import lnmax_epsilon
from tacit.core.privacy import Statement
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, load, with_features
from tacit.pate.account import data_independent_epsilon, first
from tacit.pate.aggregation import LNMax
from tacit.pate.answering import Answers, Round, Terms, ask
from tacit.pate.linear_teachers import LinearFitting
from tacit.pate.partition import Indices
from tacit.pate.public_features import PublicFeatures
from tacit.pate.settings import fixed_features
from tacit.pate.voters import Classroom, Shares, TeacherVoters, linear_voters
from tacit.pate.votes import Votes
from tacit.recipes.conditions import FEATURES, TRAINING, Conditions, Progress, seed_facts
from tacit.recipes.holding_out import hold_out
from tacit.recipes.interrupting import seed_by_seed
from tacit.recipes.knob_rules import check_knobs
from tacit.recipes.pate_images import BY_MOMENTS, PATE_2017
from tacit.recipes.recipe import DELTA, Published, Recipe

_DATASET = "mnist"
_PAIR = {100: 2.04, 1000: 8.03}  # questions, and what they cost
_MOST = max(_PAIR)
_ANSWERS_RIGHT, _TEACHER_RIGHT = 0.9318, 0.8386  # as published
_CHOSEN = "linear; chosen among some thirty settings so that partitions 0 and 1 cost about what the paper's votes did"
_TICKS = 100  # of the progress bar


@dataclasses.dataclass(frozen=True)
class Knobs:
    """What ``--set`` may change: how many teachers, how weak they are, and the noise.

    Attributes:
        teachers: how many.
        gamma: the inverse scale of the Laplace noise on each count.
        directions, whitening: of the features, as in `PublicFeatures`.
        teacher_steps: of a teacher's descent, as in `LinearFitting`.
        delta: of the guarantee.
    """

    teachers: int = 250
    gamma: float = 0.05
    directions: int = 300
    whitening: float = 0.4
    teacher_steps: int = 1
    delta: float = DELTA

    def __post_init__(self) -> None:
        check_knobs(self)

    @property
    def voters(self) -> TeacherVoters:
        """Who votes."""
        return linear_voters(Shares(self.teachers), LinearFitting(steps=self.teacher_steps))

    @property
    def aggregator(self) -> LNMax:
        """How noisy answers are made."""
        return LNMax(self.gamma)


@dataclasses.dataclass(frozen=True)
class _Partition:
    """The votes of one partition, and the noisy answers to all questions."""

    unsafe_votes: Votes
    answers: Answers
    seconds: float

    def figures(self, knobs: Knobs, truth: Indices) -> dict[str, Any]:
        """Plain JSON values; all but ``answers_right`` depends on the votes without noise."""
        votes, rows = self.unsafe_votes, self.answers.rows
        return {
            "epsilons": {
                _said(count): lnmax_epsilon(votes[:count], knobs.gamma, knobs.delta).unsafe_value for count in _PAIR
            },
            "teacher_right": float(votes[np.arange(len(votes)), truth].sum() / votes.sum()),
            "answers_right": float(np.mean(self.answers.labels == truth[rows])),
        }


def run(knobs: Knobs, conditions: Conditions, progress: Progress) -> dict[str, Any]:
    """Lets the teachers of every partition vote, and counts what the answers cost; plain JSON values."""
    conditions.refuse_account()
    data = _seen(load(_DATASET), progress)
    data = (hold_out(data) if conditions.held_out else data).to(conditions.device)
    room, truth = _classroom(data, knobs), data.test.targets.cpu().numpy()
    return seed_by_seed(
        range(conditions.seeds),
        lambda seed: _asked(room, knobs, seed, progress),
        lambda partitions: _summary(partitions, knobs, conditions, truth),
    )


def _seen(data: DataSet, progress: Progress) -> DataSet:
    fixed = fixed_features(data)
    if fixed is None:
        return data
    return with_features(data, fixed, report=lambda done, inputs: progress(0, done, inputs, 0.0, FEATURES))


def _classroom(data: DataSet, knobs: Knobs) -> Classroom:
    public = data.test.inputs
    features = PublicFeatures.learn(public, directions=knobs.directions, whitening=knobs.whitening)
    return Classroom(data.train, features(data.train.inputs), public, features(public), data.classes)


def _asked(room: Classroom, knobs: Knobs, seed: int, progress: Progress) -> _Partition:
    started = time.perf_counter()
    voters, randomness, questions = knobs.voters, Randomness(), range(len(room.questions))
    pollster = voters.gather(
        room, seed=seed, progress=lambda share: progress(seed, round(_TICKS * share), _TICKS, 0.0, TRAINING)
    )
    votes = pollster(room, questions, randomness).unsafe_votes
    terms = Terms(neighbours=voters.relations[0], unit=voters.unit)
    answers = ask(votes, questions, knobs.aggregator, randomness, terms=terms)
    return _Partition(votes, answers, time.perf_counter() - started)


def _summary(partitions: list[_Partition], knobs: Knobs, conditions: Conditions, truth: Indices) -> dict[str, Any]:
    each = [partition.figures(knobs, truth) for partition in partitions]
    right = [one["answers_right"] for one in each]
    epsilons = {}
    for count, published in _PAIR.items():
        epsilons[_said(count)] = statistics.fmean(one["epsilons"][_said(count)] for one in each)
        epsilons[f"{_said(count)}, published"] = published
    rounds = [Round(knobs.aggregator, partitions[0].answers)]
    whatever = data_independent_epsilon(first(rounds, _MOST), knobs.delta, knobs.voters.relations[0])
    return {
        "published": _ANSWERS_RIGHT,
        "published_epsilon": _PAIR[_MOST],
        "published_accountant": BY_MOMENTS,
        "metric": "share of noisy answers that are right",
        "measured_on": f"{len(truth)} {'held-out training' if conditions.held_out else 'test'} images",
        "epsilon": epsilons[_said(_MOST)],
        "epsilon_note": f"{_said(_MOST)}, these votes, private",
        "epsilon_is_private": True,
        "delta": knobs.delta,
        "epsilon_by_accountant": {},
        "epsilons": {**epsilons, f"{_said(_MOST)}, whatever the votes": whatever},
        "noise_multiplier": None,
        "steps": _MOST,
        "beside": {
            "teachers right": statistics.fmean(one["teacher_right"] for one in each),
            "teachers right, published": _TEACHER_RIGHT,
        },
        "partitions": [{"seed": seed, **one} for seed, one in enumerate(each)],
        "training": {
            "aggregator": knobs.aggregator.name,
            "teachers": _CHOSEN,
        },
        "statement": str(_statement(rounds, knobs)),
        **seed_facts(right, [partition.seconds for partition in partitions], [], conditions),
    }


def _statement(rounds: list[Round], knobs: Knobs) -> Statement:
    """Of all answers that were given, whatever the votes."""
    voters = knobs.voters
    return Statement(
        epsilon=data_independent_epsilon(rounds, knobs.delta, voters.relations[0]),
        delta=knobs.delta,
        neighbours=voters.relations[0],
        unit=voters.unit,
        mechanism=f"{len(rounds[0].answers.rows)} answers by {knobs.aggregator.name}",
        sampler="every record with one teacher",
        accountant="pld",
        released="list of answers",
    )


def _said(questions: int) -> str:
    return f"{questions} questions"


RECIPE = Recipe(
    name=f"pate2017-votes-{_DATASET}",
    title="The pair of epsilons of PATE in 2017, on votes of weak teachers",
    method="PATE, LNMax: votes of weak teachers, chosen on the test set",
    source=PATE_2017,
    dataset=f"{_DATASET}-votes",
    knobs=Knobs(),
    published=tuple(Published(epsilon, _ANSWERS_RIGHT, BY_MOMENTS, _said(count)) for count, epsilon in _PAIR.items()),
    run=run,
)
