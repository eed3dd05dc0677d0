"""Ctrl-C in the middle of several seeds: what those that had ended gave is not lost."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class SeedsInterrupted(KeyboardInterrupt):
    """Ctrl-C after some of the seeds.

    Attributes:
        found: what these gave, in the form of what all would have given.
        seeds: how many they were.
        asked: how many were asked for.
    """

    def __init__(self, found: Any, seeds: int, asked: int) -> None:
        super().__init__(f"interrupted after {seeds} of {asked} seeds")
        self.found, self.seeds, self.asked = found, seeds, asked

    def told_as(self, found: Any) -> "SeedsInterrupted":
        """The same with what was found in another form."""
        return SeedsInterrupted(found, self.seeds, self.asked)


@contextlib.contextmanager
def keeping_seeds(asked: int, ended: Callable[[], int], found: Callable[[], Any]) -> Iterator[None]:
    """Ctrl-C in here carries what was found, unless no seed has ended yet.

    Args:
        asked: how many seeds there shall be.
        ended: says how many have ended.
        found: says what they gave.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not ended():
            raise
        raise SeedsInterrupted(found(), ended(), asked) from None
