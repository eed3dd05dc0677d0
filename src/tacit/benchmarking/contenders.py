"""Whatever can take a training step: the one interface between what is measured and who is measured."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from tacit.benchmarking.tasks import Task

LEARNING_RATE = 1e-3
CLIP = 1.0
NOISE_MULTIPLIER = 1.0

Step = Callable[[], object]
"""One training step: forward, backward, clipping and noise where there is any, and the update of SGD."""


class AsynchronousStep(ABC):
    """A step that only starts its work, for frameworks that torch cannot wait for."""

    @abstractmethod
    def __call__(self) -> object:
        """Starts a step."""

    @abstractmethod
    def wait(self) -> None:
        """Returns when all steps have ended."""


class DescribedStep(ABC):
    """A step that can say how it is taken."""

    @abstractmethod
    def __call__(self) -> object:
        """Takes a step."""

    @abstractmethod
    def describe(self) -> str:
        """How the last step was taken."""


class RefusedError(Exception):
    """A contender that cannot take this task, and why; it gives a row, and never ends a run."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """A way to take a training step.

    Attributes:
        name: its engine's name in rows.
        prepare: builds model and optimizer for a task and returns its step. Raises where it cannot.
        kind: ``plain`` for training without privacy, which the others are compared with, ``private``, or ``part`` for
            what is only a part of a private step, and measured where it is asked for.
        framework: what its own plain step is written in.
        needs: a package without which it cannot run.
        device: the one kind of device that it is for, if it is.
        compiles: whether it compiles, which takes tens of seconds a model on a CPU.
        patient: has no place in a quick look, and runs on a CPU only where it is asked for.
    """

    name: str
    prepare: Callable[[Task], Step]
    kind: str = "private"
    framework: str = "torch"
    needs: str | None = None
    device: str | None = None
    compiles: bool = False
    patient: bool = False


def refusing(contender: Contender, reason: str) -> Contender:
    """A contender in the place of another that gives this reason on every task."""

    def refuse(_: Task) -> Step:
        raise RefusedError(reason)

    return Contender(contender.name, refuse, kind=contender.kind, framework=contender.framework)


def synchronise(step: Step, device: torch.device) -> None:
    """Waits until everything that was started has ended."""
    if isinstance(step, AsynchronousStep):
        step.wait()
    elif device.type == "cuda":
        torch.cuda.synchronize(device)
