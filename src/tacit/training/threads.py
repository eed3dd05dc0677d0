"""How many threads a step is worth."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

_SMALL_STEP = 1e8  # parameters times examples of a lot: milliseconds on one thread


@contextlib.contextmanager
def threads_for(model: nn.Module, lot: int, *, copies: int = 1) -> Iterator[None]:
    """One thread within, where a step of dense layers is so small that several would mostly wait for each other.

    They wait in a loop, and where others use the machine as well, each of a step's hundred waits may last as long as
    the other's turn: such steps then take ten times as long on two threads as on one.

    Args:
        model: what takes the steps; on any device.
        lot: how many examples a step has.
        copies: how many such models step at once.
    """
    with one_thread() if _is_small(model, lot * copies) else contextlib.nullcontext():
        yield


def threads_worth(model: nn.Module, lot: int, *, copies: int = 1) -> int:
    """How many threads `threads_for` leaves."""
    return 1 if _is_small(model, lot * copies) else torch.get_num_threads()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch's operations on one thread within, also in threads that are started there."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_small(model: nn.Module, examples: int) -> bool:
    parameters = list(model.parameters())
    dense = all(parameter.dim() <= 2 for parameter in parameters)  # a convolution does far more with each parameter
    return dense and sum(parameter.numel() for parameter in parameters) * examples <= _SMALL_STEP
