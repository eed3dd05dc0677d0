r"""A network for the columns of a table, each scaled by public facts: numbers in [0, 1], booleans 0 or 1, categories as
one input for each value.

A number :math:`x` enters as its piecewise linear encoding: :math:`B` even bins of [0, 1], of which bin :math:`b`
contributes :math:`2 \min(1, \max(0, B x - b)) - 1`. A linear map of these is any function of :math:`x` that is linear
within each bin, so that even one private layer can follow a curve (Gorishniy, Rubachev and Babenko, On Embeddings for
Numerical Features in Tabular Deep Learning, NeurIPS 2022). The paper takes quantiles of the data for the ends of the
bins; those would leak, and here the ends come from the schema's bounds. A category enters as a learned vector.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from tacit.core.errors import InputError
from tacit.core.validation import check_count

Kind = Literal["number", "boolean", "category"]
TableColumn = tuple[Kind, int]
"""What a column of a table is, and how many inputs it takes: one, or for a category as many as it has values."""

_BINS = 8
_HIDDEN = 32
_WIDEST_EMBEDDING = 8


class TableEncoding(nn.Module):
    """The inputs of a table's columns as numbers of similar size: bins of numbers, signs of booleans, embeddings.

    An embedding is half as wide as the category has values, at most 8: where few examples carry the noise, more
    weights carry it worse.
    """

    def __init__(self, columns: Sequence[TableColumn], bins: int = _BINS) -> None:
        super().__init__()
        self.columns = tuple(columns)
        self.bins = check_count("bins", bins)
        self.embeddings = nn.ModuleList(
            nn.Embedding(values, min(_WIDEST_EMBEDDING, (values + 1) // 2))
            for kind, values in self.columns
            if kind == "category"
        )

    @property
    def width(self) -> int:
        """How many numbers an example becomes."""
        embedded = sum(int(table.weight.shape[1]) for table in self.embeddings if isinstance(table, nn.Embedding))
        return embedded + sum({"number": self.bins, "boolean": 1, "category": 0}[kind] for kind, _ in self.columns)

    def forward(self, inputs: Tensor) -> Tensor:
        parts: list[Tensor] = []
        tables, sizes = iter(self.embeddings), [size for _, size in self.columns]
        ends = torch.arange(self.bins, dtype=inputs.dtype, device=inputs.device)
        for (kind, _), block in zip(self.columns, torch.split(inputs, sizes, dim=1), strict=True):
            if kind == "number":
                parts.append(2 * (block * self.bins - ends).clamp(0, 1) - 1)
            elif kind == "boolean":
                parts.append(2 * block - 1)
            else:
                parts.append(next(tables)(block.argmax(dim=1)))
        return torch.cat(parts, dim=1)


def table_mlp(columns: Sequence[TableColumn], classes: int, *, hidden: int = _HIDDEN, bins: int = _BINS) -> nn.Module:
    """The columns encoded, one hidden layer with tanh, and an affine map to the classes."""
    if not columns:
        raise InputError("columns=(): must be at least one.")
    encoding = TableEncoding(columns, bins)
    return nn.Sequential(
        nn.Flatten(),
        encoding,
        nn.Linear(encoding.width, check_count("hidden", hidden)),
        nn.Tanh(),
        nn.Linear(hidden, check_count("classes", classes)),
    )
