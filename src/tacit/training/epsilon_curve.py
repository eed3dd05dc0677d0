"""Epsilon over the steps of a run, for its history and its progress bar."""

from tacit.plan import DPSGD
from tacit.training.position import epsilon_of_stretches
from tacit.training.private import Private


class EpsilonCurve:
    """What was spent after each step, from above, computed at a few points when they are first asked for.

    Args:
        plan: of the models.
        points: about half as many as are computed for a run.
    """

    def __init__(self, plan: DPSGD, points: int) -> None:
        self._plan = plan
        self._stride = max(1, plan.steps // (2 * points))
        self._known: dict[tuple[int, ...], float] = {}

    def at(self, step: int, private: Private) -> float:
        """Epsilon at the next point from ``step`` of the plan on: never less than was spent on the model until then.

        Steps that were drawn again after a crash are counted again, from the first step after it on.
        """
        point = min(self._plan.steps, -(-step // self._stride) * self._stride)
        stretches = private.stretches(point)
        if stretches not in self._known:
            self._known[stretches] = epsilon_of_stretches(self._plan, stretches)
        return self._known[stretches]
