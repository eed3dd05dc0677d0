r"""The clipped sums of many models of one kind at once: book-keeping of one model, batched over all of them.

The whole clipped sum of one model is traced as a graph of plain operations (`tacit.gradients.tracing`), and the graph
runs under ``vmap`` with every model's own tensors and its own batch. So norms, their allowance for rounding, factors
and sums are those of the engine that trains one model: nothing is derived a second time.

What vmap cannot batch is refused, and so are convolutions: those of several models become one grouped convolution,
which takes longer on a CPU than one model after another.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.fx import GraphModule

from tacit.clipping import Clipping
from tacit.core.errors import TacitError, UnsupportedError
from tacit.core.privacy import Neighbours
from tacit.gradients.engines import BookkeepingEngine
from tacit.gradients.kernels import twins
from tacit.gradients.losses import LossFunction, sum_dtype, trainable
from tacit.gradients.refusals import refuse_mixing_layers
from tacit.gradients.tidying import leave_given_rows
from tacit.gradients.tracing import trace

_TOLERANCE = 1e-3  # of a sum's norm; the order of additions differs, and nothing else


def _leave(values: Tensor) -> None:
    """`tacit.gradients.settling.settle_`, which is for compilers."""


_PLAIN: Mapping[object, Callable[..., Any]] = {  # operators of our own that vmap does not know
    torch.ops.tacit.settle_.default: _leave,
    torch.ops.tacit.zero_rows_.default: twins.zero_rows_,
    torch.ops.tacit.weighted_rows.default: twins.weighted_rows,
    torch.ops.tacit.outer_sum.default: twins.outer_sum,
}


class StackedGrad:
    r"""For every model k the sum :math:`\sum_{i \in B_k} \mathrm{clip}(\nabla \ell_i(\theta_k))` over its own batch.

    Guarantee: that of `ClippedGrad` for each model by itself. One model's sum does not depend on another's batch.

    Args:
        models: of one kind; their tensors are looked up at every call, so that they may train in between.
        loss_fn: one loss for each example.
        clipping: how an example's gradient is bounded.
        batch: tensors ``[models, rows, …]``; every batch to come must have their shapes. Each model's sum over it is
            compared with its own engine's. Numbers in this and all later batches must be finite.

    Raises:
        UnsupportedError: the models cannot be stacked, with the reason.
    """

    def __init__(
        self, models: Sequence[nn.Module], loss_fn: LossFunction, clipping: Clipping, batch: tuple[Tensor, ...]
    ) -> None:
        self._models = list(models)
        first = self._models[0]
        refuse_mixing_layers(first)
        _check_one_kind(self._models)
        self._bound = clipping.bind({name: p.numel() for name, p in trainable(first).items()})
        engines = [BookkeepingEngine(model, loss_fn, self._bound) for model in self._models]
        mask = torch.ones(batch[0].shape[:2], dtype=torch.bool, device=batch[0].device)
        own = tuple(tensor[0] for tensor in batch)
        ways = engines[0].ways(own, len(own[0]))
        if len(ways) != 1:
            raise UnsupportedError("model: takes several ways through its code, and models that differ cannot stack.")
        traced = trace(*engines[0].parts, ways[0], (own, mask[0]))
        self._names = traced.results.names
        leave_given_rows(traced.graph)
        self._graph = _plain(traced.graph)
        paths = {module: path for path, module in first.named_modules()}
        self._state = [(paths[module], name) for module, name in traced.state]
        self._compare(engines, batch, mask)

    def sensitivity(self, neighbours: Neighbours) -> float:
        """The L2 distance between the sums of two neighbouring batches of one model, at most."""
        return self._bound.sensitivity(neighbours)

    def accumulate(self, chunks: Iterable[tuple[tuple[Tensor, ...], Tensor]]) -> dict[str, Tensor]:
        """The sums ``[models, …]`` over lots that come in chunks: tensors ``[models, rows, …]`` and a mask of padding.

        Every trainable parameter has a sum, zeros where it was not used; no chunks give zeros.
        """
        total: dict[str, Tensor] = {}
        state = self._stacked_state()
        for batch, mask in chunks:
            for name, value in self._sums(state, batch, mask).items():
                total[name] = total[name].add_(value) if name in total else value.contiguous()
        for name, parameter in trainable(self._models[0]).items():
            if name not in total:
                shape = len(self._models), *parameter.shape
                total[name] = torch.zeros(shape, dtype=sum_dtype(parameter), device=parameter.device)
        return total

    @torch.no_grad()
    def _sums(self, state: Sequence[Tensor], batch: tuple[Tensor, ...], mask: Tensor) -> dict[str, Tensor]:
        *sums, _norms = vmap(self._graph)(*state, *batch, mask)
        return dict(zip(self._names, sums, strict=True))

    def _stacked_state(self) -> list[Tensor]:
        """What the graph takes first, of all models."""
        return [
            torch.stack([getattr(model.get_submodule(path), name).detach() for model in self._models])
            for path, name in self._state
        ]

    def _compare(self, engines: Sequence[BookkeepingEngine], batch: tuple[Tensor, ...], mask: Tensor) -> None:
        """Every model's sum must be its own engine's: whatever else models differ in would show here."""
        try:
            found = self._sums(self._stacked_state(), batch, mask)
        except TacitError:
            raise
        except (RuntimeError, NotImplementedError, ValueError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UnsupportedError(f"model: vmap cannot batch it ({reason}).") from error
        for number, engine in enumerate(engines):
            expected, _ = engine(tuple(tensor[number] for tensor in batch), mask[number])
            size = _norm(expected.values())
            distance = _norm(found[name][number] - value for name, value in expected.items())
            if not distance <= _TOLERANCE * (size + _TOLERANCE * self._bound.total):
                raise UnsupportedError(f"model {number}: the stack's sum differs from that of the model alone.")


def _check_one_kind(models: Sequence[nn.Module]) -> None:
    def form(model: nn.Module) -> object:
        tensors = [*model.named_parameters(), *model.named_buffers()]
        shapes = [(name, t.shape, t.dtype, t.device, t.requires_grad) for name, t in tensors]
        return shapes, [(name, type(module), module.training) for name, module in model.named_modules()]

    if any(form(model) != form(models[0]) for model in models[1:]):
        raise UnsupportedError("models: are not of one kind, with the same layers, shapes and modes.")


def _plain(graph: GraphModule) -> GraphModule:
    """The graph with operators that vmap can batch, or a refusal."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default):
        raise UnsupportedError(f"{node.name}: convolutions of several models at once are slower than one by one.")
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target in _PLAIN:
            node.target = _PLAIN[node.target]
        elif getattr(node.target, "namespace", None) == "tacit":
            raise UnsupportedError(f"{node.target}: is made for one model at a time.")
    graph.recompile()
    return graph


def _norm(tensors: Iterable[Tensor]) -> float:
    return float(torch.stack([torch.linalg.vector_norm(tensor) for tensor in tensors]).norm())
