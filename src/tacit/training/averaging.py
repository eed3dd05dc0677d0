"""An exponential moving average of the weights: post-processing of private weights, so it costs no budget."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tacit.core.validation import check_open_unit


class WeightAverage:
    r"""Keeps :math:`\bar\theta_t = d_t \bar\theta_{t-1} + (1 - d_t) \theta_t`, :math:`d_t = \min(d, \frac{1+t}{10+t})`.

    The warm-up keeps the random start out of the average. Buffers are not averaged.

    Reference: De et al., Unlocking High-Accuracy Differentially Private Image Classification through Scale, 2022.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = check_open_unit("decay", decay, remedy="Take a number such as 0.99.")
        self.steps = 0
        self.weights: dict[str, Tensor] = {
            name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad
        }

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Takes the model's present weights into the average."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        torch._foreach_lerp_(list(self.weights.values()), self._averaged(model), 1 - decay)

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Gives the model the averaged weights."""
        torch._foreach_copy_(self._averaged(model), list(self.weights.values()))

    @contextlib.contextmanager
    def shown_by(self, model: nn.Module) -> Iterator[None]:
        """Gives the model the averaged weights for a while. Its own are put back in their places, to the bit."""
        parameters = self._averaged(model)
        own = [parameter.detach().clone() for parameter in parameters]
        self.copy_to(model)
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(parameters, own)

    def _averaged(self, model: nn.Module) -> list[Tensor]:
        """The model's own parameters that an average is kept of."""
        return [model.get_parameter(name) for name in self.weights]
