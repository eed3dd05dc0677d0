"""A student that spreads the answers to all public inputs, learns them, and spreads again by what it learned."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tacit.core.validation import check_count, check_open_unit, check_positive
from tacit.pate.learned_features import LearnedFeatures
from tacit.pate.propagation import Propagation
from tacit.pate.students.student import Lesson, Progress, batch_of, part_of, strongly_changed
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
        classes = _outputs(model, lesson.inputs[:1]).shape[1]
        features = lesson.features.flatten(1)
        for done in range(self.rounds):
            if done:
                features = LearnedFeatures(model, lesson.inputs)(lesson.inputs, lesson.features)
            targets = self._targets(features, lesson, classes)
            self._learn(model, lesson.inputs, targets, generator, part_of(progress, done, self.rounds))
        model.eval()

    def _targets(self, features: Tensor, lesson: Lesson, classes: int) -> Tensor:
        rows, labels = lesson.rows.cpu().numpy(), lesson.labels.cpu().numpy()
        spread = self.propagation.spread_labels(features, rows, labels, classes)
        sharp = torch.from_numpy(spread).pow(self.sharpness)
        return (sharp / sharp.sum(1, keepdim=True)).float().to(lesson.inputs.device)

    def _learn(
        self, model: nn.Module, inputs: Tensor, targets: Tensor, generator: Generator, progress: Progress
    ) -> None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        average = WeightAverage(model, self.average)
        model.train()
        for step in range(self.steps):
            rows = batch_of(len(inputs), self.batch_size, generator, inputs.device)
            outputs = model(strongly_changed(inputs[rows], generator))
            loss = F.cross_entropy(outputs, targets[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            average.update(model)
            progress((step + 1) / self.steps)
        average.copy_to(model)


@torch.no_grad()
def _outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    found: Tensor = model(inputs)
    return found
