"""What an engine is: model and batch in, sum of clipped gradients out.

An engine sees one physical chunk at a time and never draws noise or samples records. All of them compute the same
function, to rounding; the reference engine defines it.
"""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.clipping import BoundClipping
from tacit.core.errors import TacitError, UnsupportedError
from tacit.gradients.batches import count_examples, leaves, take
from tacit.gradients.clipped_sum import clip_factors, group_norms, sum_clipped
from tacit.gradients.contributions import Direct, ParameterGradients
from tacit.gradients.layout_probe import probe
from tacit.gradients.losses import LossFunction, LossModule, losses_of, sum_dtype, trainable
from tacit.gradients.recorder import Recorder, Step


class Engine(Protocol):
    """Sums the clipped gradients of one chunk."""

    name: str

    def __call__(self, batch: tuple[Any, ...], mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Parameter name to sum (parameters without gradients may be missing), and norms ``[examples, groups]``."""
        ...


class ReferenceEngine:
    """One example at a time by plain autograd: slow, and the definition that all other engines must meet."""

    name = "reference"

    def __init__(self, model: nn.Module, loss_fn: LossFunction, bound: BoundClipping) -> None:
        self._model, self._loss_fn, self._bound = model, loss_fn, bound

    def __call__(self, batch: tuple[Any, ...], mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        examples = count_examples(batch)
        parameters = trainable(self._model)
        sums = {name: torch.zeros_like(p, dtype=sum_dtype(p)) for name, p in parameters.items()}
        norms = []
        for i in range(examples):
            index = torch.tensor([i])
            loss = losses_of(self._loss_fn, self._model, take(batch, index, examples), 1)
            found = torch.autograd.grad(loss[0], list(parameters.values()), allow_unused=True)
            grads = {
                name: g.to(sum_dtype(p))
                for (name, p), g in zip(parameters.items(), found, strict=True)
                if g is not None
            }
            squared = {name: g.double().square().sum()[None] for name, g in grads.items()}
            norm = group_norms(squared, self._bound, 1, mask.device)
            factors = clip_factors(norm, self._bound, mask[i : i + 1])[0]
            norms.append(norm)
            for factor, group in zip(factors, self._bound.groups, strict=True):
                for name in group:
                    if name in grads and float(factor) != 0:
                        sums[name] += factor.to(sums[name].dtype) * grads[name]
        return sums, torch.cat(norms)


class FunctionalEngine:
    """``vmap`` of ``grad``: writes every example's gradient out, for any model that torch.func can transform."""

    name = "functional"

    def __init__(self, model: nn.Module, loss_fn: LossFunction, bound: BoundClipping) -> None:
        self._module = LossModule(model, loss_fn)
        self._model, self._bound = model, bound

    def __call__(self, batch: tuple[Any, ...], mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        examples = count_examples(batch)
        parameters = {f"model.{name}": p.detach() for name, p in trainable(self._model).items()}

        def loss(params: dict[str, Tensor], example: tuple[Any, ...]) -> Tensor:
            single = _map_examples(lambda leaf: leaf[None], example, batch, examples)
            value: Tensor = torch.func.functional_call(self._module, params, single)
            return value

        axes = _map_examples(lambda _: 0, batch, batch, examples, shared=lambda _: None)
        per_example = torch.func.vmap(torch.func.grad(loss), in_dims=(None, axes), randomness="different")
        try:
            with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no batching rule
                found = per_example(parameters, batch)
        except TacitError:
            raise
        except (RuntimeError, NotImplementedError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UnsupportedError(
                f"model: torch.func cannot transform it ({reason}). Use engine='reference', or change that operation."
            ) from error
        grads = {
            name.removeprefix("model."): ParameterGradients([Direct(g.to(sum_dtype(g)))]) for name, g in found.items()
        }
        return sum_clipped(grads, self._bound, mask)


class BookkeepingEngine:
    """One forward pass, and one backward pass that computes no weight gradient.

    Layer inputs and output gradients give the norms; then one weighted product for each layer gives the clipped sum.
    Dropout and other randomness is drawn once, so norm and sum always belong to the same gradient.

    Reference: Bu, Wang, Zha, Karypis, Differentially Private Optimization on Large Model at Small Cost, 2022.
    """

    name = "bookkeeping"

    def __init__(self, model: nn.Module, loss_fn: LossFunction, bound: BoundClipping) -> None:
        self._model, self._loss_fn, self._bound = model, loss_fn, bound
        self._steps: dict[tuple[Any, ...], list[Step]] = {}

    def __call__(self, batch: tuple[Any, ...], mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        examples = count_examples(batch)
        parameters = trainable(self._model)
        recorder = Recorder(parameters, examples, self.steps(batch, examples))
        with torch.enable_grad():
            with recorder:
                losses = losses_of(self._loss_fn, self._model, batch, examples)
            grads = recorder.gradients(losses)
        with torch.no_grad():
            return sum_clipped(grads, self._bound, mask)

    def steps(self, batch: tuple[Any, ...], examples: int) -> list[Step]:
        """What the probe finds for batches of this form; it runs once for each form, and refuses what has no rule."""
        names = frozenset(trainable(self._model))
        form = (
            names,
            self._model.training,
            *((leaf.shape[0] == examples, leaf.shape[1:], leaf.dtype) for leaf in leaves(batch)),
        )
        if form not in self._steps:
            self._steps[form] = self._probe(batch, examples)
        return self._steps[form]

    def _probe(self, batch: tuple[Any, ...], examples: int) -> list[Step]:
        def losses(count: int) -> Tensor:
            few = take(batch, torch.arange(count) % examples, examples)
            return losses_of(self._loss_fn, self._model, few, count)

        with torch.enable_grad(), torch.random.fork_rng():
            return probe(trainable(self._model), losses)


def _map_examples(function: Any, tree: Any, batch: Any, examples: int, shared: Any = lambda leaf: leaf) -> Any:
    """Applies ``function`` to the leaves of ``tree`` that stand where ``batch`` has one row an example."""
    if isinstance(batch, Tensor):
        return function(tree) if batch.shape[0] == examples else shared(tree)
    if isinstance(batch, dict):
        return {key: _map_examples(function, tree[key], batch[key], examples, shared) for key in batch}
    if isinstance(batch, list | tuple):
        parts = [
            _map_examples(function, part, whole, examples, shared) for part, whole in zip(tree, batch, strict=True)
        ]
        return type(batch)(parts) if isinstance(batch, list) else tuple(parts)
    return shared(tree)


ENGINES: dict[str, type[ReferenceEngine] | type[FunctionalEngine] | type[BookkeepingEngine]] = {
    engine.name: engine for engine in (ReferenceEngine, FunctionalEngine, BookkeepingEngine)
}
