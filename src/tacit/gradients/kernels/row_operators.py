# ruff: noqa: ARG001 (a fake takes what its operator takes)
"""Operators on whole rows, one for each example, and the one that fetches a step's parcel: Triton on a GPU that has it,
the plain twin elsewhere. Those that a trace contains are registered with PyTorch (``torch.ops.tacit``).
"""

import importlib

import torch
from torch import Tensor

from tacit.core.errors import InputError
from tacit.gradients.kernels import twins
from tacit.gradients.kernels.fitting import use_triton


def zero_rows_(values: Tensor, keep: Tensor) -> Tensor:
    """Sets ``values[i] = 0`` in place where ``keep[i]`` is false, NaN and infinity included; returns ``values``.

    With the kernel, and on a CPU, rows that are kept are neither read nor written.
    """
    _check_flags(keep, values)
    torch.ops.tacit.zero_rows_(values, keep)
    return values


def weighted_rows(rows: Tensor, weights: Tensor, keep: Tensor | None = None) -> Tensor:
    r"""The sum :math:`\sum_i w_i r_i` over rows, in float32 (float64 for rows of float64).

    Args:
        rows: ``[B, n]``.
        weights: ``[B]``, of the type of the result.
        keep: ``[B]`` of bool; a row that is not kept adds nothing, NaN and infinity included.
    """
    wide = torch.promote_types(rows.dtype, torch.float32)
    if rows.dim() != 2 or weights.shape != rows.shape[:1] or weights.dtype != wide:
        raise InputError(
            f"rows={list(rows.shape)}, weights={list(weights.shape)} of {weights.dtype}: must be [B, n] and [B] of "
            f"{wide}. Flatten the rows, and convert the weights."
        )
    _check_flags(keep, rows)
    total: Tensor = torch.ops.tacit.weighted_rows(rows, weights, keep)
    return total


def outer_sum(left: Tensor, right: Tensor, keep: Tensor | None = None) -> Tensor:
    r"""The sum :math:`\sum_i l_i r_i^T` over examples, ``[m, n]`` in float32 (float64 for operands of float64).

    For narrow ``left``: the kernel takes up to `NARROW` columns of half precision, whose products are exact in float32.

    Args:
        left: ``[B, m]``.
        right: ``[B, n]``, of the same type.
        keep: ``[B]`` of bool; an example that is not kept adds nothing, NaN and infinity included.
    """
    if left.dim() != 2 or right.dim() != 2 or left.shape[0] != right.shape[0] or left.dtype != right.dtype:
        raise InputError(
            f"left={list(left.shape)} of {left.dtype}, right={list(right.shape)} of {right.dtype}: must be [B, m] and "
            "[B, n] of one type. Flatten what each example has."
        )
    _check_flags(keep, right)
    total: Tensor = torch.ops.tacit.outer_sum(left, right, keep)
    return total


def fetch_box_(there: Tensor, boxes: Tensor, counts: Tensor) -> None:
    """Copies to ``there`` the one of several boxes whose turn it is, and passes the turn on.

    With the kernel all of it happens on the device, so that a CUDA graph may hold the launch while boxes on the host
    are filled in turn. It is not registered with PyTorch, since nothing that is traced contains it.

    Args:
        there: ``[n]`` of int64, n a multiple of 16.
        boxes: ``[k, n]`` of int64, contiguous; in pinned memory where ``there`` is on a GPU. A box's first word is its
            number.
        counts: int64 on the device of ``there``, all equal to the number c of the box to come, which is box c modulo k;
            as many as programs shall share the work.

    A box of another number is an error: an `AssertionError` of the twin, on a GPU a failed assertion of the device,
    after which it does nothing more.
    """
    if use_triton(there):
        launch = importlib.import_module("tacit.gradients.kernels.launch")
        with torch.cuda.device_of(there):  # type: ignore[no-untyped-call]
            launch.fetch_box_(there, boxes, counts)
    else:
        twins.fetch_box_(there, boxes, counts)


def _check_flags(keep: Tensor | None, values: Tensor) -> None:
    """Kernels read flags as bytes, as many as there are examples."""
    if keep is None:
        return
    if values.dim() == 0 or keep.dtype != torch.bool or keep.shape != values.shape[:1] or keep.device != values.device:
        raise InputError(
            f"keep={list(keep.shape)} of {keep.dtype} on {keep.device}: must be [B] of bool on {values.device} for "
            f"values={list(values.shape)}. "
            "Pass one flag an example."
        )


@torch.library.custom_op("tacit::zero_rows_", mutates_args=("values",))
def _zero_rows_(values: Tensor, keep: Tensor) -> None:
    if use_triton(values):
        launch = importlib.import_module("tacit.gradients.kernels.launch")
        if launch.rows_are_dense(values):
            launch.zero_rows_(values, keep)
            return
    if values.is_cpu:  # where it costs nothing to ask which, and there are seldom any
        values.index_fill_(0, torch.nonzero(~keep).flatten(), 0)
        return
    twins.zero_rows_(values, keep)


@torch.library.custom_op("tacit::weighted_rows", mutates_args=())
def _weighted_rows(rows: Tensor, weights: Tensor, keep: Tensor | None) -> Tensor:
    if use_triton(rows):
        launch = importlib.import_module("tacit.gradients.kernels.launch")
        if launch.fits(rows) and rows.stride(1) == 1:
            total: Tensor = launch.weighted_rows(rows, weights, keep)
            return total
    return twins.weighted_rows(rows, weights, keep)


@_weighted_rows.register_fake
def _(rows: Tensor, weights: Tensor, keep: Tensor | None) -> Tensor:
    return weights.new_empty(rows.shape[1])


@torch.library.custom_op("tacit::outer_sum", mutates_args=())
def _outer_sum(left: Tensor, right: Tensor, keep: Tensor | None) -> Tensor:
    if use_triton(right):
        launch = importlib.import_module("tacit.gradients.kernels.launch")
        if launch.outer_sum_fits(left, right):
            total: Tensor = launch.outer_sum(left, right, keep)
            return total
    return twins.outer_sum(left, right, keep)


@_outer_sum.register_fake
def _(left: Tensor, right: Tensor, keep: Tensor | None) -> Tensor:
    wide = torch.promote_types(right.dtype, torch.float32)
    return right.new_empty(left.shape[1], right.shape[1], dtype=wide)


@_zero_rows_.register_fake
def _(values: Tensor, keep: Tensor) -> None:
    return None


CLEAR = torch.ops.tacit.zero_rows_.default
"""`zero_rows_` as it stands in a traced graph."""
ADD_UP = torch.ops.tacit.weighted_rows.default
"""`weighted_rows`, the same."""
