"""A step as one launch: clipped sum, noise, division and update in one CUDA graph."""

from collections.abc import Callable, Hashable

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

    The update is captured with the rest while it stays the same, as that of ``torch.optim.SGD`` without a schedule
    does; any other is taken after the launch. Before a step is captured it has been taken the ordinary way at least
    once, with the same programs and kernels.
    """

    def __init__(self, grad: ClippedGrad, noise: StepNoise, update: Update) -> None:
        self._grad, self._noise, self._update = grad, noise, update
        self._sums: dict[str, Tensor] = {}
        self._key: Tensor | None = None
        self._facts: Hashable = None
        self._updates = False
        self._finish: Callable[[dict[str, Tensor]], None] | None = None
        self._failed = False

    def after_ordinary_step(self, sums: dict[str, Tensor]) -> None:
        """Notes what the update depends on, and that its noise knows the sums' sizes."""
        if self._finish is None and all(tensor.is_cuda for tensor in sums.values()):
            self._facts = self._update.facts()
            self._key = torch.zeros(8, dtype=torch.int32, device=next(iter(sums.values())).device)

    def prepare(self, batch: Batch, mask: Tensor | None) -> Launch | None:
        """The launch for this lot, or None where the ordinary way must be taken. It draws no noise by itself."""
        if self._key is None or self._failed or not self._noise.launches:
            return None
        self._choose_finish()
        assert self._finish is not None
        try:
            launch = self._grad.captured(batch, mask, self._finish)
        except torch.OutOfMemoryError:
            self._failed = True
            return None
        return None if launch is None else lambda key: self._take(launch, key)

    def _take(self, launch: Callable[[], None], key: bytes) -> None:
        assert self._key is not None
        self._noise.point_to(self._sums)
        self._key.copy_(key_tensor(key, device="cpu"), non_blocking=True)
        launch()
        self._update.place(self._grad.parameters, self._sums)
        if not self._updates:
            self._update.run()

    def _choose_finish(self) -> None:
        """With the update in it where that stays as it is; once it changed, as by a schedule, without."""
        facts = self._update.facts()
        stays = facts is not None and facts == self._facts
        if self._finish is None:
            self._updates, self._finish = stays, self._make_finish(updates=stays)
        elif self._updates and not stays:
            self._updates, self._finish = False, self._make_finish(updates=False)

    def _make_finish(self, *, updates: bool) -> Callable[[dict[str, Tensor]], None]:
        def finish(sums: dict[str, Tensor]) -> None:
            assert self._key is not None
            self._sums = self._grad.complete(sums)
            self._noise.launch(self._key)
            if updates:
                self._update(self._grad.parameters, self._sums)

        return finish
