"""Optimizers by name, and Adam for noisy gradients. Any other torch optimizer works as well."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from tacit.core.validation import check_choice, check_non_negative, check_positive

OPTIMIZERS = ("sgd", "momentum", "adam", "rmsprop")
SCHEDULES = ("constant", "linear", "cosine")


class NoiseCorrectedAdam(torch.optim.Optimizer):
    r"""Adam with the noise's share taken out of the second moment.

    Private noise of variance v on every coordinate adds v to Adam's second moment, which then forgets the gradient's
    own size. With :math:`\hat m, \hat s` the bias-corrected moments the update is

    .. math:: \theta \leftarrow \theta - \eta\, \hat m / \sqrt{\max(\hat s - v,\; \gamma)}.

    Args:
        params: the parameters.
        lr: the learning rate.
        noise_variance: v, the variance of the noise on one coordinate of the mean gradient: (sigma C / L)².
        betas: decay of the first and second moment.
        floor: gamma, below which the corrected second moment is not trusted; by default v / 20.

    Reference: Tang, Shpilevskiy, Lécuyer, DP-AdamBC, 2023.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        *,
        noise_variance: float,
        betas: tuple[float, float] = (0.9, 0.999),
        floor: float | None = None,
    ) -> None:
        check_positive("lr", lr)
        check_non_negative("noise_variance", noise_variance)
        smallest = max(noise_variance / 20 if floor is None else floor, 1e-16)
        super().__init__(params, {"lr": lr, "betas": betas, "noise_variance": noise_variance, "floor": smallest})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One update from the gradients that the parameters hold."""
        del closure
        for group in self.param_groups:
            first_decay, second_decay = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(step=0, first=torch.zeros_like(parameter), second=torch.zeros_like(parameter))
                state["step"] += 1
                state["first"].lerp_(parameter.grad, 1 - first_decay)
                state["second"].lerp_(parameter.grad.square(), 1 - second_decay)
                first = state["first"] / (1 - first_decay ** state["step"])
                second = state["second"] / (1 - second_decay ** state["step"])
                signal = (second - group["noise_variance"]).clamp(min=group["floor"])
                parameter.addcdiv_(first, signal.sqrt(), value=-group["lr"])


def make_optimizer(
    name: str, parameters: Iterable[nn.Parameter], learning_rate: float, *, noise_scale: float
) -> torch.optim.Optimizer:
    """An optimizer of `OPTIMIZERS`.

    Args:
        name: ``sgd``, ``momentum`` (0.9), ``adam`` (with the noise corrected) or ``rmsprop``.
        parameters: what trains.
        learning_rate: above 0.
        noise_scale: the standard deviation of the noise on one coordinate of the mean gradient.
    """
    check_choice("optimizer", name, OPTIMIZERS)
    rate = check_positive("learning_rate", learning_rate)
    if name == "adam":
        return NoiseCorrectedAdam(parameters, rate, noise_variance=noise_scale**2)
    if name == "rmsprop":
        return torch.optim.RMSprop(parameters, rate)
    return torch.optim.SGD(parameters, rate, momentum=0.9 if name == "momentum" else 0.0)


def schedule_factor(name: str, steps: int) -> Callable[[int], float]:
    """The factor on the learning rate at each step: ``constant``, or a fall to zero, ``linear`` or ``cosine``."""
    check_choice("schedule", name, SCHEDULES)
    if name == "linear":
        return lambda step: max(0.0, 1 - step / steps)
    if name == "cosine":
        return lambda step: (1 + math.cos(math.pi * min(1.0, step / steps))) / 2
    return lambda _: 1.0


def make_schedule(
    name: str, optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LRScheduler | None:
    """The schedule of a name for an optimizer, stepped after every step; None for ``constant``."""
    factor = schedule_factor(name, steps)
    return None if name == "constant" else torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
