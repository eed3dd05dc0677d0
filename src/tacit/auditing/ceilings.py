r"""What a guarantee allows any attack: the largest true positive rate at each false positive rate.

Whoever tells members from non-members tests a hypothesis. For a guarantee (epsilon, delta), which holds in both
directions (the record added, the record removed), every test has

.. math:: \mathrm{TPR} \le e^\epsilon \mathrm{FPR} + \delta \quad\text{and}\quad
          1 - \mathrm{FPR} \le e^\epsilon (1 - \mathrm{TPR}) + \delta

(Kairouz, Oh and Viswanath, 2015). A mechanism keeps to a whole curve of such pairs, and to the least of their ceilings.

**What may be compared with it.** The rates of one record over many runs, for a threshold that was fixed before; and,
since the ceiling is concave, the rates averaged over records and runs too. Members must be chosen as the guarantee's
relation says: under add-remove each record by a coin of its own, so that one membership says nothing about others.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from dp_accounting import DpEvent

from tacit.accounting import Accountant
from tacit.accounting import delta as delta_at
from tacit.auditing.arrays import FloatArray
from tacit.core.errors import InputError
from tacit.core.privacy import Budget, Neighbours

_EPSILONS = np.concatenate([np.arange(40) / 10, np.geomspace(4.0, 40.0, 25)])
_NEVER = 1e-12  # a chance that no rate shows
_LARGEST_EXPONENT = 700.0  # e to the power of more is no float64, and no rate above 0 keeps under 1 before


def ceiling(fpr: float, epsilon: float, delta: float) -> float:
    """The largest true positive rate at ``fpr`` that an (epsilon, delta) guarantee allows; 1 for infinite epsilon."""
    return float(Ceiling.of_claim(epsilon, delta).at(fpr))


@dataclasses.dataclass(frozen=True)
class Ceiling:
    """The least of the ceilings of several guarantees that hold at once.

    Attributes:
        claims: pairs (epsilon, delta), each of which holds. None at all allows everything.
    """

    claims: tuple[Budget, ...]

    @classmethod
    def of_claim(cls, epsilon: float, delta: float) -> "Ceiling":
        """Of one guarantee; an infinite epsilon is none."""
        return cls(() if epsilon == np.inf else (Budget(epsilon, delta),))

    @classmethod
    def of_event(
        cls,
        event: DpEvent,
        *,
        accountant: str | Accountant = "pld",
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
    ) -> "Ceiling":
        """Of the whole privacy curve of what was done to the records: of its points at up to 65 epsilons.

        Each point is a guarantee by itself, for both directions, so that few points make the ceiling higher, never
        wrong.
        """
        claims = []
        for epsilon in _EPSILONS.tolist():
            delta = delta_at(event, epsilon, accountant=accountant, neighbours=neighbours)
            claims += [Budget(epsilon, delta)] if delta < 1 else []
            if delta < _NEVER:
                break
        return cls(tuple(claims))

    def at(self, fprs: npt.ArrayLike) -> FloatArray:
        """The largest true positive rates at ``fprs`` in [0, 1], in their shape."""
        rates = np.asarray(fprs, dtype=np.float64)
        if not ((rates >= 0) & (rates <= 1)).all():
            raise InputError(f"fprs={fprs!r}: must lie between 0 and 1.")
        epsilons = np.asarray([claim.epsilon for claim in self.claims]).reshape(-1, *(1,) * rates.ndim)
        deltas = np.asarray([claim.delta for claim in self.claims]).reshape(epsilons.shape)
        by_adding = np.exp(np.minimum(epsilons, _LARGEST_EXPONENT)) * rates + deltas
        by_removing = 1 - np.exp(-epsilons) * (1 - rates - deltas)
        return np.asarray(np.minimum(by_adding, by_removing).min(axis=0, initial=1.0))
