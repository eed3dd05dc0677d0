"""A batch in pieces where it does not fit into memory as one: a clipped sum is over examples, so its parts add up."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tacit.gradients.batches import Rows, gathered, split

if TYPE_CHECKING:
    from tacit.gradients.engines import Engine


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


class Pieces:
    """Runs an engine on a whole batch, or on as many examples at once as have fitted so far.

    For an engine that is asked while another one is made ready, which needs less memory and takes the batch as one.
    """

    def __init__(self) -> None:
        self._size: int | None = None

    @property
    def needed(self) -> bool:
        """Whether a batch had to be cut so far: memory is short."""
        return self._size is not None

    def __call__(
        self, engine: "Engine", batch: tuple[Any, ...] | Rows, mask: Tensor, *, most: int | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The engine's sums and norms, ``most`` examples at once or all, rows gathered piece by piece; memory that not
        even one example fits into is an error.
        """
        while True:
            size = min(len(mask), most or len(mask), self._size or len(mask))
            try:
                return _in_pieces(engine, batch, mask, size)
            except RuntimeError as error:
                if not out_of_memory(error) or size <= 1:
                    raise
            self._size = (size + 1) // 2


def _in_pieces(
    engine: "Engine", batch: tuple[Any, ...] | Rows, mask: Tensor, size: int
) -> tuple[dict[str, Tensor], Tensor]:
    if size >= len(mask):
        return engine(gathered(batch), mask)
    total: dict[str, Tensor] = {}
    norms = []
    for piece, place in split(batch, size, len(mask)):
        sums, found = engine(gathered(piece), mask[place])
        norms.append(found)
        for name, value in sums.items():
            total[name] = total[name].add_(value) if name in total else value
    return total, torch.cat(norms)
