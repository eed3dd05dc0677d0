r"""Trade-off functions as the hull of finitely many guarantees.

A privacy profile :math:`\delta(\epsilon)` says that a right guess has a chance of at most :math:`\delta(\epsilon) +
e^\epsilon` times that of a wrong one, at every real epsilon. Turned round, a right guess of chance y comes with a wrong
one of at least :math:`\max_\epsilon e^{-\epsilon} (y - \delta(\epsilon))`. A mechanism keeps to each of these lines,
and so to any finite choice of them: few lines make a bound looser, never wrong.
"""

import bisect
import dataclasses
import math

import numpy as np

from tacit.auditing.arrays import FloatArray


@dataclasses.dataclass(frozen=True)
class Profile:
    """Deltas of what is released with a record against without it (inside), and the other way round (outside).

    At rising epsilons, of which the first is 0.
    """

    epsilons: FloatArray
    inside: FloatArray
    outside: FloatArray

    def for_guesses(self, *, inside: bool, outside: bool) -> "TradeOff":
        r"""What bounds right guesses by wrong ones: the profile against the wrong side, or the mean of both.

        A guess that a canary is in is right where it is, and :math:`P[\text{in} | \text{is in}] \le
        \delta_\text{in}(\epsilon) + e^\epsilon P[\text{in} | \text{is out}]`; likewise for out. Averaged over the fair
        coin that holds with the mean of both deltas, at every real epsilon.
        """
        over_in, over_out = self._whole_line(self.inside, self.outside), self._whole_line(self.outside, self.inside)
        chosen = [deltas for wanted, deltas in ((inside, over_in), (outside, over_out)) if wanted]
        epsilons = np.concatenate([-self.epsilons[:0:-1], self.epsilons])
        return TradeOff.of_lines(epsilons, np.mean(chosen, axis=0))

    def _whole_line(self, forward: FloatArray, backward: FloatArray) -> FloatArray:
        """Deltas at negative epsilons too, where they follow from the other direction's."""
        shrunk = np.exp(-self.epsilons)
        return np.concatenate([(1 - shrunk + shrunk * backward)[:0:-1], forward])


@dataclasses.dataclass(frozen=True)
class TradeOff:
    """The least chance of a wrong guess beside that of a right one: convex, piecewise linear, from 0 on.

    Attributes:
        slopes, heights: of the lines that touch the hull, by rising slope; a line's height is its value at 0.
        bends: where one line gives way to the next.
    """

    slopes: tuple[float, ...]
    heights: tuple[float, ...]
    bends: tuple[float, ...]

    @classmethod
    def of_lines(cls, epsilons: FloatArray, deltas: FloatArray) -> "TradeOff":
        r"""The hull of 0 and of :math:`e^{-\epsilon}(y - \delta(\epsilon))` at rising epsilons."""
        lines: list[tuple[float, float]] = [(0.0, 0.0)]
        bends: list[float] = []
        for epsilon, delta in zip(epsilons[::-1], deltas[::-1], strict=True):
            line = math.exp(-epsilon), -math.exp(-epsilon) * float(delta)
            while bends and _crossing(lines[-1], line) <= bends[-1]:
                lines.pop()
                bends.pop()
            bends.append(_crossing(lines[-1], line))
            lines.append(line)
        slopes, heights = zip(*lines, strict=True)
        return cls(slopes, heights, tuple(bends))

    def least_wrong(self, right: float) -> float:
        """At least so large is the chance of a wrong guess where that of a right one is ``right``."""
        line = bisect.bisect_right(self.bends, right)
        return self.slopes[line] * right + self.heights[line]


def _crossing(flatter: tuple[float, float], steeper: tuple[float, float]) -> float:
    return (flatter[1] - steeper[1]) / (steeper[0] - flatter[0])
