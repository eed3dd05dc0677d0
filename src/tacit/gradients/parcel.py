"""Tensors that a GPU needs anew in every step, sent there in one copy."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_ALIGNED = 64  # bytes, as kernels like the beginning of a tensor


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
        self._spans = [(start, start + size) for start, size in zip([0, *ends], sizes, strict=False)]
        self._there = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8, device=device)
        self.places = [
            torch.empty_like(tensor) if tensor.is_cuda else self._there[start:end].view(tensor.dtype).view(tensor.shape)
            for tensor, (start, end) in zip(tensors, self._spans, strict=True)
        ]
        self._constants: list[Tensor | None] = [None] * len(tensors)
        self.send(tensors)

    def send(self, tensors: Sequence[Tensor], *, constant: Tensor | None = None) -> None:
        """Copies these tensors to their places; ``constant`` is one of them that never changes."""
        together = torch.empty(len(self._there), dtype=torch.uint8, pin_memory=self._there.is_cuda)
        here = together.numpy()
        for number, (tensor, (start, end)) in enumerate(zip(tensors, self._spans, strict=True)):
            if not tensor.is_cuda:
                here[start:end] = tensor.contiguous().view(-1).view(torch.uint8).numpy()
            elif tensor is not constant or self._constants[number] is not tensor:
                self.places[number].copy_(tensor, non_blocking=True)
            self._constants[number] = tensor if tensor is constant else None
        if len(together):
            self._there.copy_(together, non_blocking=True)
