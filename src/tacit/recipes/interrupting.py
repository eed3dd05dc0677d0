"""Ctrl-C in the middle of several seeds: what those that had ended gave is not lost.

A second Ctrl-C, while the first one's result is made, ends that too.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, TypeVar

Found = TypeVar("Found")
Told = TypeVar("Told")


class SeedsInterrupted(KeyboardInterrupt):
    """Ctrl-C after some of the seeds, or after all of them and before their result was whole.

    Attributes:
        found: from `run_recipe`, the result of the seeds that had ended, in the form of one of all seeds; out of
            `run_sweep`, the `Outcome` of the one point that was measured then.
        seeds: how many had ended.
        asked: how many were asked for.
    """

    def __init__(self, found: Any, seeds: int, asked: int) -> None:
        super().__init__(f"interrupted after {seeds} of {asked} seeds")
        self.found, self.seeds, self.asked = found, seeds, asked


@contextlib.contextmanager
def keeping(ended: Sized, asked: int, tell: Callable[[], Any]) -> Iterator[None]:
    """Ctrl-C in here carries what is told then, unless no seed has ended.

    Args:
        ended: one entry for each seed that has ended.
        asked: how many seeds there shall be.
        tell: says what those gave.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not ended:
            raise
        raise SeedsInterrupted(tell(), len(ended), asked) from None


def seed_by_seed(seeds: Sequence[int], train: Callable[[int], Found], tell: Callable[[list[Found]], Told]) -> Told:
    """Trains one seed after another; returns what is told of what they gave.

    Raises:
        SeedsInterrupted: Ctrl-C once a seed had ended; with what is told of those that had.
    """
    ended: list[Found] = []
    with keeping(ended, len(seeds), lambda: tell(ended)):
        for seed in seeds:
            ended.append(train(seed))
        return tell(ended)


def told_of(measure: Callable[[], Found], tell: Callable[[Found], Told], asked: int) -> Told:
    """What is told of what all seeds gave.

    Raises:
        SeedsInterrupted: Ctrl-C once a seed had ended; with what is told of those that had.
    """
    try:
        found = measure()
    except SeedsInterrupted as stopped:
        raise SeedsInterrupted(tell(stopped.found), stopped.seeds, asked) from None
    with keeping(range(asked), asked, lambda: tell(found)):
        return tell(found)
