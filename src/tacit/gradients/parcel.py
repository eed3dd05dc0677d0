"""Tensors that a GPU needs anew in every step, and fetches from the host by itself."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.gradients.kernels import fetch_box_

_ALIGNED = 128  # bytes: wide loads need the beginning of a tensor so, and the kernel that of a box
_UNDER_WAY = 8  # parcels at most; the host waits where the device is so many steps behind
_READERS = 132  # programs that fetch a box together: one for each processor of an H100 or H200

Span = tuple[int, int]


class Parcel:
    """Places on a device for tensors of fixed shapes, and the way there.

    What lies on the host is packed into the next of a ring of boxes in pinned memory. From there `fetch`, a launch that
    a CUDA graph may hold, takes it to its places. The device counts the parcels by itself and so knows which box is
    next: nothing of the launch changes from step to step, and neither side waits for the other.

    Every box bears the number of its parcel, and a device that finds another one in it stops with an error. No step is
    ever taken with the records, or the noise, of another.

    What lies on a device is copied by itself, and what is declared constant only where it is another tensor than
    before.

    Attributes:
        places: one tensor on the device for each; they stay where they are. The first parcel is there at once.
    """

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        self._ring: list[_Box] = []
        sizes = [0 if tensor.is_cuda else tensor.numel() * tensor.element_size() for tensor in tensors]
        ends = np.cumsum([_ALIGNED, *(-(-size // _ALIGNED) * _ALIGNED for size in sizes)]).tolist()
        spans = [(start, start + size) for start, size in zip(ends, sizes, strict=False)]
        words = ends[-1] // 8
        self._there = torch.zeros(words, dtype=torch.int64, device=device)
        self._boxes = torch.zeros(_UNDER_WAY, words, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._counts = torch.ones(_READERS, dtype=torch.int64, device=device)  # an empty box bears 0, which never comes
        self._number: int | None = None
        self.places = [
            torch.empty_like(tensor) if tensor.is_cuda else _view(self._there, span, tensor)
            for tensor, span in zip(tensors, spans, strict=True)
        ]
        self._constants: list[Tensor | None] = [None] * len(tensors)
        self._ring = [_Box.of(memory, tensors, spans, device) for memory in self._boxes]
        self.send(tensors, self.fetch)

    def send(self, tensors: Sequence[Tensor], launch: Callable[[], object], *, constant: Tensor | None = None) -> None:
        """Packs these tensors and has them fetched; ``constant`` is one of them that never changes.

        Args:
            launch: runs `fetch` once, or a graph that holds it once, on the device's current stream.
        """
        # Who broke off the last launch, with an interrupt or out of memory, has left open whether it ran: ask.
        number = int(self._counts[0]) if self._number is None else self._number
        box = self._ring[number % _UNDER_WAY]
        box.wait()
        for place, tensor in enumerate(tensors):
            if place in box.views:  # as the first parcel had it, wherever this one's tensor lies
                box.views[place].copy_(tensor)
            elif tensor is not constant or self._constants[place] is not tensor:
                self.places[place].copy_(tensor, non_blocking=True)
            self._constants[place] = tensor if tensor is constant else None
        box.label[0] = number
        self._number = None
        launch()
        box.left(self._there.device)
        self._number = number + 1

    def fetch(self) -> None:
        """Takes the next parcel to its places."""
        fetch_box_(self._there, self._boxes, self._counts)

    def __del__(self) -> None:
        """Waits for the parcels under way: whoever gets the boxes' memory next may write to it at once.

        A capture may not be disturbed by waiting, and has begun by waiting for all that was under way.
        """
        if self._ring and self._there.is_cuda and not torch.cuda.is_current_stream_capturing():
            for box in self._ring:
                box.wait()


@dataclasses.dataclass(frozen=True)
class _Box:
    """A place on the host to pack a parcel in, which is not touched again before the parcel was fetched.

    Attributes:
        label: the number of its parcel, in the box's first word.
        views: for each tensor that lies on the host, the place to put it.
    """

    label: npt.NDArray[np.int64]
    views: dict[int, Tensor]
    fetched: torch.cuda.Event | None

    @classmethod
    def of(cls, memory: Tensor, tensors: Sequence[Tensor], spans: Sequence[Span], device: torch.device) -> "_Box":
        views = {
            place: _view(memory, span, tensor)
            for place, (tensor, span) in enumerate(zip(tensors, spans, strict=True))
            if not tensor.is_cuda
        }
        event = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        return cls(memory.numpy(), views, event)

    def wait(self) -> None:
        """Until what was packed before was fetched."""
        if self.fetched is not None:
            self.fetched.synchronize()

    def left(self, device: torch.device) -> None:
        """The launch that fetches it is under way."""
        if self.fetched is not None:
            self.fetched.record(_stream_of(torch._C._cuda_getCurrentStream(device.index)))


@functools.lru_cache(maxsize=64)
def _stream_of(place: tuple[int, int, int]) -> torch.cuda.Stream:
    """The stream of these numbers, as torch's own question after the current one answers, which makes it anew."""
    stream, device, kind = place
    return torch.cuda.Stream(stream_id=stream, device_index=device, device_type=kind)  # type: ignore[no-untyped-call]


def _view(memory: Tensor, span: Span, tensor: Tensor) -> Tensor:
    return memory.view(torch.uint8)[span[0] : span[1]].view(tensor.dtype).view(tensor.shape)
