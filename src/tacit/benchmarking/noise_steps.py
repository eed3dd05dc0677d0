"""The noise of a private step alone, to see what share of the step it takes."""

import itertools
from collections.abc import Callable

import torch

from tacit.benchmarking.contenders import CLIP, NOISE_MULTIPLIER, Contender, Step
from tacit.benchmarking.tasks import Task
from tacit.core.randomness import Randomness
from tacit.mechanisms import Gaussian, StepNoise


def noise_step(*, fast: bool) -> Callable[[Task], Step]:
    """Noise on as many values as the model trains, from a new key each time, and the division by the batch size."""

    def prepare(task: Task) -> Step:
        trained = {name: p for name, p in task.private_model().named_parameters() if p.requires_grad}
        sums = {name: torch.zeros_like(parameter) for name, parameter in trained.items()}
        noise = StepNoise(Gaussian(noise_multiplier=NOISE_MULTIPLIER, sensitivity=CLIP), task.size.batch)
        noise.compile(wait=True)
        randomness, steps = Randomness(fast=fast), itertools.count()
        return lambda: noise.apply_(sums, randomness, next(steps))

    return prepare


CONTENDERS = (
    Contender("tacit-noise", noise_step(fast=False), kind="part"),
    Contender("tacit-noise-fast", noise_step(fast=True), kind="part"),
)
