"""Tensors that a GPU needs anew in every step, sent there in one copy."""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_ALIGNED = 64  # bytes, as kernels like the beginning of a tensor
_UNDER_WAY = 8  # parcels at most; the host waits where the device is so many steps behind

Span = tuple[int, int]


class Parcel:
    """Places on a GPU for tensors of fixed shapes, and the way there.

    What lies on the host travels together, from pinned memory, so that neither side waits for the other. What lies on a
    device is copied by itself, and what is declared constant only where it is another tensor than before.

    Attributes:
        places: one tensor on the device for each; they stay where they are.
    """

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        sizes = [0 if tensor.is_cuda else tensor.numel() * tensor.element_size() for tensor in tensors]
        ends = np.cumsum([-(-size // _ALIGNED) * _ALIGNED for size in sizes]).tolist()
        spans = [(start, start + size) for start, size in zip([0, *ends], sizes, strict=False)]
        self._there = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8, device=device)
        self.places = [
            torch.empty_like(tensor) if tensor.is_cuda else _view(self._there, span, tensor)
            for tensor, span in zip(tensors, spans, strict=True)
        ]
        self._constants: list[Tensor | None] = [None] * len(tensors)
        self._boxes = itertools.cycle([_Box(tensors, spans, self._there) for _ in range(_UNDER_WAY)])
        self.send(tensors)

    def send(self, tensors: Sequence[Tensor], *, constant: Tensor | None = None) -> None:
        """Copies these tensors to their places; ``constant`` is one of them that never changes."""
        box = next(self._boxes)
        box.wait()
        for number, tensor in enumerate(tensors):
            if not tensor.is_cuda:
                box.views[number].copy_(tensor)
            elif tensor is not constant or self._constants[number] is not tensor:
                self.places[number].copy_(tensor, non_blocking=True)
            self._constants[number] = tensor if tensor is constant else None
        box.send(self._there)


class _Box:
    """A place on the host to pack a parcel in, which is not touched again before the parcel has arrived."""

    def __init__(self, tensors: Sequence[Tensor], spans: Sequence[Span], there: Tensor) -> None:
        self._memory = torch.empty(there.numel(), dtype=torch.uint8, pin_memory=there.is_cuda)
        self.views = {
            number: _view(self._memory, span, tensor)
            for number, (tensor, span) in enumerate(zip(tensors, spans, strict=True))
            if not tensor.is_cuda
        }
        self._arrived = torch.cuda.Event() if there.is_cuda else None  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Until what was packed before has arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()

    def send(self, there: Tensor) -> None:
        """Starts the copy, in the order of the device's work."""
        if self.views:
            there.copy_(self._memory, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()


def _view(memory: Tensor, span: Span, tensor: Tensor) -> Tensor:
    return memory[span[0] : span[1]].view(tensor.dtype).view(tensor.shape)
