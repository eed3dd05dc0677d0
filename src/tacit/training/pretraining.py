"""Features learned without labels from an endless stream of random images, by alignment and uniformity.

No record of anybody is read here: images come from `tacit.datasets.random_processes`. So the weights depend on no
private data, nothing is spent, there is no event for an accountant, and a private run may begin from them as from any
other public start.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count, check_non_negative, check_positive
from tacit.datasets.random_processes import RandomProcess
from tacit.models.wide_resnet import WideResNet
from tacit.training.augmentation import ContrastiveView

_DRAWN_AT_ONCE = 2048  # images, when the pool is filled
_MOMENTUM = 0.9

Model = TypeVar("Model", bound=nn.Module)
Embedding = Callable[[Model, Tensor], Tensor]
"""What is learned: a method of the model such as ``WideResNet.maps``, from images (N, ...) to any shape (N, ...)."""

Progress = Callable[[int, Tensor], None]
"""Called after every step with the steps done and the loss, which stays on its device."""


@dataclasses.dataclass(frozen=True)
class Pretraining:
    r"""How to learn from a stream of images.

    The learning rate rises linearly over the first ``warm_up`` steps and falls to zero as a cosine over all of them.
    Images wait in a pool of ``pool`` images on the device. Every ``reuse`` steps ``batch`` new ones take the place of
    the oldest, and every step trains on ``batch`` different ones of the pool, so that each is seen about ``reuse``
    times, every time in other views.

    Attributes:
        steps: of stochastic gradient descent with momentum 0.9.
        batch: images in a step, two views of each.
        learning_rate: by default 0.12 for every 256 images, as Wang and Isola have it.
        warm_up: steps until the full learning rate.
        weight_decay: of all weights.
        uniformity_weight: of the uniformity against the alignment.
        projection: width of the hidden layers of the projection that the losses see, and that is thrown away.
        dimensions: of the sphere that it projects to.
        pool, reuse: how images are kept and used again; the more often, the less time goes into drawing them.
        view: the random change that features should not notice.
        seed: of everything random but the model's initial weights.
    """

    steps: int = 10_000
    batch: int = 1024
    learning_rate: float | None = None
    warm_up: int = 400
    weight_decay: float = 1e-4
    uniformity_weight: float = 1.0
    projection: int = 2048
    dimensions: int = 128
    pool: int = 65_536
    reuse: int = 16
    view: ContrastiveView = dataclasses.field(default_factory=ContrastiveView)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "projection", "dimensions", "reuse"):
            check_count(name, getattr(self, name))
        for name in ("warm_up", "seed"):
            check_count(name, getattr(self, name), minimum=0)
        check_count("batch", self.batch, minimum=2, remedy="Uniformity compares images with each other.")
        check_count("pool", self.pool, minimum=self.batch, remedy="The pool holds at least one batch.")
        check_non_negative("weight_decay", self.weight_decay)
        check_non_negative("uniformity_weight", self.uniformity_weight)
        if self.learning_rate is not None:
            check_positive("learning_rate", self.learning_rate)

    @property
    def peak_rate(self) -> float:
        """The largest learning rate."""
        return 0.12 * self.batch / 256 if self.learning_rate is None else self.learning_rate

    def rate_factor(self, step: int) -> float:
        """The share of the largest learning rate at a step, counted from zero."""
        rise = min(1.0, (step + 1) / self.warm_up) if self.warm_up else 1.0
        return rise * (1 + math.cos(math.pi * min(1.0, step / self.steps))) / 2


def alignment(first: Tensor, second: Tensor) -> Tensor:
    r"""The mean of :math:`\lVert u_i - v_i \rVert^2` over pairs of points (N, D): how near two views of one image are.

    Reference: Wang and Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity on the
    Hypersphere, 2020, with exponent 2.
    """
    return (first - second).square().sum(dim=1).mean()


def uniformity(points: Tensor, *, temperature: float = 2.0) -> Tensor:
    r"""How crowded points are: the logarithm of the mean of :math:`\exp(-t \lVert u_i - u_j \rVert^2)` over pairs.

    For points (N, D) of length 1, two or more, with t the temperature; between -4t for two opposite points and 0 where
    all are the same. Lengths are taken as given: :math:`\lVert u_i - u_j \rVert^2 = 2 - 2 u_i \cdot u_j`.

    Reference: Wang and Isola, 2020.
    """
    count = len(points)
    if count < 2:
        raise InputError(f"points={count}: must be two or more, since uniformity compares them with each other.")
    itself = torch.eye(count, dtype=torch.bool, device=points.device)
    exponents = (2 * temperature * (points @ points.t() - 1)).masked_fill(itself, -math.inf)
    return exponents.logsumexp(dim=(0, 1)) - math.log(count * (count - 1))


def pretrain(
    model: Model,
    embedding: Embedding[Model],
    process: RandomProcess,
    settings: Pretraining,
    *,
    compile: bool = False,
    progress: Progress | None = None,
) -> list[float]:
    r"""Trains ``model`` in place to give two views of one random image near features, and all images distant ones.

    With u and v the two views' embeddings, sent through a projection of three layers to the unit sphere, a step
    follows the gradient of

    .. math:: \text{alignment}(u, v) + w\, (\text{uniformity}(u) + \text{uniformity}(v)) / 2.

    On a GPU convolutions run in bfloat16 with channels last, losses and weights stay in float32. The model stays on its
    device; parameters that the embedding does not use keep their values. The projection is not kept.

    Args:
        model, embedding: what is trained, and which of its outputs.
        process: where images come from, of any size: views bring them to that of ``settings.view``.
        settings: how.
        compile: whether torch.compile should fuse model and projection; worth it for long runs on a GPU.
        progress: called after every step.

    Returns:
        The loss of every step.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(settings.seed)
    side = settings.view.size
    learner = _Learner(model, embedding, torch.zeros(2, 3, side, side, device=device), settings).to(device)
    if device.type == "cuda":
        learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    forward = torch.compile(learner) if compile else learner
    optimizer = torch.optim.SGD(
        learner.parameters(), settings.peak_rate, momentum=_MOMENTUM, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, settings.rate_factor)
    pool = _Pool(process, settings, generator)
    losses = []
    was_training = model.training
    model.train()
    for step in range(1, settings.steps + 1):
        images = pool.next_batch()
        pair = torch.cat([settings.view(images, generator) for _ in range(2)])
        if device.type == "cuda":
            pair = pair.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            projected = forward(pair)
        loss = _loss(F.normalize(projected.float(), dim=1), settings.uniformity_weight)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if progress is not None:
            progress(step, losses[-1])
    model.train(was_training)
    return torch.stack(losses).tolist()


