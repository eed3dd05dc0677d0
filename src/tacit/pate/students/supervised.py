"""A student that learns from the answers alone."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from tacit.core.validation import check_count, check_positive
from tacit.pate.students.student import Lesson, Progress, batch_of, slightly_changed


@dataclasses.dataclass(frozen=True)
class Supervised:
    """Cross-entropy on the answered inputs, slightly changed in every step.

    Attributes:
        steps: of AdamW, its rate falling to zero by a cosine.
        batch_size: of a step, drawn with replacement.
        learning_rate: at the start.
    """

    steps: int = 600
    batch_size: int = 64
    learning_rate: float = 2e-3

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        check_positive("learning_rate", self.learning_rate)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return "supervised"

    def teach(self, model: nn.Module, lesson: Lesson, *, seed: int, progress: Progress) -> None:
        """Trains the model, in place."""
        answered = lesson.answered
        device = answered.inputs.device
        generator = torch.Generator(device=device).manual_seed(seed)
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        model.train()
        for step in range(self.steps):
            inputs, labels = answered[batch_of(len(answered), self.batch_size, generator, device)]
            loss = F.cross_entropy(model(slightly_changed(inputs, generator)), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            progress((step + 1) / self.steps)
        model.eval()
