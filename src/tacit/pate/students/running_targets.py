"""A student whose targets move from the spread answers to what it keeps saying itself."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.func import functional_call

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_non_negative, check_open_unit, check_positive
from tacit.pate.propagation import Propagation
from tacit.pate.students.student import Lesson, Progress, batch_of, bent_and_erased, descend, slightly_changed
from tacit.pate.students.targets import classes_of, sharpened, spread_targets
from tacit.training.averaging import WeightAverage

_MOVE_BEGINS, _MOVE_ENDS = 0.15, 0.6  # shares of the steps
_CALM = 0.7  # share of the steps after which images are changed slightly
_SURE, _SURE_AT_LAST = 0.9, 0.65  # the latter since a target on which both sides are sure and disagree has 0.7
_SQUARED = 2.0


@dataclasses.dataclass(frozen=True)
class RunningTargets:
    r"""Learns spread answers, and corrects them by the running mean of its own predictions.

    Every public input x has the target :math:`t_x` that propagation of the answers gives it, and a running mean
    :math:`m_x` that begins there. A step draws a batch and, with the moving average of the weights as a teacher q and
    a slightly changed view a(x), sets :math:`m_x \leftarrow d\, m_x + (1 - d)\, q(a(x))`. The target becomes

    .. math::
        y_x = (1 - \lambda r)\, t_x + \lambda r\, \frac{m_x^2}{\sum m_x^2}, \qquad
        r = \min\Big(1, \max\Big(0, \frac{s - 0.15}{0.45}\Big)\Big)

    for the share s of the steps that are done, and the loss is
    :math:`\frac1B \sum_x 1[\max y_x > 0.9 - 0.25\, r]\, H(y_x, p(A(x)))` with x bent, turned, stretched and in part
    erased; in the last 30 % of the steps only slightly changed, as the inputs will be that the student is made for.
    What is kept is the moving average of the weights.

    A network that is trained on wrong targets says the right thing of many inputs before it learns their errors by
    heart. The mean over views and steps holds that, and it comes into the targets before the errors are learned.

    All of it is post-processing of noisy answers and public inputs: it costs no privacy.

    Attributes:
        steps: of AdamW, its rate falling to zero by a cosine.
        batch_size: B, drawn with replacement; of an input drawn twice one view enters its mean.
        learning_rate: at the start.
        trust: :math:`\lambda`, the share of the running mean at last; 0 leaves the targets as propagation gives them.
        memory: d.
        average: decay of the moving average of the weights.
        sharpness: of the spread answers, as in `SelfTraining`.
        propagation: how answers spread.

    References: Laine, Aila, Temporal Ensembling for Semi-Supervised Learning, 2017; Tarvainen, Valpola, Mean Teachers
    Are Better Role Models, 2017; Liu, Niles-Weed, Razavian, Fernandez-Granda, Early-Learning Regularization Prevents
    Memorization of Noisy Labels, 2020.
    """

    steps: int = 2100
    batch_size: int = 256
    learning_rate: float = 3e-3
    trust: float = 0.7
    memory: float = 0.9
    average: float = 0.995
    sharpness: float = 4.0
    propagation: Propagation = dataclasses.field(default_factory=Propagation)

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        check_positive("learning_rate", self.learning_rate)
        if check_non_negative("trust", self.trust) > 1:
            raise InputError(f"trust={self.trust!r}: is a share, at most 1.")
        check_open_unit("memory", self.memory)
        check_open_unit("average", self.average)
        check_positive("sharpness", self.sharpness)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "running-targets"

    def teach(self, model: nn.Module, lesson: Lesson, *, seed: int, progress: Progress) -> None:
        """Trains the model, in place, from the answers spread along the lesson's features."""
        classes = classes_of(model, lesson.inputs)
        targets = spread_targets(lesson, lesson.features.flatten(1), classes, self.propagation, self.sharpness)
        self.learn(model, lesson.inputs, targets, seed=seed, progress=progress)

    def learn(self, model: nn.Module, inputs: Tensor, targets: Tensor, *, seed: int, progress: Progress) -> Tensor:
        """Trains the model, in place, and returns the targets of all inputs as they are at last.

        Args:
            model: where to begin; on the device of the inputs.
            inputs: all public ones.
            targets: t, ``[inputs, classes]``.
            seed: of order and changes.
            progress: is told the share that is done.
        """
        generator = torch.Generator(device=inputs.device).manual_seed(seed)
        average, running = WeightAverage(model, self.average), MovingTargets(targets, self.memory)

        def loss(done: float) -> Tensor:
            moved = min(1.0, max(0.0, (done - _MOVE_BEGINS) / (_MOVE_ENDS - _MOVE_BEGINS)))
            rows = batch_of(len(inputs), self.batch_size, generator, inputs.device)
            running.update(rows, _said(model, average, slightly_changed(inputs[rows], generator)))
            wanted = running.targets(self.trust * moved, rows)
            sure = wanted.max(1).values > _SURE - (_SURE - _SURE_AT_LAST) * moved
            seen = _changed(inputs[rows], generator, calm=done > _CALM)
            return (F.cross_entropy(model(seen), wanted, reduction="none") * sure).mean()

        descend(model, loss, average, steps=self.steps, learning_rate=self.learning_rate, progress=progress)
        model.eval()
        return running.targets(self.trust)


class MovingTargets:
    """Targets of all inputs as they were given, and the running mean of what is said of each.

    Args:
        given: ``[inputs, classes]``, with which the means begin.
        memory: what is left of a mean when something new is said.
    """

    def __init__(self, given: Tensor, memory: float) -> None:
        self._given, self._mean, self._memory = given, given.clone(), memory

    def update(self, rows: Tensor, said: Tensor) -> None:
        """Takes distributions for some of the inputs into their means."""
        self._mean[rows] = torch.lerp(said, self._mean[rows], self._memory)

    def targets(self, share: float, rows: Tensor | None = None) -> Tensor:
        """So much of the squared means and the rest as given, for some rows or for all."""
        given, mean = (self._given, self._mean) if rows is None else (self._given[rows], self._mean[rows])
        return torch.lerp(given, sharpened(mean, _SQUARED), share)


@torch.no_grad()
def _said(model: nn.Module, average: WeightAverage, inputs: Tensor) -> Tensor:
    """The probabilities by the averaged weights, in evaluation mode."""
    model.eval()
    outputs: Tensor = functional_call(model, average.weights, (inputs,))
    model.train()
    return outputs.softmax(1)


def _changed(inputs: Tensor, generator: Generator, *, calm: bool) -> Tensor:
    return slightly_changed(inputs, generator) if calm else bent_and_erased(inputs, generator)
