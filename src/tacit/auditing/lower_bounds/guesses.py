"""Guesses about which canaries were included, made from scores alone."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.validation import check_count

_FEWEST, _MOST_TRIED = 16, 8


@dataclasses.dataclass(frozen=True)
class Guesses:
    """How many canaries are guessed: those with the highest scores in, those with the lowest out, no word on the rest.

    The numbers must not depend on who was included: they are chosen before the experiment.
    """

    inside: int
    outside: int

    def __post_init__(self) -> None:
        check_count("inside", self.inside, minimum=0)
        check_count("outside", self.outside, minimum=0)
        check_count("inside + outside", self.total, remedy="Guess about one canary at least.")

    @property
    def total(self) -> int:
        """All guesses."""
        return self.inside + self.outside

    @classmethod
    def balanced(cls, total: int) -> "Guesses":
        """As many in as out, up to one."""
        return cls(total - total // 2, total // 2)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Who was included, in the order of falling scores.

    Ties keep the order of the canaries, which knows nothing of the coins.
    """

    ordered: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, scores: npt.ArrayLike, included: npt.ArrayLike) -> "Evidence":
        """From a score for each canary, higher where it was rather included, and what the coins said."""
        values, coins = np.asarray(scores, dtype=np.float64), np.asarray(included)
        if values.ndim != 1 or coins.shape != values.shape or not values.size:
            raise InputError(
                f"scores of shape {values.shape}, included of shape {coins.shape}: must be two lists of one length. "
                "Give one score and one coin for each canary."
            )
        if coins.dtype != np.bool_:
            raise InputError(f"included of type {coins.dtype}: must be true or false for each canary.")
        if np.isnan(values).any():
            raise InputError(
                f"scores: {int(np.isnan(values).sum())} of {values.size} are not numbers. Give each canary a score; "
                "where a loss overflowed, an infinite one."
            )
        return cls(coins[np.argsort(-values, kind="stable")])

    @property
    def canaries(self) -> int:
        """m, how many coins were thrown."""
        return self.ordered.size

    def correct(self, guesses: Guesses) -> int:
        """How many of these guesses are right."""
        if guesses.total > self.canaries:
            raise InputError(
                f"guesses={guesses.total}: must be at most the {self.canaries} canaries. Guess about fewer."
            )
        top, bottom = self.ordered[: guesses.inside], self.ordered[self.canaries - guesses.outside :]
        return int(np.count_nonzero(top)) + int(np.count_nonzero(~bottom))


def halving(canaries: int) -> tuple[Guesses, ...]:
    """All canaries, half of them, a quarter and so on, down to a few; in and out alike.

    Many guesses have little spread, few are surer. Who tries several pays for each by a union bound, so they are few.
    """
    totals = [canaries >> halvings for halvings in range(_MOST_TRIED)]
    return tuple(Guesses.balanced(total) for total in totals if total >= _FEWEST or total == canaries)


def check_tried(guesses: Sequence[Guesses] | None, canaries: int) -> tuple[Guesses, ...]:
    """The numbers of guesses to try, one at least; those of `halving` by default."""
    if guesses is None:
        return halving(canaries)
    if not guesses:
        raise InputError("guesses=[]: must hold at least one number to try. Leave it out for the usual ones.")
    return tuple(guesses)
