"""A student that spreads the answers to all public inputs, learns them, and spreads again by what it learned."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tacit.core.validation import check_count, check_open_unit, check_positive
from tacit.pate.learned_features import LearnedFeatures
from tacit.pate.propagation import Propagation
from tacit.pate.students.student import Lesson, Progress, batch_of, descend, part_of, strongly_changed
from tacit.pate.students.targets import classes_of, spread_targets
from tacit.training.averaging import WeightAverage


@dataclasses.dataclass(frozen=True)
class SelfTraining:
    r"""Label propagation, then cross-entropy with what it says of every public input, strongly changed; in rounds.

    The first round spreads the answers along the lesson's features. Every further one spreads the very same answers
    anew, along these features beside those that the network has learned by then. With propagated distributions p the
    network learns :math:`p^s / \sum p^s`. A wrong answer is outvoted by what is near, and changed inputs teach the
    network what the features do not know. What is kept is the moving average of the weights.

    Attributes:
        steps: of AdamW in each round, its rate falling to zero by a cosine.
        rounds: of spreading and learning.
        batch_size: of a step, drawn with replacement.
        learning_rate: at the start of each round.
        sharpness: s.
        average: decay of the average.
        propagation: how answers spread.

    Reference: Iscen, Tolias, Avrithis, Chum, Label Propagation for Deep Semi-supervised Learning, 2019.
    """

    steps: int = 700
    rounds: int = 4
    batch_size: int = 128
    learning_rate: float = 3e-3
    sharpness: float = 4.0
    average: float = 0.995
    propagation: Propagation = dataclasses.field(default_factory=Propagation)

    def __post_init__(self) -> None:
        for name in ("steps", "rounds", "batch_size"):
            check_count(name, getattr(self, name))
        check_positive("learning_rate", self.learning_rate)
        check_positive("sharpness", self.sharpness)
        check_open_unit("average", self.average)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "self-training"

    def teach(self, model: nn.Module, lesson: Lesson, *, seed: int, progress: Progress) -> None:
        """Trains the model, in place."""
        generator = torch.Generator(device=lesson.inputs.device).manual_seed(seed)
        classes = classes_of(model, lesson.inputs)
        features = lesson.features.flatten(1)
        for done in range(self.rounds):
            if done:
                features = LearnedFeatures(model, lesson.inputs)(lesson.inputs, lesson.features)
            targets = spread_targets(lesson, features, classes, self.propagation, self.sharpness)
            self._learn(model, lesson.inputs, targets, generator, part_of(progress, done, self.rounds))
        model.eval()

    def _learn(
        self, model: nn.Module, inputs: Tensor, targets: Tensor, generator: Generator, progress: Progress
    ) -> None:
        def loss(_done: float) -> Tensor:
            rows = batch_of(len(inputs), self.batch_size, generator, inputs.device)
            return F.cross_entropy(model(strongly_changed(inputs[rows], generator)), targets[rows])

        average = WeightAverage(model, self.average)
        descend(model, loss, average, steps=self.steps, learning_rate=self.learning_rate, progress=progress)
