"""The models that membership inference is tried on: plain and private networks on a pool of a named set's records."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from tacit.auditing.attacks.observations import BoolArray
from tacit.auditing.ceilings import Ceiling
from tacit.auditing.shadows import Answers, train_plain, train_private
from tacit.clipping import Flat
from tacit.core.privacy import Budget
from tacit.core.validation import check_choice, check_count
from tacit.datasets import DataSet, Split, load
from tacit.models.simple import Standardise, mlp
from tacit.plan import DPSGD
from tacit.training.ensemble import Fitting, Progress

_HIDDEN = 128
_CENTRE, _SPREAD = 0.5, 0.25  # of colours in [0, 1], about, and public
DELTA = 1e-5
_CLIP, _MOMENTUM, _PRIVATE_BATCH, _PRIVATE_EPOCHS = 1.0, 0.9, 512, 20


@dataclasses.dataclass(frozen=True)
class Setting:
    """How large the experiment is on a data set.

    Attributes:
        records: of the pool; every model sees about half of them.
        models: how many of each kind; each is the target once, and the others are its shadow models.
        fitting: of plain models, until they fit their records, as ordinary training does.
        private_rate: the learning rate of DP-SGD.
    """

    records: int
    models: int
    fitting: Fitting
    private_rate: float


SETTINGS = {
    "digits": Setting(1_400, 33, Fitting(1000, 64, 3e-3, 1e-4), 0.5),
    "mnist": Setting(10_000, 33, Fitting(4000, 64, 3e-3, 1e-4), 0.5),
    "cifar10-jpeg": Setting(6_000, 17, Fitting(2000, 64, 1e-3, 1e-4), 0.2),
}
"""By the name of the data set. Sizes are what two cores train in minutes."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A kind of model under attack.

    Attributes:
        name: in the result.
        claim: the guarantee of each model; None is none.
        ceiling: what the guarantee allows any attack.
        train: one model for each row of memberships.
    """

    name: str
    claim: Budget | None
    ceiling: Ceiling
    train: Callable[[BoolArray, Progress], Answers]


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """A pool of records, and test records that belong to nobody.

    Attributes:
        dataset: its name.
        setting: sizes.
        pool: what models are trained on and asked about.
        test: for their accuracy alone.
        classes: how many.
    """

    dataset: str
    setting: Setting
    pool: Split
    test: Split
    classes: int

    @classmethod
    def on(cls, dataset: str, *, models: int | None, records: int | None, seed: int) -> "Experiment":
        """On a random part of a named set's training split."""
        check_choice("dataset", dataset, SETTINGS)
        usual = SETTINGS[dataset]
        setting = dataclasses.replace(
            usual,
            models=usual.models if models is None else check_count("models", models, minimum=4),
            records=usual.records if records is None else check_count("records", records, minimum=40),
        )
        data: DataSet = load(dataset)
        rows = np.random.default_rng(seed).permutation(len(data.train))[: setting.records]
        return cls(dataset, setting, Split(*data.train[rows]), data.test, data.classes)

    def network(self) -> nn.Module:
        """A perceptron, behind public constants for colours."""
        inputs = self.pool.inputs
        channels = inputs.shape[1]
        scale = [Standardise([_CENTRE] * channels, [_SPREAD] * channels)] if channels == 3 else []
        return nn.Sequential(*scale, mlp(inputs[0].numel(), _HIDDEN, self.classes))

    def accuracy(self, answers: Answers) -> float:
        """Of all models on the test records."""
        return float((answers(self.test.inputs).argmax(2) == self.test.targets).float().mean())

    def member_accuracy(self, answers: Answers, member: BoolArray) -> float:
        """Of each model on its own members."""
        right = answers(self.pool.inputs).argmax(2) == self.pool.targets
        return float(right.numpy()[member].mean())


def network_subjects(experiment: Experiment, epsilons: Sequence[float], seed: int) -> list[Subject]:
    """Plain networks first, then private ones for each epsilon."""

    def plain(member: BoolArray, progress: Progress) -> Answers:
        how = experiment.setting.fitting
        return train_plain(experiment.network, experiment.pool, member, how, seed=seed, progress=progress)

    subjects = [Subject("plain", None, Ceiling(()), plain)]
    return subjects + [_private(experiment, epsilon, seed) for epsilon in epsilons]


def _private(experiment: Experiment, epsilon: float, seed: int) -> Subject:
    examples = len(experiment.pool) // 2
    batch = min(_PRIVATE_BATCH, examples // 4)
    plan = DPSGD(
        expected_batch_size=batch,
        examples=examples,
        steps=_PRIVATE_EPOCHS * examples // batch,
        clipping=Flat(_CLIP),
        epsilon=epsilon,
        delta=DELTA,
    )
    rate = experiment.setting.private_rate

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=_MOMENTUM)

    def train(member: BoolArray, progress: Progress) -> Answers:
        return train_private(experiment.network, experiment.pool, member, plan, optimizer, seed=seed, progress=progress)

    ceiling = Ceiling.of_event(plan.event(), accountant=plan.accountant, neighbours=plan.neighbours)
    return Subject(f"DP-SGD, epsilon {epsilon:g}", Budget(plan.epsilon(), plan.delta), ceiling, train)
