"""Small networks on fixed public features: what they get wrong is not what networks on pixels do."""

import dataclasses
from typing import cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_non_negative, check_open_unit, check_positive
from tacit.models import perceptron
from tacit.pate.students.student import Progress, batch_of, descend, strongly_changed
from tacit.training.augmentation import random_affine
from tacit.training.averaging import WeightAverage
from tacit.training.ensemble import seeded
from tacit.training.threads import threads_for

_SURE = 0.9


@dataclasses.dataclass(frozen=True)
class Perceptron:
    r"""One hidden layer on public features f, trained with distributions t on the surest inputs and changed views.

    .. math:: \frac1B \sum_x 1[\max t_x > 0.9]\, H(t_x, p(f(v(x))))

    with v(x) the input as it is or one of a few views of it, changed beforehand; where no target is so sure, all count.
    In training each hidden unit is 0 with the probability ``dropout``. What is kept is the moving average of the
    weights. Post-processing, like everything that students do: it costs no privacy.

    Attributes:
        hidden: units.
        dropout: of them.
        views: of each input beside itself.
        steps: of AdamW, its rate falling to zero by a cosine.
        batch_size: B, drawn with replacement.
        learning_rate: at the start.
        average: decay of the average.
    """

    hidden: int = 1024
    dropout: float = 0.4
    views: int = 5
    steps: int = 1500
    batch_size: int = 256
    learning_rate: float = 1e-3
    average: float = 0.995

    def __post_init__(self) -> None:
        for name in ("hidden", "steps", "batch_size"):
            check_count(name, getattr(self, name))
        check_count("views", self.views, minimum=0)
        if check_non_negative("dropout", self.dropout) >= 1:
            raise InputError(f"dropout={self.dropout!r}: must be less than 1, so that something is left.")
        check_positive("learning_rate", self.learning_rate)
        check_open_unit("average", self.average)

    def build(self, features: int, classes: int, seed: int) -> nn.Sequential:
        """One that has learned nothing yet, on the CPU."""
        return cast(nn.Sequential, seeded(lambda: perceptron(features, self.hidden, classes), seed))

    @torch.no_grad()
    def looked_at(self, inputs: Tensor, see: nn.Module, seed: int) -> Tensor:
        """``[1 + views, inputs, numbers]``: the features of the inputs and of their views, once for all that learn."""
        generator = torch.Generator(device=inputs.device).manual_seed(seed)
        views = [inputs, *(_changed(inputs, generator) for _ in range(self.views))]
        return torch.stack([see(view) for view in views])

    def learn(self, model: nn.Sequential, seen: Tensor, targets: Tensor, *, seed: int, progress: Progress) -> None:
        """Trains one of `build`, in place.

        Args:
            model: on the device of the features.
            seen: as `looked_at` makes it.
            targets: t, ``[inputs, classes]``.
            seed: of order and dropout.
            progress: is told the share that is done.
        """
        generator, device = torch.Generator(device=seen.device).manual_seed(seed), seen.device
        sure = targets.max(1).values > _SURE
        counted = sure if bool(sure.any()) else torch.ones_like(sure)

        def loss(_done: float) -> Tensor:
            rows = batch_of(seen.shape[1], self.batch_size, generator, device)
            views = batch_of(len(seen), self.batch_size, generator, device)
            hidden = self._some(model[:2](seen[views, rows]), generator)
            return (F.cross_entropy(model[2](hidden), targets[rows], reduction="none") * counted[rows]).mean()

        average = WeightAverage(model, self.average)
        with threads_for(model, self.batch_size):
            descend(model, loss, average, steps=self.steps, learning_rate=self.learning_rate, progress=progress)
        model.eval()

    def _some(self, hidden: Tensor, generator: Generator) -> Tensor:
        """Dropout by a generator of its own."""
        kept = torch.rand(hidden.shape, generator=generator, device=hidden.device) >= self.dropout
        return hidden * kept / (1 - self.dropout)


def _changed(inputs: Tensor, generator: Generator) -> Tensor:
    """Halfway between a slight and a strong change."""
    if inputs.dim() != 4:
        return strongly_changed(inputs, generator)
    return random_affine(inputs, generator, degrees=15, shift=0.08, stretch=0.15, shear=0.125)
