"""What a run consists of besides its plan: weights, optimizer, schedule and average."""

import dataclasses
from typing import Any

import torch
from torch import nn

from tacit.core.errors import InputError
from tacit.training.averaging import WeightAverage
from tacit.training.fingerprint import Fingerprint, describe_code, digest_text, network_fingerprint
from tacit.training.packing import Tensors, pack, unpack

Packed = tuple[Any, Tensors]


@dataclasses.dataclass(frozen=True)
class RunState:
    """The things of a run that change from step to step; clipping bounds are the plan's and do not."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    average: WeightAverage | None = None

    def fingerprint(self) -> Fingerprint:
        """What must be the same in the process that goes on."""
        scheduler, average = self.scheduler, self.average
        kind = type(self.optimizer)
        return {
            "model": network_fingerprint(self.model),
            "optimizer": digest_text(f"{kind.__module__}.{kind.__qualname__} {describe_code(kind.step)}"),
            "scheduler": digest_text(
                f"{type(scheduler).__qualname__} {describe_code(getattr(scheduler, 'lr_lambdas', None))}"
            ),
            "average_decay": digest_text(repr(None if average is None else average.decay)),
        }

    def capture(self) -> Packed:
        """Everything as plain JSON and tensors, copied."""
        tensors: Tensors = {}
        state = {
            "model": dict(self.model.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "average": None
            if self.average is None
            else {"steps": self.average.steps, "weights": dict(self.average.weights)},
        }
        return pack("state", state, tensors), tensors

    def restore(self, packed: Any, tensors: Tensors) -> None:
        """Sets everything to what was captured.

        Raises:
            InputError: the state does not fit this model, optimizer or schedule.
        """
        try:
            state = unpack(packed, tensors)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.scheduler is not None:
                self.scheduler.load_state_dict(state["scheduler"])
            if self.average is not None:
                self.average.steps = state["average"]["steps"]
                for name, average in self.average.weights.items():
                    average.copy_(state["average"]["weights"][name])
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"checkpoint: its state does not fit this run ({' '.join(str(error).split())}). Build the same model "
                "and optimizer as before, or start a new run in another folder."
            ) from error
