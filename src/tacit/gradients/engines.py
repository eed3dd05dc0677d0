"""What an engine is: model and batch in, sum of clipped gradients out.

An engine sees one physical chunk at a time and never draws noise or samples records. All of them compute the same
function, to rounding; the reference engine defines it.
"""

import contextlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.clipping import BoundClipping
from tacit.core.errors import TacitError, UnsupportedError
from tacit.gradients.batches import count_examples, distinct_rows, form_of, take
from tacit.gradients.clipped_sum import clip_factors, group_norms, sum_clipped
from tacit.gradients.contributions import Direct
from tacit.gradients.layout_probe import PROBED, Findings, probe
from tacit.gradients.losses import LossFunction, LossModule, losses_of, sum_dtype, trainable
from tacit.gradients.model_settings import ModelSettings
from tacit.gradients.model_state import preserved_generators, stirred
from tacit.gradients.parameter_gradients import ParameterGradients
from tacit.gradients.pieces import out_of_memory
from tacit.gradients.recorder import OtherWayError, Recorder, Step
from tacit.gradients.strategies import Strategies

_FORMS = 1024  # of batches and settings whose probe is remembered; the first is forgotten, and probed again if it comes


class Engine(Protocol):
    """Sums the clipped gradients of one chunk."""

    name: str

    def __call__(self, batch: tuple[Any, ...], mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Parameter name to sum (parameters without gradients may be missing), and norms ``[examples, groups]``."""
        ...


class ReferenceEngine:
    """One example at a time by plain autograd: slow, and the definition that all other engines must meet."""

    name = "reference"

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, bound: BoundClipping, strategies: Strategies | None = None
    ) -> None:
        del strategies  # one example at a time has its gradient written out
        self._model, self._loss_fn, self._bound = model, loss_fn, bound

    def __call__(self, batch: tuple[Any, ...], mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        examples = count_examples(batch)
        parameters = trainable(self._model)
        sums = {name: torch.zeros_like(p, dtype=sum_dtype(p)) for name, p in parameters.items()}
        norms = []
        for i in range(examples):
            grads = self._gradient(take(batch, torch.tensor([i]), examples), parameters)
            norm = taken = self._norm(grads, mask.device)
            if self._bound.filter is not None:
                grads = {name: self._bound.filter(g) for name, g in grads.items()}
                taken = self._norm(grads, mask.device)
            factors = clip_factors(taken, self._bound, mask[i : i + 1] & torch.isfinite(norm).all(1))[0]
            norms.append(norm)
            for factor, group in zip(factors, self._bound.groups, strict=True):
                for name in group:
                    if name in grads and float(factor) != 0:
                        sums[name] += factor.to(sums[name].dtype) * grads[name]
        return sums, torch.cat(norms)

    def _norm(self, grads: Mapping[str, Tensor], device: torch.device) -> Tensor:
        squared = {name: g.double().square().sum()[None] for name, g in grads.items()}
        return group_norms(squared, self._bound, 1, device)

    def _gradient(self, example: tuple[Any, ...], parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The gradient of one example; a parameter that it does not use is missing."""
        with torch.enable_grad():
            loss = losses_of(self._loss_fn, self._model, example, 1)[0]
            if not loss.requires_grad:
                return {}
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        return {
            name: g.to(sum_dtype(p)) for (name, p), g in zip(parameters.items(), found, strict=True) if g is not None
        }


class FunctionalEngine:
    """``vmap`` of ``grad``: writes every example's gradient out, for any model that torch.func can transform."""

    name = "functional"

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, bound: BoundClipping, strategies: Strategies | None = None
    ) -> None:
        self._module = LossModule(model, loss_fn)
        self._model, self._bound = model, bound
        self._strategies = strategies or Strategies()

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
            if out_of_memory(error):
                raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UnsupportedError(
                f"model: torch.func cannot transform it ({reason}). Use engine='reference', or change that operation."
            ) from error
        grads = {
            name.removeprefix("model."): ParameterGradients([Direct(g.to(sum_dtype(g)))]) for name, g in found.items()
        }
        return sum_clipped(grads, self._bound, mask, self._strategies)


