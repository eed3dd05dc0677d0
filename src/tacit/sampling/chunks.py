"""Physical chunks: a lot of any size runs in memory of one size, and a compiled step sees one shape only."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tacit.core.validation import check_count
from tacit.sampling.sampler import Indices


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """A part of a lot, padded to one shape.

    Attributes:
        indices: positions of records, of the chunk size; padding repeats the chunk's last record. mask: of
        the same shape, true for a record of the lot and false for padding, which must contribute zero.
    """

    indices: Indices
    mask: npt.NDArray[np.bool_]


def chunks(indices: Indices, size: int) -> Iterator[Chunk]:
    """Splits a lot into chunks of exactly ``size``, in order; the last one is padded. An empty lot has no
    chunk.

    The chunks' records, without padding, are the lot's, each once: summing over chunks is summing over the
    lot.
    """
    check_count("size", size)
    return (_padded(indices[start : start + size], size) for start in range(0, len(indices), size))


def _padded(part: Indices, size: int) -> Chunk:
    mask = np.zeros(size, dtype=np.bool_)
    mask[: len(part)] = True
    if len(part) == size:
        return Chunk(part, mask)
    indices = np.empty(size, dtype=part.dtype)  # np.pad takes six times as long, in every step
    indices[: len(part)], indices[len(part) :] = part, part[-1]
    return Chunk(indices, mask)
