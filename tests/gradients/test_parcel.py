"""Tensors arrive where they belong, whatever they are and however often they travel."""

import torch

from tacit.gradients.parcel import Parcel

CPU = torch.device("cpu")


def contents() -> list[torch.Tensor]:
    return [torch.arange(5), torch.tensor([True, False, True]), torch.randn(2, 3), torch.tensor(7), torch.zeros(0)]


def test_places_hold_what_was_sent_last() -> None:
    first = contents()
    parcel = Parcel(first, CPU)
    places = [place.data_ptr() for place in parcel.places]
    for sent in (first, [tensor.flip(0) if tensor.dim() else tensor + 1 for tensor in contents()]):
        parcel.send(sent)
        for place, tensor in zip(parcel.places, sent, strict=True):
            assert place.dtype == tensor.dtype
            assert torch.equal(place, tensor)
    assert [place.data_ptr() for place in parcel.places] == places


def test_what_is_sent_is_copied() -> None:
    index = torch.arange(5)
    parcel = Parcel([index], CPU)
    index.zero_()
    assert parcel.places[0].tolist() == [0, 1, 2, 3, 4]


def test_tensors_that_are_not_contiguous_keep_their_order() -> None:
    matrix = torch.arange(6).reshape(2, 3).t()
    assert torch.equal(Parcel([matrix], CPU).places[0], matrix)
