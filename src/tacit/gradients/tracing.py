"""The clipped sum of one batch shape as one graph of plain tensor operations, forward and backward pass included.

Book-keeping asks for no value on its way (no example's finiteness, no branch), so one pass over fake tensors sees all
of it: the model's operations, the backward pass to the layers' outputs, norms, factors and the weighted sums. What the
model decides by values cannot be traced and is refused; it then runs step by step as before.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.clipping import BoundClipping
from tacit.core.errors import TacitError, UnsupportedError
from tacit.gradients.batches import Index, Rows, count_examples, leaves, map_leaves
from tacit.gradients.clipped_sum import sum_clipped
from tacit.gradients.losses import LossFunction, laid_out_like, losses_of, trainable
from tacit.gradients.open_sums import Results, leave_open
from tacit.gradients.recorder import Recorder, Step
from tacit.gradients.strategies import Strategies
from tacit.gradients.tidying import clear_rows_in_place

Batch = tuple[Any, ...] | Rows
_ADDRESS = Tensor.data_ptr


@dataclasses.dataclass(frozen=True)
class Trace:
    """A graph and how to call it.

    Attributes:
        graph: takes the tensors of ``state``, those of the batch (or, for `Rows`, all records and the index), and the
            mask.
        state: where the model's parameters and buffers are found; every call takes those that are there now.
        results: how what it gives is read.
    """

    graph: GraphModule
    state: tuple[tuple[nn.Module, str], ...]
    results: Results

    @property
    def half_precision(self) -> bool:
        """Whether anything is computed in half precision, as under autocast."""
        values = (node.meta.get("val") for node in self.graph.graph.nodes)
        return any(isinstance(v, Tensor) and v.dtype in (torch.bfloat16, torch.float16) for v in values)

    def leaving_sums_open(self) -> "Trace":
        """The same graph, changed to leave sums to whoever takes them on the way; see `leave_open`."""
        return dataclasses.replace(self, results=leave_open(self.graph, self.results.names))

    def staying(self, batch: Batch) -> list[Tensor]:
        """The graph's first arguments, which lie in the same places from step to step."""
        records = batch.tensors if isinstance(batch, Rows) else ()
        return [*(_held(*place).detach() for place in self.state), *records]

    def addresses(self, batch: Batch) -> list[int]:
        """Where they lie."""
        held = [_held(module, name) for module, name in self.state]
        return [*map(_ADDRESS, held), *(map(_ADDRESS, batch.tensors) if isinstance(batch, Rows) else ())]

    def moving(self, batch: Batch, mask: Tensor) -> list[Tensor]:
        """The graph's other arguments, which are new in every step."""
        return [batch.index_on(mask.device), mask] if isinstance(batch, Rows) else [*leaves(batch), mask]

    def packed(self, batch: Batch, mask: Tensor) -> list[Tensor | Index]:
        """The same for a `Parcel`, which takes the index of rows as the array that it is."""
        return [batch.index, mask] if isinstance(batch, Rows) else [*leaves(batch), mask]


def _held(module: nn.Module, name: str) -> Tensor:
    """A module's parameter or buffer, from where the module keeps it: its attributes are slow, and this is every step's
    work.
    """
    held: Tensor | None = module._parameters.get(name)
    if held is None:
        held = module._buffers[name]
        assert held is not None
    return held


class _Computation(nn.Module):
    """The whole computation as a module, so that torch.func can run it with other tensors in the model's places."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        bound: BoundClipping,
        strategies: Strategies,
        steps: Sequence[Step],
    ) -> None:
        super().__init__()
        self.model = model
        self._loss_fn, self._bound, self._strategies, self._steps = loss_fn, bound, strategies, steps

    def forward(self, batch: tuple[Any, ...], mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        examples = count_examples(batch)
        parameters: dict[str, Tensor] = dict(trainable(self.model))
        with torch.enable_grad():
            recorder = Recorder(parameters, examples, self._steps)
            with recorder:
                losses = losses_of(self._loss_fn, self.model, batch, examples)
            grads = recorder.gradients(losses)
        with torch.no_grad():
            sums, norms = sum_clipped(grads, self._bound, mask, self._strategies, branch_free=True)
            return {name: laid_out_like(parameters[name], value) for name, value in sums.items()}, norms


def trace(
    model: nn.Module,
    loss_fn: LossFunction,
    bound: BoundClipping,
    strategies: Strategies,
    steps: Sequence[Step],
    example: tuple[Batch, Tensor],
) -> Trace:
    """Traces the clipped sum for batches of the shape of ``example``, which is a batch and its mask.

    Raises:
        UnsupportedError: the model or its loss decides by values, or does what tracing cannot follow.
    """
    batch, mask = example
    computation = _Computation(model, loss_fn, bound, strategies, steps)
    state = {**dict(computation.named_parameters()), **dict(computation.named_buffers())}
    requires_grad = {name: tensor.requires_grad for name, tensor in state.items()}
    homes = tuple((computation.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in state)
    found: list[str] = []

    def run(*inputs: Tensor) -> list[Tensor]:
        tensors = iter(inputs)
        swapped = {name: next(tensors).detach().requires_grad_(requires_grad[name]) for name in state}
        placed = _take_batch(batch, tensors)
        sums, norms = torch.func.functional_call(computation, swapped, (placed, next(tensors)))
        found[:] = list(sums)
        return [*sums.values(), norms]

    trace = Trace(GraphModule({}, Graph()), homes, Results())
    values = [*trace.staying(batch), *trace.moving(batch, mask)]
    try:
        graph = make_fx(run, tracing_mode="fake", _allow_non_fake_inputs=True)(*values)
    except TacitError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UnsupportedError(
            f"model: cannot be compiled ({reason}), so it runs step by step. Keep Python code that depends on tensors' "
            "values out of its forward pass, or set compile=False."
        ) from error
    clear_rows_in_place(graph)
    return dataclasses.replace(trace, graph=graph, results=Results(tuple(found)))


def _take_batch(batch: Batch, tensors: Iterator[Tensor]) -> tuple[Any, ...]:
    """A batch like this one from the graph's arguments."""
    if isinstance(batch, Rows):
        records = [next(tensors) for _ in batch.tensors]
        index = next(tensors)
        return tuple(record.index_select(0, index) for record in records)
    placed: tuple[Any, ...] = map_leaves(lambda _: next(tensors), batch)
    return placed


Program = Callable[[list[Tensor]], list[Tensor]]
"""A compiled graph: the same arguments and results as the graph, in lists."""
