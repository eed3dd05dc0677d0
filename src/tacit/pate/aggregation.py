r"""From votes to one noisy answer, and what each costs whatever the votes.

One person is in one teacher's part, so that one vote may move from a class to another: counts change by 2 in L1 norm
and by :math:`\sqrt 2` in L2 norm, and the largest count by 1, whether a person is added, removed or replaced.

How much less an answer costs where the teachers agree is the business of `tacit.accounting`.
"""

import dataclasses
import math
from typing import Protocol

import numpy as np
import torch
from dp_accounting import dp_event

from tacit.accounting.pate import gnmax_event, lnmax_event, threshold_event
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_positive
from tacit.mechanisms import Gaussian, Laplace
from tacit.pate.votes import Votes


class Aggregator(Protocol):
    """Answers questions by noisy votes."""

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    def passes(self, votes: Votes, stream: np.random.Generator) -> bool:
        """Whether a question with these ``[classes]`` votes is answered at all."""
        ...

    def answer(self, votes: Votes, stream: np.random.Generator) -> int:
        """The class with the most votes after noise."""
        ...

    def question_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """What a question costs before it is answered."""
        ...

    def answer_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """What an answer costs beyond that."""
        ...


@dataclasses.dataclass(frozen=True)
class LNMax:
    r"""The class with the most votes after Laplace noise of scale :math:`1/\gamma` on each count.

    One answer is :math:`(2\gamma, 0)`-differentially private.

    Reference: Papernot, Abadi, Erlingsson, Goodfellow, Talwar, Semi-supervised Knowledge Transfer for Deep Learning
    from Private Training Data, 2017.
    """

    gamma: float

    def __post_init__(self) -> None:
        check_positive("gamma", self.gamma, remedy="Typical values lie between 0.01 and 0.1.")

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "lnmax"

    def passes(self, votes: Votes, stream: np.random.Generator) -> bool:
        """Every question is answered."""
        del votes, stream
        return True

    def answer(self, votes: Votes, stream: np.random.Generator) -> int:
        """The class with the most votes after noise."""
        return _noisy_max(votes, Laplace(1 / self.gamma, 2.0), stream)

    def question_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """Nothing: the answer alone costs."""
        del neighbours
        return dp_event.NoOpDpEvent()

    def answer_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """Two counts that move by one, each with Laplace noise."""
        return lnmax_event(self.gamma, neighbours)


@dataclasses.dataclass(frozen=True)
class GNMax:
    r"""The class with the most votes after Gaussian noise of standard deviation :math:`\sigma` on each count.

    One answer satisfies Rényi differential privacy of :math:`\lambda/\sigma^2` at every order :math:`\lambda`.

    Reference: Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson, Scalable Private Learning with PATE, 2018.
    """

    sigma: float

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma, remedy="Typical values lie between a tenth and half of the teachers.")

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "gnmax"

    def passes(self, votes: Votes, stream: np.random.Generator) -> bool:
        """Every question is answered."""
        del votes, stream
        return True

    def answer(self, votes: Votes, stream: np.random.Generator) -> int:
        """The class with the most votes after noise."""
        return _noisy_max(votes, Gaussian(self.sigma / math.sqrt(2), math.sqrt(2)), stream)

    def question_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """Nothing: the answer alone costs."""
        del neighbours
        return dp_event.NoOpDpEvent()

    def answer_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """One Gaussian release of all counts."""
        return gnmax_event(self.sigma, neighbours)


@dataclasses.dataclass(frozen=True)
class ConfidentGNMax:
    r"""`GNMax` for questions on which many teachers agree: the largest count plus noise must reach a threshold.

    The test satisfies Rényi differential privacy of :math:`\lambda/(2\sigma_1^2)`, whatever its outcome, and only
    questions that pass it are answered.

    It also tests and answers in `tacit.pate.interactive`, where the test sees the votes less those that a student
    expects: teachers then answer where the student is not as sure of the same by itself.

    Args:
        threshold: T, how many teachers must agree, about.
        sigma_threshold: of the noise in the test.
        sigma: of the noise on the counts of an answer.

    Reference: Papernot, Song, Mironov, Raghunathan, Talwar, Erlingsson, Scalable Private Learning with PATE, 2018.
    """

    threshold: float
    sigma_threshold: float
    sigma: float

    def __post_init__(self) -> None:
        check_positive("threshold", self.threshold, remedy="Typical values lie above half of the teachers.")
        check_positive("sigma_threshold", self.sigma_threshold)
        check_positive("sigma", self.sigma)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "confident-gnmax"

    def passes(self, votes: Votes, stream: np.random.Generator) -> bool:
        """Whether the largest count, with noise, reaches the threshold."""
        return Gaussian(self.sigma_threshold, 1.0).add_noise(float(votes.max()), stream) >= self.threshold

    def answer(self, votes: Votes, stream: np.random.Generator) -> int:
        """The class with the most votes after noise."""
        return GNMax(self.sigma).answer(votes, stream)

    def question_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """One Gaussian release of the largest count."""
        return threshold_event(self.sigma_threshold, neighbours)

    def answer_event(self, neighbours: Neighbours) -> dp_event.DpEvent:
        """One Gaussian release of all counts."""
        return GNMax(self.sigma).answer_event(neighbours)


def _noisy_max(votes: Votes, mechanism: Gaussian | Laplace, stream: np.random.Generator) -> int:
    return int(mechanism.add_noise(torch.from_numpy(votes).double(), stream).argmax())
