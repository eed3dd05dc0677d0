"""A batch is a tree of tensors (tuples, lists, mappings) whose first dimension counts examples.

A tensor whose first dimension is 1 in a batch of more is shared by all examples, as position numbers often are.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.core.errors import InputError

_SEARCHED = 256

Index = npt.NDArray[np.int64]
"""Numbers of rows as a sampler gives them: on the host."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """A batch that is not gathered yet: these rows of tensors that stay where they are.

    A compiled step gathers them itself, so that only their numbers travel.

    Attributes:
        tensors: one row a record, on the device of the model.
        index: the rows of the batch, as they were drawn: on the host.
    """

    tensors: tuple[Tensor, ...]
    index: Index

    def gather(self) -> tuple[Tensor, ...]:
        """The batch itself."""
        index = self.index_on(self.tensors[0].device)
        return tuple(tensor.index_select(0, index) for tensor in self.tensors)

    def index_on(self, device: torch.device) -> Tensor:
        """The index as a tensor there."""
        return torch.from_numpy(self.index).to(device, non_blocking=True)

    def rows_in(self, size: int) -> int:
        """How many rows so many bytes hold; one at least."""
        return max(1, size // max(1, sum(tensor[:1].nbytes for tensor in self.tensors)))


def leaves(tree: Any) -> Iterator[Tensor]:
    """All tensors of the tree, in order."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from leaves(value)


def numbers_in(tree: Any) -> Iterator[float]:
    """All Python numbers of the tree, in order."""
    if isinstance(tree, bool | int | float):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from numbers_in(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from numbers_in(value)


def map_leaves(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """The same tree with ``function`` applied to every tensor; everything else is kept as it is."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_leaves(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, value) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(map_leaves(function, value) for value in tree)
    return tree


def count_examples(batch: Any) -> int:
    """How many examples the batch holds: the first dimension that all tensors share, but for those of length 1."""
    sizes = {leaf.shape[0] if leaf.dim() else -1 for leaf in leaves(batch)}
    if not sizes:
        raise InputError(f"batch={batch!r}: must contain tensors. Pass the inputs and targets of a batch as tensors.")
    if -1 in sizes:
        raise InputError(
            "batch: holds a tensor with no dimension. Give every tensor a first dimension that counts examples, or "
            "pass the value as a Python number."
        )
    several = sizes - {1}
    if len(several) > 1:
        raise InputError(
            f"batch: first dimensions are {sorted(sizes)}. All tensors of a batch must have one number of examples, "
            "or 1 where a tensor is shared by all of them."
        )
    return several.pop() if several else 1


def take(batch: Any, index: Tensor, examples: int) -> Any:
    """The examples with these numbers, as a batch; shared tensors stay whole."""

    def rows(leaf: Tensor) -> Tensor:
        return leaf[index.to(leaf.device)] if leaf.shape[0] == examples else leaf

    return map_leaves(rows, batch)


def gathered(batch: Any) -> Any:
    """The batch as tensors of its own."""
    return batch.gather() if isinstance(batch, Rows) else batch


def split(batch: Any, size: int, examples: int) -> Iterator[tuple[Any, slice]]:
    """The batch in consecutive pieces of at most ``size`` examples, with the place of each piece."""
    for start in range(0, examples, size):
        place = slice(start, min(start + size, examples))
        yield _narrow(batch, place, examples), place


def _narrow(batch: Any, place: slice, examples: int) -> Any:
    if isinstance(batch, Rows):
        return Rows(batch.tensors, batch.index[place])
    return map_leaves(lambda leaf: leaf[place] if leaf.shape[0] == examples else leaf, batch)


def form_of(tree: Any, examples: int) -> Hashable:
    """What decides which way a model takes through its code, but for values: structure, shapes, types and flags."""
    if isinstance(tree, Tensor):
        return tree.shape[0] == examples, tree.shape[1:], tree.dtype
    if isinstance(tree, Mapping):
        return tuple((key, form_of(value, examples)) for key, value in tree.items())
    if isinstance(tree, list | tuple):
        return tuple(form_of(value, examples) for value in tree)
    return tree if tree is None or isinstance(tree, bool | int | str) else type(tree).__qualname__


def distinct_rows(batch: Any, examples: int, count: int) -> list[int]:
    """Up to ``count`` examples that differ from one another, finite ones first; at least one of a batch with any."""
    own = [leaf for leaf in leaves(batch) if leaf.shape[0] == examples]
    finite = torch.ones(examples, dtype=torch.bool, device="cpu")
    for leaf in own:
        if leaf.is_floating_point():
            finite &= leaf.isfinite().reshape(examples, -1).all(1).cpu()
    chosen: list[int] = []
    for row in torch.argsort(finite, descending=True, stable=True)[:_SEARCHED].tolist():
        if all(any(not torch.equal(leaf[row], leaf[other]) for leaf in own) for other in chosen):
            chosen.append(row)
        if len(chosen) == count:
            break
    return chosen


def device_of(batch: Any) -> torch.device:
    """The device of the first tensor."""
    return next(leaves(batch)).device
