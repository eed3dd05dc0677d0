"""A step as one launch: clipped sum, noise, division and update in one CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor

from tacit.core.device_noise import key_tensor
from tacit.gradients import ClippedGrad
from tacit.gradients.tracing import Batch
from tacit.mechanisms import StepNoise
from tacit.training.update import Update

Launch = Callable[[bytes], None]
"""Takes the step with the noise of this key."""


class CapturedStep:
    """Captures a step that repeats itself, so that small models do not wait for the host.

    Plain gradient descent is part of the launch, with whatever rates the optimizer then has; any other update is the
    optimizer's own, after it. Before a step is captured it has been taken the ordinary way at least once, with the same
    programs and kernels.
    """

    def __init__(self, grad: ClippedGrad, noise: StepNoise, update: Update) -> None:
        self._grad, self._noise, self._update = grad, noise, update
        self._sums: dict[str, Tensor] = {}
        self._tried, self._given_up = False, False

    def after_ordinary_step(self, sums: dict[str, Tensor]) -> None:
        """A step has shown that everything works, so that the next one may be captured."""
        self._tried = next(iter(sums.values())).is_cuda

    def prepare(self, batch: Batch, mask: Tensor | None) -> Launch | None:
        """The launch for this lot, or None where the ordinary way must be taken. It draws no noise by itself."""
        if not self._tried or self._given_up or not self._noise.launches:
            return None
        try:
            launch = self._grad.captured(batch, mask, self._finish)
        except torch.OutOfMemoryError:
            self._given_up = True
            return None
        return None if launch is None else lambda key: self._take(launch, key)

    def _take(self, launch: Callable[[Tensor], None], key: bytes) -> None:
        parameters = self._grad.parameters
        descent = self._update.descent(parameters)
        self._noise.point_to(self._sums, descent)
        launch(key_tensor(key, device="cpu"))
        if descent is None:
            self._update(parameters, self._sums)
        else:
            self._update.place(parameters, self._sums)

    def _finish(self, sums: dict[str, Tensor], key: Tensor) -> None:
        """What is captured after the sums; the key is there with every launch."""
        self._sums = self._grad.complete(sums)
        self._noise.launch(key)
