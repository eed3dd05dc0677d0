"""What every accountant is, and how it refuses."""

from typing import Protocol, runtime_checkable

from dp_accounting import DpEvent

from tacit.core.errors import UnsupportedError
from tacit.core.privacy import Neighbours


class Accountant(Protocol):
    """Turns an event and a delta into an epsilon, for one neighbouring relation.

    Attributes:
        name: how the accountant is called in statements and on the command line.
        is_upper_bound: whether its epsilon is a proven upper bound. An accountant for which it is not is an estimate to
            look at: plans and calibration refuse it.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_upper_bound(self) -> bool: ...

    def supports(self, event: DpEvent, neighbours: Neighbours) -> bool:
        """Whether the accountant can bound the event under the relation."""
        ...

    def epsilon(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        """Epsilon at delta in (0, 1); infinite where there is no guarantee. Raises `UnsupportedError`."""
        ...

    def delta(self, event: DpEvent, epsilon: float, neighbours: Neighbours) -> float:
        """Delta at epsilon >= 0; 1 where there is no guarantee. Raises `UnsupportedError`."""
        ...


@runtime_checkable
class Estimator(Protocol):
    """An accountant that can also say quickly about where epsilon lies, for searches to start from."""

    def estimate(self, event: DpEvent, delta: float, neighbours: Neighbours) -> float:
        """About epsilon at delta in (0, 1), without any guarantee."""
        ...


def refuse_relation(accountant: str, neighbours: Neighbours, remedy: str) -> UnsupportedError:
    """The error for a relation that an accountant does not know."""
    return UnsupportedError(f"accountant={accountant!r}: does not cover the {neighbours.value} relation. {remedy}")


def refuse_event(accountant: str, event: DpEvent, neighbours: Neighbours, remedy: str) -> UnsupportedError:
    """The error for an event that an accountant cannot bound under a relation."""
    return UnsupportedError(
        f"accountant={accountant!r}: cannot bound {type(event).__name__} under the {neighbours.value} relation. "
        f"{remedy}"
    )
