"""What a student is, and what students share."""

import dataclasses
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Generator, Tensor, nn

from tacit.core.errors import InputError
from tacit.datasets import Split
from tacit.training.augmentation import random_affine, random_elastic, random_erasing
from tacit.training.averaging import WeightAverage

Progress = Callable[[float], None]
_FUSED = {"cpu", "cuda"}  # where one call for all weights was compared with the definition; elsewhere torch chooses


@dataclasses.dataclass(frozen=True)
class Lesson:
    """What a student learns from; all of it public.

    Attributes:
        inputs: all public inputs.
        features: of them, ``[inputs, numbers]``, such that what is near in angle is alike.
        rows: which inputs have an answer; one may have several.
        labels: the noisy answers.
    """

    inputs: Tensor
    features: Tensor
    rows: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if len(self.rows) == 0:
            raise InputError("answered=0: no question was answered. Ask more questions, or give them a larger budget.")

    @property
    def answered(self) -> Split:
        """The inputs with an answer, and their answers."""
        return Split(self.inputs[self.rows], self.labels)


class Student(Protocol):
    """A way to learn from noisy answers and public inputs.

    Post-processing: it sees the answers and nothing else that depends on private data, so the guarantee of the answers
    is that of the model.
    """

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    def teach(self, model: nn.Module, lesson: Lesson, *, seed: int, progress: Progress) -> None:
        """Trains the model, in place.

        Args:
            model: where to begin; on the device of the data.
            lesson: the public inputs and the answers.
            seed: of order and augmentation.
            progress: is told the share that is done.
        """
        ...


def slightly_changed(inputs: Tensor, generator: Generator) -> Tensor:
    """Images moved and turned a little, so that they still look the same; anything else as it is."""
    if inputs.dim() != 4:
        return inputs
    return random_affine(inputs, generator, degrees=5, shift=0.04, stretch=0.05)


def strongly_changed(inputs: Tensor, generator: Generator) -> Tensor:
    """Images turned, stretched and sheared as far as a label bears; of anything else a tenth of the numbers is lost."""
    if inputs.dim() != 4:
        keep = torch.rand(inputs.shape, generator=generator, device=inputs.device) > 0.1
        return inputs * keep
    return random_affine(inputs, generator, degrees=25, shift=0.12, stretch=0.25, shear=0.25)


def bent_and_erased(inputs: Tensor, generator: Generator) -> Tensor:
    """Images changed strongly, bent, and half of them with a square lost; anything else as if strongly changed."""
    if inputs.dim() != 4:
        return strongly_changed(inputs, generator)
    bent = random_elastic(inputs, generator, strength=0.06, degrees=25, shift=0.12, stretch=0.25, shear=0.25)
    return random_erasing(bent, generator)


def descend(
    model: nn.Module,
    loss: Callable[[float], Tensor],
    average: WeightAverage,
    *,
    steps: int,
    learning_rate: float,
    progress: Progress,
) -> None:
    """AdamW, its rate falling to zero by a cosine. The model ends with the moving average of its weights.

    Args:
        model: is in training mode, then and after.
        loss: of a batch that it draws itself, from the share of the steps that are done.
        average: of the model's weights, from the first step on.
        steps: how many.
        learning_rate: at the start.
        progress: is told the share that is done.
    """
    fused = True if next(model.parameters()).device.type in _FUSED else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, fused=fused)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        loss(step / steps).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        average.update(model)
        progress((step + 1) / steps)
    average.copy_to(model)


def batch_of(count: int, size: int, generator: Generator, device: torch.device) -> Tensor:
    """Row numbers, drawn with replacement."""
    return torch.randint(count, (size,), generator=generator, device=device)


def part_of(progress: Progress, done: int, parts: int) -> Progress:
    """The progress of one of several parts that take equally long."""
    return lambda share: progress((done + share) / parts)
