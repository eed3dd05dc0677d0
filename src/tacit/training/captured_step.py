"""A step as one launch: clipped sum, noise, division and update in one CUDA graph."""

import dataclasses
import functools
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from tacit.core.noise_table import NoiseTable
from tacit.core.row_sums import RowSum
from tacit.gradients import ClippedGrad
from tacit.gradients.compiled_engine import Launch
from tacit.gradients.open_sums import Finished
from tacit.gradients.tracing import Batch
from tacit.mechanisms import StepNoise
from tacit.training.update import Descent, Update


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A step on a lot, whose noise is not drawn yet.

    Attributes:
        launch: sum, noise, division and plain gradient descent, given the key of the noise.
        update: what comes after the launch: any other optimizer's own step.
        draws: whether the launch draws from torch's generators, as dropout does.
    """

    launch: Launch
    update: Callable[[], None]
    draws: bool


class CapturedStep:
    """Captures a step that repeats itself, so that small models do not wait for the host.

    Plain gradient descent is part of the launch, with whatever rates the optimizer then has; any other update is the
    optimizer's own, after it. Before a step is captured it has been taken the ordinary way at least once, with the same
    program; where that leaves sums open, the ordinary step takes them before the noise, and a captured one with it.
    """

    def __init__(self, grad: ClippedGrad, noise: StepNoise, update: Update) -> None:
        self._grad, self._noise, self._update = grad, noise, update
        self._finish = _Finish(grad, noise, None)
        self._pointed: tuple[weakref.ref[Finished], Descent | None, object] | None = None
        self._tried, self._given_up = False, False

    @property
    def is_possible(self) -> bool:
        """Whether a lot is worth preparing for it; on a CPU it never is."""
        return self._tried and not self._given_up and self._noise.launches and self._grad.compiles

    def after_ordinary_step(self, sums: dict[str, Tensor]) -> None:
        """A step has shown that everything works, so that the next one may be captured."""
        self._tried = next(iter(sums.values())).is_cuda

    def prepare(self, batch: Batch, mask: Tensor | None) -> Prepared | None:
        """The step on this lot, or None where the ordinary way must be taken. Draws no noise by itself."""
        if not self.is_possible:
            return None
        if self._finish.table is not self._noise.table:
            self._finish = _Finish(self._grad, self._noise, self._noise.table)
        try:
            captured = self._grad.captured(batch, mask, self._finish)
        except torch.OutOfMemoryError:
            self._given_up = True
            return None
        if captured is None:
            return None
        descent = self._update.descent(self._grad.parameters)
        return Prepared(
            functools.partial(self._launch, captured.launch, captured.finished, descent),
            functools.partial(self._end, captured.finished, descent),
            captured.draws,
        )

    def _launch(self, launch: Launch, finished: Finished, descent: Descent | None, key: bytes) -> None:
        self._point_to(finished, descent)
        launch(key)

    def _end(self, finished: Finished, descent: Descent | None) -> None:
        parameters, sums = self._grad.parameters, finished.sums
        if descent is None:
            self._update(parameters, sums)
        else:
            self._update.place(parameters, sums, descent.others)

    def _point_to(self, finished: Finished, descent: Descent | None) -> None:
        """Has the noise work on this program's sums, unless it does so since an earlier step."""
        if self._pointed is not None:
            last, last_descent, pointing = self._pointed
            if last() is finished and last_descent is descent and pointing is self._noise.pointing is not None:
                return
        self._noise.point_to(finished.sums, None if descent is None else descent.targets, finished.open_sums)
        self._pointed = weakref.ref(finished), descent, self._noise.pointing


@dataclasses.dataclass(frozen=True, eq=False)
class _Finish:
    """What is captured after the sums; another one, and captured anew, for another table, since graphs read tables."""

    grad: ClippedGrad
    noise: StepNoise
    table: NoiseTable | None

    def __call__(self, sums: dict[str, Tensor | RowSum], key: Tensor) -> Finished:
        """The completed sums, with noise once the graph has run; the key is there with every launch."""
        finished = Finished.of(sums)
        completed = self.grad.complete(finished.sums)  # which may copy, so before the noise
        assert all(completed[name] is each.total for name, each in finished.open_sums.items())
        self.noise.launch(key, finished.form)
        return dataclasses.replace(finished, sums=completed)
