"""What the models of an experiment may have drawn, however it ends."""

import dataclasses

from tacit.plan import DPSGD
from tacit.training.fitting import FitResult
from tacit.training.private import Private

_ALL_COUNTED = (
    "it was resumed without a ledger, so that nobody knows how far an earlier process drew, and all steps are counted"
)


@dataclasses.dataclass(frozen=True)
class _Opened:
    """A model that this process trains, and where it stood when the process took it up."""

    private: Private
    steps_done: int
    steps_begun: int

    @property
    def went_on(self) -> bool:
        return (self.private.steps_done, self.private.steps_begun) != (self.steps_done, self.steps_begun)


class Tally:
    """The models of an experiment, in the order in which they are trained, with the one that did not end.

    Args:
        plan: of each model.
        past_unknown: whether an earlier process may have drawn steps that nothing counted.
    """

    def __init__(self, plan: DPSGD, *, past_unknown: bool) -> None:
        self._plan, self._past_unknown = plan, past_unknown
        self._opened: list[_Opened] = []
        self.finished: list[FitResult] = []

    def open(self, private: Private) -> None:
        """A model is about to take its first step in this process."""
        self._opened.append(_Opened(private, private.steps_done, private.steps_begun))

    @property
    def latest(self) -> Private:
        """The model that trains now."""
        return self._opened[-1].private

    @property
    def went_on(self) -> bool:
        """Whether this process may have drawn any noise. Where not, what an earlier one stated still holds."""
        return any(opened.went_on for opened in self._opened)

    @property
    def steps_done(self) -> int:
        """How many steps the last model is known to have begun."""
        return self.latest.steps_begun

    def results(self) -> list[FitResult]:
        """All that began: those that finished, and the one that did not with no less than it may have drawn."""
        unfinished = self._opened[len(self.finished) :]
        return [*self.finished, *(self._so_far(opened.private) for opened in unfinished)]

    def _so_far(self, private: Private) -> FitResult:
        statement, stretches = private.statement(), private.stretches()
        if self._past_unknown and sum(stretches) < self._plan.steps:
            whole, stretches = self._plan.statement(), (self._plan.steps,)
            caveats = (*statement.caveats, _ALL_COUNTED)
            statement = dataclasses.replace(
                statement, epsilon=whole.epsilon, mechanism=whole.mechanism, caveats=caveats
            )
        return FitResult(private.model, statement, stretches, private.engine, private.compile_seconds)