@torch.no_grad()
def features(
    model: nn.Module,
    images: Tensor,
    *,
    embedding: Callable[[Any, Tensor], Tensor] = WideResNet.features,
    batch: int = 1000,
) -> Tensor:
    """``embedding(model, images)`` for all images, in evaluation mode, without gradients.

    ``batch`` images at a time go to the model's device; the result is where the images are. So features of a private
    data set can be kept and used in every step: they are computed example by example, and cost nothing as long as the
    model's weights are public. ``WideResNet.trunk`` gives what `WideResNet.readout` takes.
    """
    device = next(model.parameters()).device
    check_count("batch", batch)
    starts = range(0, max(1, len(images)), batch)
    was_training = model.training
    model.eval()
    results = [embedding(model, images[start : start + batch].to(device)).to(images.device) for start in starts]
    model.train(was_training)
    return torch.cat(results)


def _loss(points: Tensor, weight: float) -> Tensor:
    first, second = points.chunk(2)
    return alignment(first, second) + weight * (uniformity(first) + uniformity(second)) / 2


class _Learner(nn.Module):
    """A model's embedding, flattened and projected; the projection's initial weights belong to the seed.

    Its batch normalisation mixes examples, as it may where nobody's are among them. Without it the features of an
    untrained network with group normalisation are so alike that all points can fall into one.
    """

    def __init__(self, model: Model, embedding: Embedding[Model], example: Tensor, settings: Pretraining) -> None:
        super().__init__()
        self.model, self.embedding = model, embedding
        with torch.no_grad():
            inputs = embedding(model, example).flatten(1).shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            hidden = settings.projection
            self.projection = nn.Sequential(
                nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
                nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
                nn.Linear(hidden, settings.dimensions),
            )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        projected: Tensor = self.projection(self.embedding(self.model, images).flatten(1))
        return projected


class _Pool:
    """Images as bytes on the generator's device, of which the oldest batch gives way to a new one now and then."""

    def __init__(self, process: RandomProcess, settings: Pretraining, generator: Generator) -> None:
        self._process, self._settings, self._generator = process, settings, generator
        starts = range(0, settings.pool, _DRAWN_AT_ONCE)
        self._images = torch.cat([self._draw(min(_DRAWN_AT_ONCE, settings.pool - start)) for start in starts])
        self._oldest = 0
        self._batches = 0

    def next_batch(self) -> Tensor:
        """(batch, 3, size, size) in [0, 1]."""
        settings, device = self._settings, self._generator.device
        if self._batches % settings.reuse == 0:
            places = (self._oldest + torch.arange(settings.batch, device=device)) % settings.pool
            self._images[places] = self._draw(settings.batch)
            self._oldest = (self._oldest + settings.batch) % settings.pool
        self._batches += 1
        chosen = torch.randperm(settings.pool, generator=self._generator, device=device)[: settings.batch]
        return self._images[chosen].float() / 255

    def _draw(self, count: int) -> Tensor:
        return (self._process.sample(count, self._generator) * 255).round().to(torch.uint8)
