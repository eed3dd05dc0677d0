"""`clipped_grad`: the gradient of a private step before its noise."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tacit.clipping import Clipping
from tacit.core.errors import InputError, UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.core.validation import check_choice, check_count
from tacit.gradients.batches import Rows, count_examples, device_of, gathered, split
from tacit.gradients.compiled_engine import Captured, CompiledEngine, Finish
from tacit.gradients.engines import ENGINES, BookkeepingEngine, Engine
from tacit.gradients.losses import LossFunction, laid_out_like, sum_dtype, trainable
from tacit.gradients.refusals import refuse_mixing_layers
from tacit.gradients.strategies import Strategies
from tacit.gradients.tracing import Batch


@dataclasses.dataclass(frozen=True)
class ClippedSum:
    """The sum of clipped gradients of one batch.

    Everything here is computed from private data without noise. ``grads`` goes to a mechanism; what starts with
    ``unsafe_`` is for debugging and must not be released.

    Attributes:
        grads: parameter name to sum, for every trainable parameter (zeros where it was not used), in float32 at least.
        unsafe_norms: L2 norms before clipping, ``[examples, groups]``; zero for examples outside the mask.
    """

    grads: dict[str, Tensor]
    unsafe_norms: Tensor


class ClippedGrad:
    r"""A function with bounded sensitivity: :math:`f(B) = \sum_{i \in B} \mathrm{clip}(\nabla \ell_i)`.

    Made by `clipped_grad`. Call it with the arguments of the loss function but the model.

    Guarantee: the sums over two batches that differ in one example differ by at most ``sensitivity(neighbours)`` in L2
    norm, whatever the model, the data, the engine and the chunking.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        clipping: Clipping,
        engine: str,
        chunk_size: int | None,
        strategy: str | None,
    ) -> None:
        check_choice("engine", engine, {*ENGINES, "auto"})
        if chunk_size is not None:
            check_count("chunk_size", chunk_size)
        self.model = model
        self.loss_fn = loss_fn
        self.clipping = clipping
        self.chunk_size = chunk_size
        self.parameters = trainable(model)
        self._bound = clipping.bind({name: p.numel() for name, p in self.parameters.items()})
        self._requested = engine
        self._decided = engine != "auto"
        self._strategies = Strategies(strategy)
        self._all_true: Tensor | None = None
        self._engine = self._make_engine(engine if self._decided else "bookkeeping")
        self.engine_reason = f"engine={engine!r} was asked for"

    @property
    def engine(self) -> str:
        """The engine's name; ``auto`` until the first batch has decided."""
        return self._engine.name if self._decided else "auto"

    @property
    def tokens(self) -> int:
        """How many rows of a matrix product one example has, in the layers that do most of the work; 1 until the first
        batch, and where the engine is not book-keeping.
        """
        return self._engine.eager.tokens if isinstance(self._engine, CompiledEngine) else 1

    @property
    def compiles(self) -> bool:
        """Whether batches are compiled as they come, so that they had better have one shape."""
        return isinstance(self._engine, CompiledEngine) and self._engine.asked

    @property
    def compilation(self) -> str:
        """Whether the step is compiled, and if not, why."""
        return self._engine.state if isinstance(self._engine, CompiledEngine) else "eager"

    @property
    def compile_seconds(self) -> float:
        """How long the programs that there are took to compile, tracing left out; zero where none came of it."""
        return self._engine.seconds if isinstance(self._engine, CompiledEngine) else 0.0

    def start_compiling(self, *, wait: bool) -> None:
        """Compiles the step for the shapes of batches that come from now on, where the engine is book-keeping.

        With ``wait`` the first batch of a shape waits for it; otherwise steps stay eager until it is done, in the
        background. What was generated is kept on disk. A model that cannot be compiled stays eager; `compilation` says
        why.
        """
        if isinstance(self._engine, CompiledEngine):
            self._engine.start(wait=wait)

    @contextlib.contextmanager
    def eagerly(self) -> Iterator[None]:
        """Nothing is compiled for a while, such as for a batch that will not come again."""
        with self._engine.paused() if isinstance(self._engine, CompiledEngine) else contextlib.nullcontext():
            yield

    def forget_programs(self) -> None:
        """Drops compiled programs and their memory."""
        if isinstance(self._engine, CompiledEngine):
            self._engine.forget()

    def sensitivity(self, neighbours: Neighbours) -> float:
        """The L2 distance between the sums of two neighbouring batches, at most."""
        return self._bound.sensitivity(neighbours)

    def __call__(self, *batch: Any, mask: Tensor | None = None) -> ClippedSum:
        """The sum of clipped gradients over the batch.

        Args:
            batch: what the loss function takes after the model; tensors, or trees of tensors, whose first dimension
                counts examples (or is 1 where all examples share a tensor).
            mask: bool, one for each example; ``False`` marks padding, which contributes exactly zero.

        Edge cases: an empty batch gives zeros without a call of the model. An example whose gradient is not finite
        contributes zero.
        """
        examples = count_examples(batch)
        mask = self._check_mask(mask, examples, device_of(batch))
        parameters = self._check_model()
        total: dict[str, Tensor] = {}
        norms = [torch.zeros(0, len(self._bound.groups), dtype=torch.float64, device=mask.device)]
        for chunk, place in split(batch, self.chunk_size or max(examples, 1), examples):
            total, chunk_norms = self._add(total, chunk, mask[place])
            norms.append(torch.where(mask[place, None], chunk_norms, torch.zeros_like(chunk_norms)))
        return ClippedSum(_complete(self._own(total), parameters), torch.cat(norms))

    def accumulate(self, chunks: Iterable[tuple[Batch, Tensor | None]]) -> dict[str, Tensor]:
        """The sum of clipped gradients over a lot that comes in physical chunks, each a batch and its mask.

        As a call, without norms. No chunks, or empty ones, give zeros. No later call writes to what is returned: it
        becomes the gradient that whoever trains may look at, also where the next step is refused before its noise.
        """
        parameters = self._check_model()
        total: dict[str, Tensor] = {}
        for batch, mask in chunks:
            mask = self._full_mask(batch) if mask is None else mask
            if len(mask):
                total, _ = self._add(total, batch, mask)
        return _complete(self._own(total), parameters)

    def captured(self, batch: Batch, mask: Tensor | None, finish: Finish) -> Captured | None:
        """One launch that takes the sum over a whole lot and runs ``finish`` on it; None where `accumulate` must do.

        A CUDA graph: ``finish`` is called once, to be captured. Of the sums that it gets some may be open, and want
        completing (`complete`). Nothing runs before the launch is called.
        """
        if not isinstance(self._engine, CompiledEngine):
            return None
        # A program is found by all that it was checked with, parameters included: no need to check them again.
        return self._engine.captured(batch, self._full_mask(batch) if mask is None else mask, finish)

    def complete(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sums, with zeros for the parameters that were not used."""
        return _complete(sums, self.parameters)

    def _add(self, total: dict[str, Tensor], batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """One more chunk; the norms are the chunk's own."""
        if total:
            total = self._own(total)
        found, norms = self._run(batch, mask)
        for name, value in found.items():
            total[name] = total[name].add_(value) if name in total else value.detach()
        return total, norms

    def _own(self, sums: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same sums where no later call of the engine writes."""
        if isinstance(self._engine, CompiledEngine) and any(map(self._engine.lends, sums.values())):
            return {name: value.clone() for name, value in sums.items()}
        return sums

    def _make_engine(self, name: str) -> Engine:
        engine = ENGINES[name](self.model, self.loss_fn, self._bound, self._strategies)
        return CompiledEngine(engine) if isinstance(engine, BookkeepingEngine) else engine

    def _check_model(self) -> dict[str, nn.Parameter]:
        self.parameters = parameters = trainable(self.model)
        if set(parameters) != {name for group in self._bound.groups for name in group}:
            raise InputError(
                "model: its set of trainable parameters has changed since clipped_grad was called. Call it again."
            )
        refuse_mixing_layers(self.model)
        return parameters

    def _check_mask(self, mask: Tensor | None, examples: int, device: torch.device) -> Tensor:
        if mask is None:
            return torch.ones(examples, dtype=torch.bool, device=device)
        if not isinstance(mask, Tensor):
            raise InputError(
                f"mask of type {type(mask).__name__}: must be a tensor of torch.bool, one for each of the {examples} "
                "examples."
            )
        if mask.shape != (examples,) or mask.dtype != torch.bool:
            raise InputError(
                f"mask of shape {tuple(mask.shape)} and type {mask.dtype}: must be ({examples},) of torch.bool, one "
                "for each example."
            )
        return mask.to(device)

    def _full_mask(self, batch: Batch) -> Tensor:
        """All examples, in a tensor that stays the same from step to step."""
        if isinstance(batch, Rows):
            examples, device = len(batch.index), batch.tensors[0].device
        else:
            examples, device = count_examples(batch), device_of(batch)
        known = self._all_true
        if known is None or known.numel() != examples or known.device != device:
            self._all_true = known = torch.ones(examples, dtype=torch.bool, device=device)
            if isinstance(self._engine, CompiledEngine):
                self._engine.full_mask = known
        return known

    def _coverage(self) -> str:
        """How far the layer rules reach, and what the rest costs."""
        engine = self._engine.eager if isinstance(self._engine, CompiledEngine) else self._engine
        rest = dict(engine.written_out) if isinstance(engine, BookkeepingEngine) else {}
        if not rest:
            return "bookkeeping, because every trainable parameter is covered by a layer rule"
        names = {name for names in rest for name in names.split(", ")}
        numbers = sum(self.parameters[name].numel() for name in names)
        layers = "; ".join(f"{name} by {operation}" for name, operation in rest.items())
        return (
            f"bookkeeping, with gradients written out where there is no layer rule ({layers}), at {numbers} numbers an "
            "example"
        )

    def _apply(self, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        if isinstance(self._engine, CompiledEngine):
            return self._engine(batch, mask)
        return self._engine(gathered(batch), mask)

    def _run(self, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """``auto`` takes book-keeping until it refuses a batch, and vmap of grad from then on."""
        try:
            result = self._apply(batch, mask)
        except UnsupportedError as error:
            if self._requested != "auto" or self._engine.name != "bookkeeping":
                raise
            self._engine = self._make_engine("functional")
            self.engine_reason = f"functional, because book-keeping refused {error}"
            result = self._apply(batch, mask)
        if not self._decided and self._engine.name == "bookkeeping":
            self.engine_reason = self._coverage()
        self._decided = True
        return result


def _complete(sums: dict[str, Tensor], parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """A sum for every trainable parameter; zeros where it was not used."""
    return {
        name: laid_out_like(
            p, sums[name] if name in sums else torch.zeros_like(p, dtype=sum_dtype(p), requires_grad=False)
        )
        for name, p in parameters.items()
    }


def clipped_grad(
    model: nn.Module,
    loss_fn: LossFunction,
    *,
    clipping: Clipping,
    engine: str = "auto",
    chunk_size: int | None = None,
    strategy: str | None = None,
) -> ClippedGrad:
    r"""The sum over a batch of per-example gradients, each clipped: what a private step adds noise to.

    .. math:: f(B) = \sum_{i \in B} c_i g_i, \qquad g_i = \nabla_\theta \ell(\theta, z_i), \qquad \|c_i g_i\|_2 \le C

    Args:
        model: any module; it is never wrapped or changed. Layers that mix examples are refused by name.
        loss_fn: ``loss_fn(model, *batch)`` returns one loss for each example, never a mean.
        clipping: how the norm of one example's gradient is bounded.
        engine: ``reference`` (a loop, the definition), ``functional`` (vmap of grad, for any model), ``bookkeeping``
            (one forward and one lean backward pass), or ``auto``: book-keeping where it covers the model, else
            functional. The choice never changes the result; `ClippedGrad.engine_reason` says why it was made.
        chunk_size: how many examples are worked on at once. Memory depends on it, the result does not.
        strategy: a way to every layer's norm, a name of `tacit.gradients.strategies.STRATEGIES`, in place of the
            fastest one. It never changes the result, up to rounding.

    Reference: Abadi et al., Deep Learning with Differential Privacy, 2016.
    """
    return ClippedGrad(model, loss_fn, clipping, engine, chunk_size, strategy)
