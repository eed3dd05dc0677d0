"""What every loader returns: two splits of tensors and the public facts about them."""

import dataclasses
from typing import Literal

import numpy as np
import torch
from torch.utils.data import Dataset

from tacit.core.errors import InputError

Task = Literal["classification", "regression"]
ColumnKind = Literal["number", "boolean", "category"]


@dataclasses.dataclass(frozen=True, eq=False)
class Split(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Examples held as two tensors with a common first dimension.

    ``split[i]`` is one pair, as a torch data set gives it; ``split[indices]`` with an array or tensor of
    indices is a batch, stacked by one gather. Indices may repeat, and an empty array gives an empty batch.
    """

    inputs: torch.Tensor
    targets: torch.Tensor

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise InputError(
                f"targets={len(self.targets)} rows: must be as many as the {len(self.inputs)} inputs. "
                "Each example has one target."
            )

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(
        self, index: int | slice | list[int] | np.ndarray | torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        chosen: int | slice | torch.Tensor
        if isinstance(index, (int, np.integer)):
            chosen = int(index)
        elif isinstance(index, slice):
            chosen = index
        else:
            chosen = torch.as_tensor(index, dtype=torch.int64, device=self.inputs.device)
        return self.inputs[chosen], self.targets[chosen]


@dataclasses.dataclass(frozen=True, eq=False)
class DataSet:
    """A training and a test split, with what the public knows about them.

    Attributes:
        name: the catalogue's name, or the name of the file that a table came from.
        train, test: the two splits. Which example lies where is public and never depends on the data.
        classes: how many classes there are; 1 for a regression, so that it is the width of a model's output.
        input_shape: the shape of one example's input.
        source: where the data were found.
        task: ``classification`` (targets are int64 class numbers) or ``regression`` (float32 in [-1, 1]).
        class_names: the classes in the order of their numbers, where they have names.
        feature_names: the name of each input of a table.
        columns: for each column of a table that is predicted from, whether it is a ``number``, ``boolean`` or
            ``category``, and how many inputs it takes.
        target_bounds: for a regression the public bounds that -1 and 1 stand for.
    """

    name: str
    train: Split
    test: Split
    classes: int
    input_shape: tuple[int, ...]
    source: str
    task: Task = "classification"
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    columns: tuple[tuple[ColumnKind, int], ...] = ()
    target_bounds: tuple[float, float] | None = None

    def to(self, device: torch.device) -> "DataSet":
        """The same set with its tensors on the device."""
        train, test = (Split(split.inputs.to(device), split.targets.to(device)) for split in (self.train, self.test))
        return dataclasses.replace(self, train=train, test=test)


def image_split(pixels: np.ndarray, labels: np.ndarray) -> Split:
    """Bytes of shape (N, C, H, W) and labels as a split: float32 in [0, 1] and int64."""
    return Split(
        torch.from_numpy(pixels.astype(np.float32, order="C")).div_(255.0),
        torch.from_numpy(labels.astype(np.int64)),
    )