class BookkeepingEngine:
    """One forward pass, and one backward pass that computes no weight gradient.

    Layer inputs and output gradients give the norms; then one weighted product for each layer gives the clipped sum.
    Dropout and other randomness is drawn once, so norm and sum always belong to the same gradient.

    Attributes:
        written_out: parameters and operations that had no rule in the last pass.
        tokens: how many rows of a product one example had in the last pass, in the layers that did most of its work.

    Reference: Bu, Wang, Zha, Karypis, Differentially Private Optimization on Large Model at Small Cost, 2022.
    """

    name = "bookkeeping"

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, bound: BoundClipping, strategies: Strategies | None = None
    ) -> None:
        self._model, self._loss_fn, self._bound = model, loss_fn, bound
        self._strategies = strategies or Strategies()
        self.written_out: list[tuple[str, str]] = []
        self.tokens = 1
        self._found: dict[Hashable, tuple[list[list[Step]], bool]] = {}
        self._settings = ModelSettings(model)

    def __call__(self, batch: tuple[Any, ...], mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        with torch.enable_grad():
            grads = self._gradients(batch, count_examples(batch))
        with torch.no_grad():
            return sum_clipped(grads, self._bound, mask, self._strategies)

    def _gradients(self, batch: tuple[Any, ...], examples: int) -> dict[str, ParameterGradients]:
        *others, last = self.ways(batch, examples)
        for steps in others:
            with contextlib.suppress(OtherWayError):
                return self._follow(steps, batch, examples)
        return self._follow(last, batch, examples)

    def _follow(self, steps: list[Step], batch: tuple[Any, ...], examples: int) -> dict[str, ParameterGradients]:
        recorder = Recorder(trainable(self._model), examples, steps)
        with recorder:
            losses = losses_of(self._loss_fn, self._model, batch, examples)
        self.written_out = recorder.written_out
        grads = recorder.gradients(losses)
        self.tokens = max(recorder.work, key=lambda tokens: recorder.work[tokens], default=1)
        return grads

    def ways(self, batch: tuple[Any, ...], examples: int) -> list[list[Step]]:
        """What the probe finds for batches of this form, or its refusal.

        It runs once for each form; again only while it had nothing to see mixing by, such as one example alone.
        """
        form = self.form(batch, examples)
        ways, conclusive = self._found.get(form, ([], False))
        if not conclusive:
            rows = distinct_rows(batch, examples, PROBED)
            if not ways or len(rows) > 1:
                with self._settings.noting():
                    findings = self._probe(batch, examples, rows)
                ways = findings.ways
                self._keep(form, ways, conclusive=findings.finite and len(rows) > 1)
        return ways

    def settled(self, batch: tuple[Any, ...], examples: int) -> bool:
        """Whether no later batch of this form would be probed again: the probe has seen that examples do not mix."""
        return self._found.get(self.form(batch, examples), ([], False))[1]

    def _keep(self, form: Hashable, ways: list[list[Step]], *, conclusive: bool) -> None:
        self._found[form] = ways, conclusive
        if len(self._found) > _FORMS:  # a number that a schedule changes in every step makes a form of every step
            del self._found[next(iter(self._found))]

    def form(self, batch: tuple[Any, ...], examples: int) -> Hashable:
        """What decides, but for values, which operations a pass runs: the batch's form, and the model's settings.

        What trains does not change: clipping was bound to it.
        """
        return self._settings.number_for_probe(), form_of(batch, examples)

    @property
    def largest_norm(self) -> float:
        """What one example adds at most."""
        return self._bound.total

    def settings(self) -> int:
        """A number for what decides, beside the values of tensors, what the model computes."""
        return self._settings.number()

    @property
    def parts(self) -> tuple[nn.Module, LossFunction, BoundClipping, Strategies]:
        """What the engine is made of, for whoever traces it."""
        return self._model, self._loss_fn, self._bound, self._strategies

    def _probe(self, batch: tuple[Any, ...], examples: int, rows: list[int]) -> Findings:
        parameters = trainable(self._model)

        def losses(places: Sequence[int]) -> Tensor:
            few = take(batch, torch.tensor([rows[place % len(rows)] for place in places]), examples)
            return losses_of(self._loss_fn, self._model, few, len(places))

        with torch.enable_grad(), preserved_generators():
            with stirred(parameters):
                findings = probe(parameters, losses)
            return findings if findings.finite else probe(parameters, losses)


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
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return shared(tree)


ENGINES: dict[str, type[ReferenceEngine] | type[FunctionalEngine] | type[BookkeepingEngine]] = {
    engine.name: engine for engine in (ReferenceEngine, FunctionalEngine, BookkeepingEngine)
}
