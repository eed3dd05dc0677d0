"""PATE's students and linear models under the same attacks as networks."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from tacit.accounting import epsilon as epsilon_of
from tacit.auditing.attacks.observations import BoolArray
from tacit.auditing.ceilings import Ceiling
from tacit.auditing.shadows import Answers
from tacit.benchmarking.membership_subjects import DELTA, Experiment, Subject
from tacit.core.privacy import Budget, Neighbours
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.linear import LogisticRegression
from tacit.linear.fitting import LinearModel
from tacit.linear.plain import plain_classifier
from tacit.linear.rows import Block, Floats, PublicScale
from tacit.pate.aggregation import GNMax
from tacit.pate.answering import Terms, event_of
from tacit.pate.experiment import run_pate
from tacit.pate.plan import Pate
from tacit.pate.students import Supervised
from tacit.pate.voters import Shares, linear_voters
from tacit.training.ensemble import Progress, seeded

_TEACHERS, _QUESTIONS = 25, 60
_NOISES = (4.0, 20.0)  # of a count of votes
_STUDENT = Supervised(steps=200)

Scores = Callable[[Floats], Floats]
"""From rows of features to ``[rows, classes]``."""
Fit = Callable[[Split], Scores]
"""From a model's own records to what it says."""


def other_subjects(experiment: Experiment, epsilons: Sequence[float], seed: int) -> list[Subject]:
    """Linear models without privacy and with, and students of noisy votes."""
    return [
        Subject("logistic regression, plain", None, Ceiling(()), _one_by_one(experiment, _plain_linear(experiment))),
        *(_private_linear(experiment, epsilon) for epsilon in epsilons),
        *(_student(experiment, noise, seed) for noise in _NOISES),
    ]


def _one_by_one(experiment: Experiment, fit: Fit) -> Callable[[BoolArray, Progress], Answers]:
    """Closed forms and few rows: nothing is gained by training them together."""

    def train(member: BoolArray, progress: Progress) -> Answers:
        fitted = []
        for number, row in enumerate(member):
            fitted.append(fit(Split(*experiment.pool[np.flatnonzero(row)])))
            progress((number + 1) / len(member))
        return lambda inputs: torch.from_numpy(np.stack([scores(_flat(inputs)) for scores in fitted]))

    return train


def _plain_linear(experiment: Experiment) -> Fit:
    width = experiment.pool.inputs[0].numel()
    scale = PublicScale.box(np.zeros(width), np.ones(width))

    def fit(own: Split) -> Scores:
        block = Block(scale.on_grid(_flat(own.inputs)), own.targets.numpy())
        coefficients = plain_classifier(lambda: iter([block]), experiment.classes)[0]
        return lambda inputs: np.asarray(scale.scaled(inputs) @ coefficients)

    return fit


def _private_linear(experiment: Experiment, epsilon: float) -> Subject:
    def fit(own: Split) -> Scores:
        estimator = LogisticRegression(
            epsilon=epsilon,
            delta=DELTA,
            bounds=(0.0, 1.0),
            classes=range(experiment.classes),
            examples=len(experiment.pool) // 2,
        )
        model: LinearModel = estimator.fit(_flat(own.inputs), own.targets.numpy()).model_
        return model.scores

    claim = Budget(epsilon, DELTA)
    ceiling = Ceiling.of_claim(epsilon, DELTA)
    return Subject(f"logistic regression, epsilon {epsilon:g}", claim, ceiling, _one_by_one(experiment, fit))


def _student(experiment: Experiment, noise: float, seed: int) -> Subject:
    """A student of teachers among whom a record is dealt out by what it is, so that people may join and leave."""
    aggregator, relation = GNMax(noise), Neighbours.ADD_REMOVE
    event = event_of(aggregator, relation, _QUESTIONS, _QUESTIONS)
    claim = Budget(epsilon_of(event, DELTA, neighbours=relation), DELTA)

    def train(member: BoolArray, progress: Progress) -> Answers:
        students = []
        for number, row in enumerate(member):
            rows = np.flatnonzero(row)
            pate = Pate(
                voters=linear_voters(Shares(_TEACHERS, owners=rows.tolist())),
                queries=_QUESTIONS,
                aggregator=aggregator,
                student=_STUDENT,
                build_student=functools.partial(seeded, experiment.network, seed + number),
                seed=seed + number,
                delta=DELTA,
            )
            data = DataSet(
                name=experiment.dataset,
                train=Split(*experiment.pool[rows]),
                test=experiment.test,
                classes=experiment.classes,
                input_shape=tuple(experiment.pool.inputs.shape[1:]),
                source="a part of the pool",
            )
            students.append(run_pate(data, pate, Randomness(), terms=Terms(neighbours=relation)).model.eval())
            progress((number + 1) / len(member))
        return lambda inputs: _said(students, inputs)

    ceiling = Ceiling.of_event(event, neighbours=relation)
    return Subject(f"PATE student, epsilon {claim.epsilon:.2g}", claim, ceiling, train)


@torch.no_grad()
def _said(students: Sequence[nn.Module], inputs: Tensor) -> Tensor:
    return torch.stack([student(inputs) for student in students])


def _flat(inputs: Tensor) -> Floats:
    return inputs.flatten(1).double().numpy()
