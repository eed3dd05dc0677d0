"""The phases of a run: all of its steps on the whole model, or the first of them on its last layers alone."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.datasets import Split
from tacit.plan import DPSGD
from tacit.recipes.recipe import Configuration, Readout, Schedule, constant
from tacit.training.execution import Execution
from tacit.training.secret_draws import torch_generator
from tacit.training.views import Augment, Augmented

_AT_ONCE = 500  # images through the trunk


@dataclasses.dataclass(frozen=True)
class Phase:
    """Some of a plan's steps, which follow each other.

    Attributes:
        network: what they train, all or part of the model.
        records: what they draw lots from.
        plan: theirs; with the noise and the sampling of the whole plan, so that all phases together are its event.
        learning_rate, schedule: of the update.
        steps_before: of the phases before it.
        execution: how fast.
    """

    network: nn.Module
    records: Any
    plan: DPSGD
    learning_rate: float
    schedule: Schedule
    steps_before: int
    execution: Execution


def phases(
    configuration: Configuration,
    model: nn.Module,
    train: Split,
    plan: DPSGD,
    randomness: Randomness,
    execution: Execution,
) -> Iterator[Phase]:
    """One after the other, each made when the one before it has ended.

    What augmentations draw must be unknown (`tacit.training.secret_draws`): it comes from ``randomness``.
    """
    device = train.inputs.device
    augment = None
    if configuration.augment is not None:
        augment = configuration.augment(torch_generator(randomness.device_key("augmentation"), device))
    readout, before = configuration.readout, 0
    if readout is not None and readout.steps:
        before = readout.steps
        if before > plan.steps:
            raise InputError(f"readout of {before} steps: must be at most the {plan.steps} steps of the run.")
        yield Phase(
            readout.network(model),
            _outputs(readout, model, train, augment),
            _part(plan, before),
            readout.learning_rate,
            constant,
            0,
            dataclasses.replace(execution, compile=False),  # a few layers for a few steps
        )
    if before < plan.steps:
        yield Phase(
            model,
            train if augment is None else Augmented(train, augment),
            _part(plan, plan.steps - before),
            configuration.learning_rate,
            configuration.schedule,
            before,
            _with_chunks(execution, configuration, device),
        )


def _part(plan: DPSGD, steps: int) -> DPSGD:
    """Steps of the plan, with its noise; its preparations have been made."""
    return dataclasses.replace(plan, steps=steps, preparations=())


def _with_chunks(execution: Execution, configuration: Configuration, device: torch.device) -> Execution:
    if execution.chunk_size is None and device.type == "cuda":
        return dataclasses.replace(execution, chunk_size=configuration.at_once)
    return execution


@torch.no_grad()
def _outputs(readout: Readout, model: nn.Module, train: Split, augment: Augment | None) -> Split:
    """The trunk's outputs for every example, with the views that the augmentation makes of it now."""
    was_training = model.training
    model.eval()
    parts: list[Tensor] = []
    for start in range(0, len(train), _AT_ONCE):
        images, targets = train[start : start + _AT_ONCE]
        if augment is None:
            parts.append(readout.trunk(model, images))
        else:
            views = augment(images, targets)[0]
            outputs = readout.trunk(model, views.flatten(0, 1))
            parts.append(outputs.view(*views.shape[:2], *outputs.shape[1:]))
    model.train(was_training)
    return Split(torch.cat(parts), train.targets)
