"""Several students that learn from what one before them has found, released as one module."""

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tacit.core.validation import check_count
from tacit.models import PublicMap, networks_and_perceptrons
from tacit.pate.learned_features import LearnedFeatures
from tacit.pate.students.perceptrons import Perceptron
from tacit.pate.students.running_targets import RunningTargets
from tacit.pate.students.student import Lesson, Progress, part_of
from tacit.pate.students.targets import classes_of, spread_targets
from tacit.training.ensemble import seeded
from tacit.training.threads import threads_for

_SEEDS = 1000  # for the members of one ensemble


@dataclasses.dataclass(frozen=True)
class StudentEnsemble:
    """Networks with running targets, and perceptrons on public features that learn from the targets they arrive at.

    The answers are spread along the lesson's features beside those that an earlier student has learned. From there
    every network goes its own way by `RunningTargets`. The mean of the targets at which they arrive teaches the
    perceptrons, which look at fixed features and so err elsewhere. What is released is `MeanOfProbabilities` of both
    kinds, each kind a mean itself.

    All of it is post-processing of noisy answers and public inputs: it costs no privacy, however many members learn.

    Attributes:
        networks: how many, at least 1.
        perceptrons: how many; 0 for networks alone.
        running: how networks learn.
        perceptron: how perceptrons do.
    """

    networks: int = 3
    perceptrons: int = 3
    running: RunningTargets = dataclasses.field(default_factory=RunningTargets)
    perceptron: Perceptron = dataclasses.field(default_factory=Perceptron)

    def __post_init__(self) -> None:
        check_count("networks", self.networks)
        check_count("perceptrons", self.perceptrons, minimum=0)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "ensemble"

    def untrained(self, build: Callable[[], nn.Module], see: PublicMap, classes: int, *, seed: int = 0) -> nn.Module:
        """The module that `taught` trains, such as one to load a state into.

        Args:
            build: makes a network, on the device of the data.
            see: the map to public features; to load a state, any of the same shape.
            classes: how many there are.
            seed: of the first weights.
        """
        return networks_and_perceptrons(self._networks(build, seed), see, self._heads(see, classes, seed))

    def taught(
        self,
        guide: nn.Module,
        lesson: Lesson,
        *,
        build: Callable[[], nn.Module],
        see: PublicMap,
        seed: int,
        progress: Progress,
    ) -> nn.Module:
        """Trains all members and puts them together.

        Args:
            guide: the student before, who learned from the same answers; it is left as it was.
            lesson: the public inputs and the answers.
            build: makes a network, on the device of the data.
            see: the map from inputs to public features.
            seed: of first weights, order and changes.
            progress: is told the share that is done.
        """
        inputs, classes = lesson.inputs, classes_of(guide, lesson.inputs)
        features = LearnedFeatures(guide, inputs)(inputs, lesson.features)
        begun = spread_targets(lesson, features, classes, self.running.propagation, self.running.sharpness)
        networks, heads = self._networks(build, seed), self._heads(see, classes, seed)
        parts, ended = self.networks + bool(heads), torch.zeros_like(begun)
        for number, network in enumerate(networks):
            with threads_for(network, self.running.batch_size):
                tell = part_of(progress, number, parts)
                ended += self.running.learn(network, inputs, begun, seed=_SEEDS * seed + number, progress=tell)
        self._teach_heads(heads, lesson, see, ended / self.networks, seed, part_of(progress, parts - 1, parts))
        return networks_and_perceptrons(networks, see, heads).eval()

    def _teach_heads(
        self,
        heads: Sequence[nn.Sequential],
        lesson: Lesson,
        see: PublicMap,
        targets: Tensor,
        seed: int,
        progress: Progress,
    ) -> None:
        if not heads:
            return
        seen = self.perceptron.looked_at(lesson.inputs, see, seed)
        for number, head in enumerate(heads):
            tell = part_of(progress, number, len(heads))
            self.perceptron.learn(head, seen, targets, seed=_SEEDS * seed + number, progress=tell)

    def _networks(self, build: Callable[[], nn.Module], seed: int) -> list[nn.Module]:
        return [seeded(build, _SEEDS * seed + number) for number in range(self.networks)]

    def _heads(self, see: PublicMap, classes: int, seed: int) -> list[nn.Sequential]:
        features, device = see.directions.shape[1], see.directions.device
        numbers = range(self.perceptrons)
        return [self.perceptron.build(features, classes, _SEEDS * seed + number).to(device) for number in numbers]
