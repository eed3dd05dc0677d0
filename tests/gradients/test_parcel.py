"""Tensors arrive where they belong, whatever they are, however often they travel and whatever comes between."""

import contextlib
import functools
import random
import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest
import torch
from compiled_checks import said_on_device
from torch import Tensor

from tacit.gradients import parcel as parcel_module
from tacit.gradients.kernels import fetch_box_
from tacit.gradients.parcel import Parcel

CPU = torch.device("cpu")
ROUNDS = 20  # more than there are boxes


def contents() -> list[Tensor]:
    return [torch.arange(5), torch.tensor([True, False, True]), torch.randn(2, 3), torch.tensor(7), torch.zeros(0)]


def broken_off(*before: Callable[[], object]) -> Callable[[], object]:
    """A launch that is interrupted after these."""

    def launch() -> None:
        for call in before:
            call()
        raise KeyboardInterrupt

    return launch


def test_the_first_parcel_is_there_at_once() -> None:
    first = contents()
    assert all(torch.equal(place, tensor) for place, tensor in zip(Parcel(first, CPU).places, first, strict=True))


def test_places_hold_what_was_sent_last() -> None:
    parcel = Parcel(contents(), CPU)
    places = [place.data_ptr() for place in parcel.places]
    for _ in range(ROUNDS):
        sent = [torch.randn(tensor.shape).to(tensor.dtype) for tensor in contents()]
        parcel.send(sent, parcel.fetch)
        for place, tensor in zip(parcel.places, sent, strict=True):
            assert place.dtype == tensor.dtype
            assert torch.equal(place, tensor)
    assert [place.data_ptr() for place in parcel.places] == places


def test_arrays_are_packed_as_tensors_are() -> None:
    parcel = Parcel([np.arange(5), torch.arange(3)], CPU)
    for number in range(ROUNDS):
        sent = np.arange(5) * number
        parcel.send([sent, torch.arange(3) + number], parcel.fetch)
        sent[:] = -1  # it may be used for something else
        assert parcel.places[0].dtype == torch.int64
        assert parcel.places[0].tolist() == [0, number, 2 * number, 3 * number, 4 * number]
        assert parcel.places[1].tolist() == [number, number + 1, number + 2]


def test_a_parcel_stays_as_it_was_packed_until_it_is_fetched() -> None:
    """As on a GPU, which is some steps behind the host."""
    parcel = Parcel([torch.tensor(0)], CPU)
    for number in range(1, 8):
        parcel.send([torch.tensor(number)], lambda: None)
    for number in range(1, 8):
        parcel.fetch()
        assert parcel.places[0] == number


def test_a_letter_goes_with_every_parcel() -> None:
    parcel = Parcel([torch.arange(3)], CPU, bytes(range(8)))
    place = parcel.letter.data_ptr()
    assert parcel.letter.tolist() == [0x03020100, 0x07060504]
    for number in range(ROUNDS):
        parcel.send([torch.arange(3) + number], parcel.fetch, bytes([number] * 4 + [255] * 4))
        assert parcel.letter.tolist() == [0x01010101 * number, -1]
        assert parcel.places[0].tolist() == [number, number + 1, number + 2]
    assert parcel.letter.data_ptr() == place


@pytest.mark.parametrize("size", [0, 4, 12])
def test_a_letter_of_another_length_is_not_sent(size: int) -> None:
    parcel = Parcel([torch.arange(3)], CPU, bytes(8))
    with pytest.raises(ValueError, match="assignment"):
        parcel.send([torch.arange(3)], parcel.fetch, bytes(size))
    parcel.send([torch.arange(3)], parcel.fetch, bytes([1] * 8))
    assert parcel.letter.tolist() == [0x01010101] * 2


class Device:
    """Runs what was launched when it is waited for, or some of it when it has time."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], object]] = []
        self.launched = self.done = 0

    def launch(self, work: Callable[[], object]) -> None:
        self.queue.append(work)
        self.launched += 1

    def run(self, until: int) -> None:
        while self.done < until:
            self.queue.pop(0)()
            self.done += 1


class Mark:
    """An event: waiting for it is waiting for all that was launched before it."""

    def __init__(self, device: Device) -> None:
        self._device, self._at = device, 0

    def record(self) -> None:
        self._at = self._device.launched

    def synchronize(self) -> None:
        self._device.run(self._at)


class BehindParcel(Parcel):
    """Whose device is some steps behind the host."""

    def __init__(self, tensors: list[Tensor], letter: bytes) -> None:
        super().__init__(tensors, CPU, letter)
        self.device = Device()
        self._fetched = [Mark(self.device) for _ in range(2)]  # type: ignore[misc]

    def fetch(self) -> None:
        """As it is; from here, since interrupts of the host do not reach the device."""
        fetch_box_(self._there, self._boxes, self._counts)

    def _fetched_so_far(self) -> int:
        if hasattr(self, "device"):
            self.device.run(self.device.launched)
        return super()._fetched_so_far()

    def _mark(self, half: int) -> None:
        if self._fetched:
            self._fetched[half].record()

    def __del__(self) -> None:
        pass


def interrupt_at(line: int) -> Callable[..., object]:
    """For sys.settrace: an interrupt before this line of those that a parcel's code runs."""
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal seen
        if frame.f_code.co_filename != parcel_module.__file__:
            return None
        if event == "line":
            seen += 1
            if seen == line:
                raise KeyboardInterrupt
        return trace

    return trace


