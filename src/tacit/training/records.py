"""From a data set of any kind and a lot's indices to a batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from tacit.core.errors import InputError, UnsupportedError
from tacit.datasets import Split
from tacit.gradients.batches import Rows
from tacit.training.views import Augmented

_RESIDENT_SHARE = 0.25  # of the device's free memory
_TENSORS = (TensorDataset, Split)  # made once: every step asks


def check_records(records: Any) -> Any:
    """Refuses what has no length or chooses its own batches: the sampler is the plan's."""
    if isinstance(records, Augmented):
        return Augmented(check_records(records.records), records.augment)
    if isinstance(records, DataLoader):
        raise UnsupportedError(
            "train_set=DataLoader: it would choose the batches, and the plan's sampler must. Pass its dataset."
        )
    if isinstance(records, IterableDataset) or not hasattr(records, "__len__"):
        raise UnsupportedError(
            f"train_set={type(records).__name__}: has no length, so it cannot be sampled as accounted for. Pass a data "
            "set with __len__ and __getitem__."
        )
    if isinstance(records, Mapping):
        raise InputError(
            f"train_set={type(records).__name__}: is a mapping, whose length counts its keys and not its records. Pass "
            "a tuple of tensors, or a data set whose items are mappings."
        )
    if isinstance(records, list) and records and isinstance(records[0], Tensor):
        raise InputError(
            "train_set=list of tensors: may be one tensor a record or one tensor a column. Pass a tuple of tensors, "
            "one row a record, or stack the records into one tensor."
        )
    if isinstance(records, tuple) and records and isinstance(records[0], Tensor):
        return TensorDataset(*_of_one_length(records))
    return records


def _of_one_length(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    lengths = {len(tensor) for tensor in tensors}
    if len(lengths) > 1:
        raise InputError(
            f"train_set: its tensors have lengths {sorted(lengths)}. All must have one row for each record."
        )
    return tensors


def resident(records: Any, device: torch.device) -> Any:
    """The records on the device, where they are tensors and leave most of its memory free; else as they are."""
    if isinstance(records, Augmented):
        return Augmented(resident(records.records, device), records.augment)
    if device.type != "cuda" or not isinstance(records, _TENSORS):
        return records
    tensors = records.tensors if isinstance(records, TensorDataset) else (records.inputs, records.targets)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor.device != device)
    if size > _RESIDENT_SHARE * torch.cuda.mem_get_info(device)[0]:
        return records
    return TensorDataset(*(tensor.to(device) for tensor in tensors))


def held_rows(records: Any, indices: npt.NDArray[np.int64], device: torch.device) -> Rows | None:
    """The rows to be gathered by the step itself, where the records are tensors on its device."""
    if not isinstance(records, _TENSORS):
        return None
    tensors = records.tensors if isinstance(records, TensorDataset) else (records.inputs, records.targets)
    for tensor in tensors:
        if tensor.device != device:
            return None
    return Rows(tuple(tensors), indices)


def fetch(records: Any, indices: npt.NDArray[np.int64]) -> tuple[Any, ...]:
    """The records with these indices as one batch: the arguments of the loss function after the model."""
    if isinstance(records, Split):
        return records[indices]
    if isinstance(records, TensorDataset):
        index = torch.from_numpy(indices)
        return tuple(tensor[index.to(tensor.device)] for tensor in records.tensors)
    batch = default_collate([records[int(i)] for i in indices])
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        return tuple(batch)
    if isinstance(batch, dict | Tensor):
        return (batch,)
    raise InputError(
        f"train_set: its items are {type(batch).__name__} and hold no tensors. Return tensors, or tuples or dicts "
        "of them."
    )
