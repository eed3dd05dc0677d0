"""`Private`: a model, its loss, an optimizer and a plan, for training loops of one's own."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours, Statement
from tacit.core.randomness import Randomness
from tacit.gradients import clipped_grad, preflight
from tacit.gradients.batches import gathered, map_leaves
from tacit.gradients.losses import LossFunction
from tacit.gradients.pieces import out_of_memory
from tacit.gradients.tracing import Batch
from tacit.ledger import Account
from tacit.mechanisms import StepNoise
from tacit.plan import DPSGD
from tacit.sampling import chunks
from tacit.training.captured_step import CapturedStep, Prepared
from tacit.training.execution import CompileWatch, Execution, first_chunk_size
from tacit.training.lots import drawn
from tacit.training.position import Position, start
from tacit.training.records import check_records, fetch, held_rows, resident
from tacit.training.secret_draws import SecretDraws
from tacit.training.step import release_gradient
from tacit.training.update import Update
from tacit.training.views import Augmented

_PREFLIGHT_RECORDS = 16  # enough to find three that differ
_MOST_SUMS = 10  # a compiler in another thread sets torch's generators a few times


@dataclasses.dataclass(frozen=True)
class Lot:
    """The records of one step. Which and how many they are is private."""

    step: int
    records: Any
    unsafe_indices: npt.NDArray[np.int64]


class Private:
    """Private training in a loop of one's own.

    ```python
    private = tacit.Private(model, loss_fn, optimizer, plan)
    for batch in private.batches(train_set):
        private.step(batch)
    print(private.statement())
    ```

    The model is not wrapped: its class, its forward and its state dict stay as they are. After `step` the parameters'
    ``grad`` hold the noisy mean gradient, which is public.

    Args:
        model, loss_fn, optimizer: the user's own; the loss function returns one loss for each example.
        plan: the frozen plan; it decides about sampling, clipping, noise and accounting.
        account: where the budget comes from. All steps are reserved here at once; what an early stop did not draw is
            returned by `close`. Preparations of the plan were charged by `prepare`. Without an account nothing limits
            the run but the plan.
        run: a name for the ledger's history.
        randomness: the source of noise, sampling and dropout; keyed by the operating system unless given. Every
            `Private` takes a fork of it, so that no noise is drawn twice.
        execution: engine, chunk size and other knobs that never change the result's distribution.
        position: says where a run that saves itself stands, in the place of account, run and randomness; asked when
            all else was found good. `fit` gives it.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        optimizer: torch.optim.Optimizer,
        plan: DPSGD,
        *,
        account: Account | None = None,
        run: str = "",
        randomness: Randomness | None = None,
        execution: Execution | None = None,
        position: Callable[[], Position] | None = None,
    ) -> None:
        self.model, self.optimizer, self.plan = model, optimizer, plan
        self.execution = execution or Execution()
        self._pending: Lot | None = None
        self._grad = clipped_grad(
            model, loss_fn, clipping=plan.clipping, engine=self.execution.engine, strategy=self.execution.strategy
        )
        self._noise = StepNoise(plan.mechanism(self._grad.sensitivity(Neighbours.ADD_REMOVE)), plan.expected_batch_size)
        self._update = Update(optimizer)
        self._captured = CapturedStep(self._grad, self._noise, self._update)
        self._watch = CompileWatch(self.execution, self._grad, self._noise, plan.steps)
        self._chunk_size: int | None = None
        self._preflight_due = self.execution.preflight
        self._position = start(plan, account, run, randomness) if position is None else position()
        self._reservation, self._randomness = self._position.reservation, self._position.randomness
        self._drawing_key = self._randomness.device_keys("torch")
        self.steps_done = self._position.steps_done

    @property
    def steps_begun(self) -> int:
        """How many steps have drawn their noise, or were about to: what the statement and the ledger count."""
        return self._position.steps_begun

    def stretches(self, step: int | None = None) -> tuple[int, ...]:
        """How many steps were charged up to a step of the plan, or so far; in parts where some were drawn again."""
        return self._position.stretches(step)

    @property
    def engine(self) -> str:
        """The engine in use, and why; whether its step is compiled; how many examples run at once."""
        size = "" if self._chunk_size is None else f"; {self._chunk_size} examples at once"
        return f"{self._grad.engine_reason}; {self._grad.compilation}{size}"

    @property
    def compile_seconds(self) -> float:
        """How long the step took to compile, zero where no program came of it; most passes beside the training."""
        return self._grad.compile_seconds

    def batches(self, train_set: Any) -> Iterator[Lot]:
        """The lots of the steps that remain, drawn by the plan's sampler; an empty lot is an ordinary one."""
        records = resident(check_records(train_set), self._device)
        sampler, first, last = self.plan.sampler, self._stream_step(self.steps_done), self._stream_step(self.plan.steps)

        def draw(step: int) -> npt.NDArray[np.int64]:
            return sampler.indices(step, len(records), self._randomness)

        # Only a GPU leaves the processor idle enough to draw ahead.
        ahead = self._device.type == "cuda"
        lots = drawn(sampler, len(records), self._randomness, first, last) if ahead else map(draw, range(first, last))
        for step, indices in zip(range(self.steps_done, self.plan.steps), lots, strict=True):
            if step != self.steps_done:
                raise InputError(
                    f"step {self.steps_done - 1}: was taken from another loop over private.batches. Use one loop at a "
                    "time."
                )
            lot = Lot(step, records, indices)
            self._pending = lot
            yield lot
            if self._pending is lot:
                raise InputError(
                    f"step {step}: private.step(batch) was not called for it. Call it once for each batch."
                )

    def step(self, lot: Lot) -> None:
        """One private step on the lot that `batches` gave last: clipped sum, ledger, noise, update.

        Whatever draws from torch's generators for the sum, such as dropout, draws what the run's randomness decides.
        """
        self._check_pending(lot)
        stream_step = self._stream_step(lot.step)
        with SecretDraws(self._drawing_key(stream_step), self._device) as draws:
            self._run_preflight(lot.records, draws)
            rest = self._begun(lot, stream_step, draws)
        rest()  # outside: noise never comes from torch's generators, and what an optimizer draws is no secret
        self.steps_done += 1
        self._pending = None
        self._watch.after_step(self.steps_done)
        if self.steps_done == self.plan.steps and not self._position.held:
            self._reservation.commit(stream_step + 1)

    def _check_pending(self, lot: Lot) -> None:
        if lot is not self._pending or lot.step != self.steps_done:
            which = f"batch of step {lot.step}" if isinstance(lot, Lot) else f"batch={type(lot).__name__}"
            raise InputError(
                f"{which}: is not the one that private.batches gave last, for step {self.steps_done}. Take every batch "
                "from private.batches and give it to private.step once."
            )

    def _begun(self, lot: Lot, stream_step: int, draws: SecretDraws) -> Callable[[], None]:
        """Takes the sum, and in a launch its noise with it; returns what is left of the step."""
        prepared = self._prepared_launch(lot, draws)
        if prepared is not None:
            self._reservation.before_noise(stream_step)
            if draws.are_secret:
                prepared.launch(self._randomness.noise_key(stream_step))
                if draws.are_secret:
                    return prepared.update
                raise draws.refusal()  # set in the moment of the launch, which cannot be taken back
        sums = self._sum(lot, draws)
        return functools.partial(self._release, sums, stream_step, recorded=prepared is not None)

    def _release(self, sums: dict[str, Tensor], stream_step: int, *, recorded: bool) -> None:
        if self._position.before_noise is not None:
            self._position.before_noise(stream_step, sums)
        release_gradient(sums, self._noise, self._reservation, self._randomness, stream_step, recorded=recorded)
        self._update(self._grad.parameters, sums)
        self._captured.after_ordinary_step(sums)

    def statement(self) -> Statement:
        """The guarantee for the model as it is now, after the steps taken so far."""
        return self._position.statement(self.plan)

    def close(self) -> None:
        """Ends the run; steps that were reserved and not drawn go back to the account."""
        if self.steps_done < self.plan.steps and not self._position.held:
            self._reservation.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stream_step(self, step: int) -> int:
        """The number that streams and reservation know a step by."""
        return step - self._position.first

    def _prepared_launch(self, lot: Lot, draws: SecretDraws) -> Prepared | None:
        """The whole step as one launch, where it was captured and the lot is one chunk."""
        size = self._chunk_size
        if size is None or not 0 < len(lot.unsafe_indices) <= size or not self._captured.is_possible:
            return None
        rows = held_rows(lot.records, lot.unsafe_indices, self._device)
        if rows is None:
            draws.begin()  # fetching may draw
        whole = rows is not None and len(lot.unsafe_indices) == size
        prepared = self._captured.prepare(*((rows, None) if whole else next(self._chunks(lot, size))))
        if rows is not None and prepared is not None and prepared.draws:
            draws.begin()
        return prepared

    def _sum(self, lot: Lot, draws: SecretDraws) -> dict[str, Tensor]:
        """The clipped sum over the lot; taken again where torch's generators were set from elsewhere on the way."""
        self._update.drop_gradients(self._grad.parameters)
        for _ in range(_MOST_SUMS):
            draws.begin()  # whatever a preflight has drawn before, or a launch that came to nothing
            sums = self._sum_in_chunks(lot, draws)
            if draws.are_secret:
                return sums
        raise draws.refusal()

    def _sum_in_chunks(self, lot: Lot, draws: SecretDraws) -> dict[str, Tensor]:
        """In chunks that fit; where memory runs out, in chunks of half the size, with the same draws once more."""
        if self._chunk_size is None:
            self._chunk_size = first_chunk_size(self.execution, self.plan, self.model, self._grad.tokens)
        while True:
            try:
                return self._grad.accumulate(self._chunks(lot, self._chunk_size))
            except RuntimeError as error:
                if not out_of_memory(error) or self._chunk_size == 1:
                    raise
            self._chunk_size = (self._chunk_size + 1) // 2
            self._grad.forget_programs()
            draws.begin()

    def _chunks(self, lot: Lot, size: int) -> Iterator[tuple[Batch, Tensor | None]]:
        padded = self.execution.pad_chunks or self._grad.compiles
        device = self._device
        for chunk in chunks(lot.unsafe_indices, size):
            indices = chunk.indices if padded else chunk.indices[chunk.mask]
            whole = not padded or bool(chunk.mask[-1])  # padding comes last
            mask = None if whole else torch.from_numpy(chunk.mask).to(device, non_blocking=True)
            yield self._batch(lot.records, indices), mask

    def _batch(self, records: Any, indices: npt.NDArray[np.int64]) -> Batch:
        if isinstance(records, Augmented):
            return records.changed(self._to_device(fetch(records.records, indices)))
        return held_rows(records, indices, self._device) or self._to_device(fetch(records, indices))

    @property
    def _device(self) -> torch.device:
        return next(iter(self._grad.parameters.values())).device

    def _to_device(self, batch: tuple[Any, ...]) -> tuple[Any, ...]:
        device = self._device

        def move(leaf: Tensor) -> Tensor:
            return leaf.to(device, non_blocking=True)

        moved: tuple[Any, ...] = map_leaves(move, batch)
        return moved

    def _run_preflight(self, records: Any, draws: SecretDraws) -> None:
        if self._preflight_due and len(records):
            draws.begin()
            first = np.arange(min(_PREFLIGHT_RECORDS, len(records)), dtype=np.int64)
            batch = self._batch(records, first)
            preflight(self._grad, *gathered(batch))
            self._preflight_due = False
