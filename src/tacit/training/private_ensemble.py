"""Many private models trained at once: their clipped sums are one computation, and all else is each model's own.

Each model has its own records, its own lots as the plan's sampler draws them, its own noise from its own streams, and
its own optimizer, in the very code that `tacit.fit` runs. Under a fixed seed a model comes out as from `tacit.fit`, but
for the order of additions. What is saved is the overhead of a step, which for small networks is most of it.

Nothing is reserved in a ledger, so that nothing of these models may be published: they are an audit's shadow models.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.gradients import clipped_grad, preflight
from tacit.gradients.losses import LossFunction, trainable
from tacit.gradients.stacked import StackedGrad
from tacit.mechanisms import StepNoise
from tacit.plan import DPSGD
from tacit.sampling import chunks
from tacit.training.averaging import WeightAverage
from tacit.training.ensemble import Progress
from tacit.training.execution import Execution, first_chunk_size
from tacit.training.position import start
from tacit.training.step import release_gradient
from tacit.training.update import Update

Rows = npt.NDArray[np.int64]


class PrivateEnsemble:
    """Models of one kind, each trained in private on its own rows of common records.

    Args:
        models: with their first weights, on the device of the records.
        loss_fn: one loss for each example.
        records: tensors with one row a record.
        parts: the rows that each model is trained on, at least one.
        plan: of each model, as for `tacit.fit`.
        optimizers: one for each model.
        sources: one for each model: of its lots and its noise.
        average_decay: of the average of the weights, which then is the model; the last weights without.

    Raises:
        UnsupportedError: the models cannot be stacked. Nothing was drawn, and they are as they were.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        loss_fn: LossFunction,
        records: tuple[Tensor, ...],
        parts: Sequence[Rows],
        plan: DPSGD,
        optimizers: Sequence[torch.optim.Optimizer],
        sources: Sequence[Randomness],
        *,
        average_decay: float | None = None,
    ) -> None:
        self._records, self._plan = records, plan
        if not all(bool(tensor.isfinite().all()) for tensor in records):
            raise UnsupportedError("records: hold numbers that are not finite, which a stack does not keep apart.")
        self._size = first_chunk_size(Execution(), plan, nn.ModuleList(models))  # memory is for all of them
        batch, _ = next(self._chunks([part[: self._size] for part in parts]))
        preflight(clipped_grad(models[0], loss_fn, clipping=plan.clipping), *(tensor[0] for tensor in batch))
        self._grad = StackedGrad(models, loss_fn, plan.clipping, batch)
        noise = StepNoise(plan.mechanism(self._grad.sensitivity(Neighbours.ADD_REMOVE)), plan.expected_batch_size)
        noise.compile(wait=False)
        self._members = [
            _Member(model, part, plan, noise, optimizer, source, average_decay)
            for model, part, optimizer, source in zip(models, parts, optimizers, sources, strict=True)
        ]

    def fit(self, progress: Progress) -> None:
        """All steps of the plan, for all models."""
        for step in range(self._plan.steps):
            lots = [member.lot(step) for member in self._members]
            sums = self._grad.accumulate(self._chunks(lots))
            for number, member in enumerate(self._members):
                member.take_step({name: value[number] for name, value in sums.items()}, step)
            progress((step + 1) / self._plan.steps)
        for member in self._members:
            member.finish()

    def _chunks(self, lots: Sequence[Rows]) -> Iterator[tuple[tuple[Tensor, ...], Tensor]]:
        """Rows of all lots side by side, ``[models, size, …]``; shorter lots are padded, to nothing where they end."""
        device = self._records[0].device
        for together in itertools.zip_longest(*(chunks(lot, self._size) for lot in lots)):
            rows = np.stack([np.zeros(self._size, np.int64) if chunk is None else chunk.indices for chunk in together])
            mask = np.stack([np.zeros(self._size, np.bool_) if chunk is None else chunk.mask for chunk in together])
            index = torch.from_numpy(rows.reshape(-1)).to(device)
            batch = tuple(t.index_select(0, index).reshape(*mask.shape, *t.shape[1:]) for t in self._records)
            yield batch, torch.from_numpy(mask).to(device)


class _Member:
    """What one model has to itself."""

    def __init__(
        self,
        model: nn.Module,
        part: Rows,
        plan: DPSGD,
        noise: StepNoise,
        optimizer: torch.optim.Optimizer,
        source: Randomness,
        average_decay: float | None,
    ) -> None:
        self._model, self._part, self._plan, self._noise = model, part, plan, noise
        self._position = start(plan, None, "", source)
        self._update = Update(optimizer)
        self._average = None if average_decay is None else WeightAverage(model, average_decay)

    def lot(self, step: int) -> Rows:
        """The records of a step, as rows of the common ones."""
        return self._part[self._plan.sampler.indices(step, len(self._part), self._position.randomness)]

    def take_step(self, sums: Mapping[str, Tensor], step: int) -> None:
        """Noise on the sums, in place, and the optimizer's update."""
        release_gradient(sums, self._noise, self._position.reservation, self._position.randomness, step)
        self._update(trainable(self._model), sums)
        if self._average is not None:
            self._average.update(self._model)

    def finish(self) -> None:
        """Closes the reservation and gives the model its averaged weights."""
        self._position.reservation.commit(self._plan.steps)
        if self._average is not None:
            self._average.copy_to(self._model)
