"""Weighted sums that a program leaves open: it gives rows and weights, and the step's noise takes the sums on its way.

A sum over gradients that were written out is one operation at the end of a traced graph, which nothing else reads. It
waits for memory all the time, and the noise for arithmetic, so that the two together take little longer than one.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from tacit.core.row_sums import RowForm, RowSum
from tacit.gradients.graphs import storage_of, written_storages
from tacit.gradients.kernels import ADD_UP, CLEAR, weighted_rows

_ROWS = 32  # at most: a tile of the noise reads them one after another, and of short rows there are few tiles
_PARTS = 3  # of an open sum: rows, weights and flags


@dataclasses.dataclass(frozen=True)
class Results:
    """How a program's list of results is read: for each name a sum, or the parts of an open one; then the norms.

    Attributes:
        names: the parameters that have a sum.
        open: the shapes of those that are left open.
    """

    names: tuple[str, ...] = ()
    open: Mapping[str, torch.Size] = dataclasses.field(default_factory=dict)

    def with_places(self, results: Sequence[Tensor]) -> list[Tensor]:
        """The results, and behind them places for the open sums."""
        device = results[-1].device
        return [*results, *(torch.empty(shape, dtype=torch.float32, device=device) for shape in self.open.values())]

    def read(self, placed: Sequence[Tensor]) -> dict[str, Tensor | RowSum]:
        """Sums by name, some of them open."""
        count = len(placed) - len(self.open)
        rest, places = iter(placed[:count]), iter(placed[count:])
        return {
            name: RowSum(next(rest), next(rest), next(rest), next(places)) if name in self.open else next(rest)
            for name in self.names
        }

    def taken(self, results: Sequence[Tensor]) -> list[Tensor]:
        """A sum for each name, all taken, then the norms."""
        rest = iter(results)
        sums = [
            weighted_rows(next(rest), next(rest), next(rest)).reshape(self.open[name])
            if name in self.open
            else next(rest)
            for name in self.names
        ]
        return [*sums, next(rest)]


@dataclasses.dataclass(frozen=True)
class Finished:
    """The sums of a captured step, in the places that every launch writes to, and those that it leaves open."""

    sums: dict[str, Tensor]
    open_sums: dict[str, RowSum]

    @classmethod
    def of(cls, sums: Mapping[str, Tensor | RowSum]) -> "Finished":
        """All sums with their places."""
        open_sums = {name: value for name, value in sums.items() if isinstance(value, RowSum)}
        return cls({name: v.total if isinstance(v, RowSum) else v for name, v in sums.items()}, open_sums)

    @property
    def form(self) -> RowForm | None:
        """That of the open sums, where there are any."""
        return RowForm.of(list(self.open_sums.values())) if self.open_sums else None


def leave_open(graph: GraphModule, names: Sequence[str]) -> Results:
    """Has a graph give the parts of its last sums in their place, of the kind that most numbers are of: one launch
    takes sums of as many rows of one type.

    Only of those that lie in memory as the sum is computed: what is permuted, added to or written to afterwards stays
    as it is.
    """
    [output] = graph.graph.find_nodes(op="output")
    *given, norms = _first_argument(output)
    sums = dict(zip(names, given, strict=True))
    found = {name: node for name, node in _last_sums(graph, sums) if _can_wait(node)}
    sizes: collections.Counter[tuple[int, torch.dtype]] = collections.Counter()
    for node in found.values():
        sizes[_kind(node)] += _rows(node).numel()
    chosen = max(sizes, key=lambda kind: sizes[kind], default=None)
    waiting = {name: node for name, node in found.items() if _kind(node) == chosen}
    if waiting:
        parts = [waiting[name].args if name in waiting else (value,) for name, value in sums.items()]
        output.args = ([*(part for each in parts for part in each), norms],)
        graph.graph.eliminate_dead_code()
        graph.recompile()
    return Results(tuple(names), {name: sums[name].meta["val"].shape for name in waiting})


def _first_argument(node: Node) -> Any:
    return node.args[0]


def _last_sums(graph: GraphModule, sums: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
    """The operations whose results are given as they are, for each name that has one.

    Clearing rows that are not kept is no change: the sum leaves them out in any case.
    """
    nodes = [node for node in graph.graph.nodes if node.target is not CLEAR]
    changed = set().union(*map(written_storages, nodes))
    taken = {storage_of(node): node for node in nodes if node.target is ADD_UP}
    for name, value in sums.items():
        node = taken.get(storage_of(value))
        if node is None or not changed.isdisjoint({storage_of(node), storage_of(node.all_input_nodes[0])}):
            continue
        if _is_whole(value.meta["val"], node.meta["val"]):
            yield name, node


def _is_whole(value: Tensor, total: Tensor) -> bool:
    return value.is_contiguous() and value.numel() == total.numel() and value.dtype == total.dtype == torch.float32


def _can_wait(node: Node) -> bool:
    """Whether there are few rows, one behind the other, with a weight and a flag for each."""
    rows = _rows(node)
    return (
        rows.shape[0] <= _ROWS and rows.is_contiguous() and len(node.args) == _PARTS and isinstance(node.args[2], Node)
    )


def _rows(node: Node) -> Tensor:
    rows: Tensor = node.all_input_nodes[0].meta["val"]
    return rows


def _kind(node: Node) -> tuple[int, torch.dtype]:
    return _rows(node).shape[0], _rows(node).dtype
