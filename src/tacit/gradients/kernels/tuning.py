"""Which tile a kernel uses on a shape: a short table, timed once for each shape and remembered.

`triton.autotune` would do the same, but it hides the choice until after the launch, while the buffer of partial sums is
sized by it; and it would time kernels even while a CUDA graph is being captured, which must not be.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import torch

Form = TypeVar("Form", bound=Hashable)
"""How a kernel cuts up its work: a `Tile`, or what another kernel has in its place."""


@dataclasses.dataclass(frozen=True)
class Tile:
    """Rows and columns of a gradient that one program forms, tokens a step, warps, and stages of the load pipeline."""

    rows: int
    columns: int
    tokens: int
    warps: int
    stages: int


# Rows, columns, warps, stages, largest first. Below 64 rows the tensor cores are fed from registers.
_TENSOR_CORE = (
    (128, 256, 8, 3),
    (256, 64, 8, 3),
    (128, 128, 8, 3),
    (64, 256, 8, 3),
    (64, 128, 4, 3),
    (128, 64, 4, 3),
    (32, 256, 4, 2),
    (64, 64, 4, 3),
    (32, 128, 4, 2),
    (64, 32, 4, 3),
    (16, 128, 4, 2),
    (32, 64, 2, 3),
    (32, 32, 2, 3),
    (16, 64, 4, 3),
    (16, 64, 2, 3),
    (64, 16, 4, 3),
    (32, 16, 1, 3),
    (16, 32, 1, 3),
    (16, 16, 1, 3),
)
# Full float32 products run on the ordinary units, where large tiles spill registers.
_ORDINARY = (
    (64, 64, 4, 2),
    (32, 64, 4, 2),
    (32, 32, 2, 2),
    (16, 64, 2, 2),
    (64, 16, 2, 2),
    (32, 16, 1, 2),
    (16, 16, 1, 2),
)
_CANDIDATES = 4

_chosen: dict[Hashable, Hashable] = {}


def candidates(rows: int, columns: int, tokens: int, itemsize: int, precision: str) -> list[Tile]:
    """The largest tiles that a gradient of ``rows x columns`` fills, at most four; never none.

    Rows are not split below what the matrix units take at once, and no stage is kept for a step that never comes:
    shared memory saved is another program resident.
    """
    ordinary = precision == "ieee" and itemsize == 4
    table = _ORDINARY if ordinary else _TENSOR_CORE
    step = 16 if ordinary else min(128 // itemsize, max(16, _power_of_two(tokens)))
    most_rows, most_columns = max(16, _power_of_two(rows)), max(16, _power_of_two(columns))
    fitting = [
        Tile(m, n, step, warps, min(stages, max(2, -(-tokens // step))))
        for m, n, warps, stages in table
        if min(64, most_rows) <= m <= most_rows and n <= most_columns
    ]
    return fitting[:_CANDIDATES]


def choose(key: Hashable, tiles: list[Form], launch: Callable[[Form], object], *, can_time: bool) -> Form:
    """The fastest of ``tiles`` for ``key``; the first, unremembered, where nothing may be timed now."""
    if key in _chosen:
        return cast(Form, _chosen[key])
    if len(tiles) > 1 and (not can_time or torch.cuda.is_current_stream_capturing()):
        return tiles[0]
    fastest = min(tiles, key=lambda tile: _milliseconds(launch, tile)) if len(tiles) > 1 else tiles[0]
    _chosen[key] = fastest
    return fastest


def _milliseconds(launch: Callable[[Form], object], tile: Form) -> float:
    from triton.runtime.errors import OutOfResources
    from triton.testing import do_bench

    try:
        return float(do_bench(lambda: launch(tile), warmup=3, rep=15, return_mode="median"))
    except OutOfResources:
        return math.inf


def _power_of_two(number: int) -> int:
    """The least power of two that is at least ``number``."""
    return 1 << max(0, number - 1).bit_length()
