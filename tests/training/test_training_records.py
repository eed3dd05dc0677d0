"""Data sets of every kind that can be sampled, and clear refusals of those that cannot."""

import numpy as np
import pytest
import torch
from private_checks import cross_entropy, flat, plan, records, updates
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

from tacit.core import InputError, UnsupportedError
from tacit.training.records import check_records, fetch


class Pairs(Dataset):
    def __init__(self, count=16):
        self.columns = records(count)

    def __len__(self):
        return len(self.columns[0])

    def __getitem__(self, i):
        return self.columns[0][i], int(self.columns[1][i])


class Dicts(Pairs):
    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        return {"x": x, "y": y}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Pairs())

    def __len__(self):
        return 16


SAME = {
    "tensors": records,
    "tensor data set": lambda: TensorDataset(*records()),
    "data set": Pairs,
    "subset": lambda: Subset(Pairs(), range(16)),
    "list of pairs": lambda: [Pairs()[i] for i in range(16)],
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_records_in_any_form_give_the_same_run(name):
    expected = [flat(update) for update in updates(plan(), loss_fn=cross_entropy)]
    found = [flat(update) for update in updates(plan(), loss_fn=cross_entropy, data=SAME[name]())]
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-14)


def test_items_that_are_mappings_are_one_argument():
    def loss_fn(model, item):
        return cross_entropy(model, item["x"], item["y"])

    found = [flat(update) for update in updates(plan(), loss_fn=loss_fn, data=Dicts())]
    expected = [flat(update) for update in updates(plan(), loss_fn=cross_entropy)]
    torch.testing.assert_close(torch.stack(found), torch.stack(expected), rtol=1e-12, atol=1e-14)


def test_a_single_tensor_is_one_argument():
    x, _ = records()
    assert fetch(check_records(x), np.array([3, 5]))[0].equal(x[[3, 5]])


@pytest.mark.parametrize("sampler", [None, WeightedRandomSampler([1.0] * 16, 16)], ids=["plain", "weighted"])
def test_pitfalls_33_and_34_loaders_are_refused_whatever_their_sampler(sampler):
    loader = DataLoader(Pairs(), batch_size=4, sampler=sampler)
    with pytest.raises(
        UnsupportedError, match=r"^train_set=DataLoader: it would choose the batches.* Pass its dataset"
    ):
        next(updates(plan(), loss_fn=cross_entropy, data=loader))


@pytest.mark.parametrize(
    "data", [Stream(), iter([1, 2]), (i for i in range(3)), 5, None], ids=lambda d: type(d).__name__
)
def test_pitfall_34_what_has_no_length_is_refused(data):
    message = rf"^train_set={type(data).__name__}: has no length, so it cannot be sampled as accounted for"
    with pytest.raises(UnsupportedError, match=message):
        next(updates(plan(), loss_fn=cross_entropy, data=data) if data is not None else iter([check_records(data)]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"x": records()[0]}, r"^train_set=dict: is a mapping, whose length counts its keys"),
        (list(records()), r"^train_set=list of tensors: may be one tensor a record or one tensor a column"),
        ((records()[0], records(4)[1]), r"^train_set: its tensors have lengths \[4, 16\]"),
    ],
    ids=["mapping", "list", "lengths"],
)
def test_ambiguous_collections_are_refused(data, message):
    with pytest.raises(InputError, match=message):
        check_records(data)


def test_items_without_tensors_are_refused():
    with pytest.raises(InputError, match=r"batch=.*must contain tensors|hold no tensors"):
        list(updates(plan(), loss_fn=lambda model, words: None, data=["a", "b"] * 8))