def count_wrong_arrivals(kind: type[BehindParcel], seed: int) -> int:
    """How many parcels are not what was sent, with interrupts here and there, and a device that lags behind."""
    choose, parcel, wrong = random.Random(seed), kind([torch.zeros(2, dtype=torch.int64)], bytes(8)), 0
    before = sys.gettrace()

    def fetch(number: int) -> None:
        nonlocal wrong
        parcel.fetch()
        wrong += [*parcel.places[0].tolist(), *parcel.letter.tolist()] != [number, -number, number, number]

    for number in range(1, 50):
        launch = functools.partial(parcel.device.launch, functools.partial(fetch, number))
        with contextlib.suppress(KeyboardInterrupt):
            try:
                sys.settrace(interrupt_at(choose.randrange(1, 40)) if choose.random() < 0.3 else before)
                parcel.send([torch.tensor([number, -number])], launch, number.to_bytes(4, "little") * 2)
            finally:
                sys.settrace(before)
        if choose.random() < 0.5:
            parcel.device.run(min(parcel.device.launched, parcel.device.done + choose.randrange(6)))
    parcel.device.run(parcel.device.launched)
    return wrong


def test_no_box_is_packed_anew_before_it_was_fetched() -> None:
    assert sum(count_wrong_arrivals(BehindParcel, seed) for seed in range(60)) == 0


def never(self: Parcel, half: int) -> None:
    del self, half


@pytest.mark.parametrize("name", ["_wait_for", "_mark"])
def test_boxes_that_nobody_waits_for_are_seen_to_be_overwritten(name: str) -> None:
    planted = type("Planted", (BehindParcel,), {name: never})
    with pytest.raises(AssertionError, match="out of turn"):
        assert not any(count_wrong_arrivals(planted, seed) for seed in range(60)), "out of turn, too"


def test_what_is_sent_is_copied() -> None:
    index = torch.arange(5)
    parcel = Parcel([index], CPU)
    index.zero_()
    assert parcel.places[0].tolist() == [0, 1, 2, 3, 4]


def test_tensors_that_are_not_contiguous_keep_their_order() -> None:
    matrix = torch.arange(6).reshape(2, 3).t()
    assert torch.equal(Parcel([matrix], CPU).places[0], matrix)


@pytest.mark.parametrize("ran", [False, True])
def test_after_a_launch_that_was_broken_off_the_next_parcel_is_the_right_one(ran: bool) -> None:
    parcel = Parcel([torch.tensor(-1)], CPU)
    for number in range(ROUNDS):
        with contextlib.suppress(KeyboardInterrupt):
            parcel.send([torch.tensor(100)], broken_off(*[parcel.fetch] * ran))
        parcel.send([torch.tensor(number)], parcel.fetch)
        assert parcel.places[0] == number


def test_a_parcel_that_cannot_be_packed_leaves_the_others_as_they_are() -> None:
    parcel = Parcel([torch.arange(3)], CPU)
    with pytest.raises(RuntimeError, match="size"):
        parcel.send([torch.arange(4)], parcel.fetch)
    parcel.send([torch.arange(3) + 7], parcel.fetch)
    assert parcel.places[0].tolist() == [7, 8, 9]


def test_nothing_is_fetched_twice() -> None:
    parcel = Parcel([torch.arange(3)], CPU)
    with pytest.raises(AssertionError, match="out of turn"):
        parcel.fetch()


def test_a_box_of_another_number_is_not_taken() -> None:
    there, boxes = torch.zeros(16, dtype=torch.int64), torch.full((2, 16), 5)
    fetch_box_(there, boxes, torch.tensor([5, 5]))
    for count in (3, 7):
        with pytest.raises(AssertionError, match="out of turn"):
            fetch_box_(there, boxes, torch.tensor([count, count]))


def test_a_tensor_comes_to_its_place_wherever_it_lies() -> None:
    parcel = Parcel([torch.tensor([1, 2, 3])], torch.device("cpu"))
    for number in range(20):
        values = torch.tensor([number, number + 1, number + 2])
        parcel.send([said_on_device(values) if number % 3 == 1 else values], parcel.fetch)
        assert torch.equal(parcel.places[0], values)
