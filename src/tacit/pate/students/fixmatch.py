"""A student that also learns from public inputs without an answer."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tacit.core.validation import check_count, check_open_unit, check_positive
from tacit.datasets import Split
from tacit.pate.students.student import (
    Lesson,
    Progress,
    batch_of,
    descend,
    slightly_changed,
    strongly_changed,
)
from tacit.training.averaging import WeightAverage


@dataclasses.dataclass(frozen=True)
class FixMatch:
    r"""Where the student is sure of an input, it shall say the same of a strongly changed one.

    .. math::
        \frac1B \sum_b H(y_b, p(a(x_b))) + \frac\lambda\mu \sum_u 1[\max q_u \ge \tau]\, H(\arg\max q_u, p(A(u)))

    with the prediction :math:`q_u = p(a(u))` on a slightly changed input, on which no gradient is taken. What is kept
    is the moving average of the weights.

    Attributes:
        steps: of AdamW, its rate falling to zero by a cosine.
        batch_size: of answered inputs; :math:`\mu` = ``ratio`` times as many without an answer.
        threshold: :math:`\tau`.
        weight: :math:`\lambda`.
        learning_rate: at the start.
        average: decay of the average.

    Reference: Sohn et al., FixMatch: Simplifying Semi-Supervised Learning with Consistency and Confidence, 2020.
    """

    steps: int = 1500
    batch_size: int = 64
    ratio: int = 4
    threshold: float = 0.95
    weight: float = 1.0
    learning_rate: float = 2e-3
    average: float = 0.995

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        check_count("ratio", self.ratio)
        check_open_unit("threshold", self.threshold)
        check_positive("weight", self.weight)
        check_positive("learning_rate", self.learning_rate)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "fixmatch"

    def teach(self, model: nn.Module, lesson: Lesson, *, seed: int, progress: Progress) -> None:
        """Trains the model, in place."""
        answered, unlabelled = lesson.answered, lesson.inputs
        generator = torch.Generator(device=unlabelled.device).manual_seed(seed)
        descend(
            model,
            lambda _done: self._loss(model, answered, unlabelled, generator),
            WeightAverage(model, self.average),
            steps=self.steps,
            learning_rate=self.learning_rate,
            progress=progress,
        )
        model.eval()

    def _loss(self, model: nn.Module, answered: Split, unlabelled: Tensor, generator: Generator) -> Tensor:
        device = unlabelled.device
        inputs, labels = answered[batch_of(len(answered), self.batch_size, generator, device)]
        others = unlabelled[batch_of(len(unlabelled), self.ratio * self.batch_size, generator, device)]
        with torch.no_grad():
            sure, guesses = model(slightly_changed(others, generator)).softmax(1).max(1)
        outputs = model(torch.cat([slightly_changed(inputs, generator), strongly_changed(others, generator)]))
        known, guessed = outputs.split([len(inputs), len(others)])
        agreed = F.cross_entropy(guessed, guesses, reduction="none") * (sure >= self.threshold)
        loss: Tensor = F.cross_entropy(known, labels) + self.weight * agreed.mean()
        return loss
