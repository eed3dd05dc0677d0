"""Tensors that a GPU needs anew in every step, and fetches from the host by itself."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.gradients.batches import Index
from tacit.gradients.kernels import fetch_box_

_ALIGNED = 128  # bytes: wide loads need the beginning of a tensor so, and the kernel that of a box
_UNDER_WAY = 8  # parcels at most; the host waits where the device is that many steps behind, or up to three fewer
_HALF = _UNDER_WAY // 2  # boxes that are waited for together: asking for each takes time in every step
_READERS = 132  # programs that fetch a box together: one for each processor of an H100 or H200

Span = tuple[int, int]


class Parcel:
    """Places on a device for tensors of fixed shapes, and the way there.

    What lies on the host, arrays of numpy among it, is packed into the next of a ring of boxes in pinned memory. From
    there `fetch`, a launch that a CUDA graph may hold, takes it to its places. The device counts the parcels by itself
    and so knows which box is next: nothing of the launch changes from step to step, and neither side waits for the
    other.

    Every box bears the number of its parcel, and a device that finds another one in it stops with an error. No step is
    ever taken with the records, or the noise, of another.

    What lies on a device is copied by itself, and what is declared constant only where it is another tensor than
    before.

    Args:
        letter: some bytes that go with the tensors, always as many of them, whole words.

    Attributes:
        places: one tensor on the device for each; they stay where they are. The first parcel is there at once.
        letter: where the letter comes to, as int32.
    """

    def __init__(self, contents: Sequence[Tensor | Index], device: torch.device, letter: bytes = b"") -> None:
        self._fetched: list[torch.cuda.Event] = []
        tensors = [_as_tensor(each) for each in contents]
        sizes = [0 if tensor.is_cuda else tensor.numel() * tensor.element_size() for tensor in tensors]
        sizes.append(len(letter))
        ends = np.cumsum([_ALIGNED, *(-(-size // _ALIGNED) * _ALIGNED for size in sizes)]).tolist()
        spans = [(start, start + size) for start, size in zip(ends, sizes, strict=False)]
        words = ends[-1] // 8
        self._there = torch.zeros(words, dtype=torch.int64, device=device)
        self._boxes = torch.zeros(_UNDER_WAY, words, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._counts = torch.ones(_READERS, dtype=torch.int64, device=device)  # an empty box bears 0, which never comes
        self._number: int | None = None
        self.places = [
            torch.empty_like(tensor) if tensor.is_cuda else _view(self._there, span, tensor)
            for tensor, span in zip(tensors, spans[:-1], strict=True)
        ]
        self.letter = _bytes(self._there, spans[-1]).view(torch.int32)
        self._constants: list[Tensor | None] = [None] * len(tensors)
        self._ring = [_Box.of(memory, contents, spans) for memory in self._boxes]
        if device.type == "cuda":
            self._fetched = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        self.send(contents, self.fetch, letter)

    def send(
        self,
        contents: Sequence[Tensor | Index],
        launch: Callable[[], object],
        letter: bytes = b"",
        *,
        constant: Tensor | None = None,
    ) -> None:
        """Packs these contents and has them fetched; ``constant`` is one of them that never changes.

        Args:
            launch: runs `fetch` once, or always the same graph that holds it once, on the device's current stream.
            letter: as long as the first one.
        """
        number = self._fetched_so_far() if self._number is None else self._number
        turn = number % _UNDER_WAY
        box, (half, place_in_half) = self._ring[turn], divmod(turn, _HALF)
        if place_in_half == 0:
            self._wait_for(half)
        for place, each in enumerate(contents):
            put = box.puts.get(place)
            if put is not None:  # as the first parcel had it, wherever this one's tensor lies
                put(each)
            elif each is not constant or self._constants[place] is not each:
                self.places[place].copy_(_as_tensor(each), non_blocking=True)
                self._constants[place] = each if each is constant else None
        box.letter[:] = letter
        box.label[0] = number
        self._number = None
        launch()
        if place_in_half == _HALF - 1:
            self._mark(half)
        self._number = number + 1

    def fetch(self) -> None:
        """Takes the next parcel to its places."""
        fetch_box_(self._there, self._boxes, self._counts)

    def __del__(self) -> None:
        """Waits for the parcels under way: whoever gets the boxes' memory next may write to it at once.

        A capture may not be disturbed by waiting, and has begun by waiting for all that was under way.
        """
        if self._fetched and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize(self._there.device)

    def _fetched_so_far(self) -> int:
        """Who broke off the last launch, with an interrupt or out of memory, has left open whether it ran: ask, when
        all streams are done.
        """
        if self._there.is_cuda:
            torch.cuda.synchronize(self._there.device)
        return int(self._counts[0])

    def _wait_for(self, half: int) -> None:
        """Until the parcels were fetched that were packed in these boxes before.

        The mark is that of the last one. Launches of one graph run one after the other on whatever streams, so those
        before it are done too; and whoever broke off a launch has waited since for all that ran.
        """
        if self._fetched:
            self._fetched[half].synchronize()

    def _mark(self, half: int) -> None:
        """The launches that fetch these boxes are under way."""
        if self._fetched:
            place = torch._C._cuda_getCurrentStream(self._there.device.index)
            self._fetched[half].record(_stream_of(place))


@dataclasses.dataclass(frozen=True)
class _Box:
    """A place on the host to pack a parcel in.

    Attributes:
        label: the number of its parcel, in the box's first word.
        puts: for each content that lies on the host, what puts another one in its place.
        letter: the place for the letter.
    """

    label: npt.NDArray[np.int64]
    puts: dict[int, Callable[[Any], object]]
    letter: memoryview

    @classmethod
    def of(cls, memory: Tensor, contents: Sequence[Tensor | Index], spans: Sequence[Span]) -> "_Box":
        puts: dict[int, Callable[[Any], object]] = {}
        for place, (each, span) in enumerate(zip(contents, spans[:-1], strict=True)):
            if isinstance(each, np.ndarray):
                puts[place] = functools.partial(np.copyto, _view(memory, span, _as_tensor(each)).numpy())
            elif not each.is_cuda:
                puts[place] = _view(memory, span, each).copy_
        return cls(memory.numpy(), puts, _bytes(memory, spans[-1]).numpy().data)


def _as_tensor(each: Tensor | Index) -> Tensor:
    return torch.from_numpy(each) if isinstance(each, np.ndarray) else each


@functools.lru_cache(maxsize=64)
def _stream_of(place: tuple[int, int, int]) -> torch.cuda.Stream:
    """The stream of these numbers, as torch's own question after the current one answers, which makes it anew."""
    stream, device, kind = place
    return torch.cuda.Stream(stream_id=stream, device_index=device, device_type=kind)  # type: ignore[no-untyped-call]


def _view(memory: Tensor, span: Span, tensor: Tensor) -> Tensor:
    return _bytes(memory, span).view(tensor.dtype).view(tensor.shape)


def _bytes(memory: Tensor, span: Span) -> Tensor:
    return memory.view(torch.uint8)[span[0] : span[1]]
