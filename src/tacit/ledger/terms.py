"""What an account was opened for: these values never change."""

import dataclasses
import enum
from typing import Any

from tacit.core.privacy import Budget, Neighbours, PrivacyUnit


class Rule(enum.Enum):
    """How an account decides what the budget holds.

    - ``FIXED_PLAN``: privacy loss distributions of everything together, the tightest. It is proven where the parameters
      of every run were declared before the first result was seen.
    - ``ADAPTIVE``: a Rényi filter. It is proven also where each run is planned from the results of earlier ones.
    """

    FIXED_PLAN = "fixed-plan"
    ADAPTIVE = "adaptive"


@dataclasses.dataclass(frozen=True)
class Terms:
    """What may be spent on a data set, for whom, and by which rule.

    Attributes:
        dataset: the name of the data set.
        budget: the limit, for one ``unit`` under ``neighbours``; None for no limit.
        unit, neighbours: what the budget protects, against which change.
        rule: how spending is added up.
    """

    dataset: str
    budget: Budget | None
    unit: PrivacyUnit
    neighbours: Neighbours
    rule: Rule

    def to_dict(self) -> dict[str, Any]:
        """The terms as plain JSON values."""
        return {
            "dataset": self.dataset,
            "epsilon": None if self.budget is None else float(self.budget.epsilon),
            "delta": None if self.budget is None else float(self.budget.delta),
            "neighbours": self.neighbours.value,
            "unit_name": self.unit.name,
            "unit_max_examples": self.unit.max_examples,
            "rule": self.rule.value,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Terms":
        """The terms behind `to_dict`; a KeyError, TypeError or ValueError where there are none."""
        dataset, name = values["dataset"], values["unit_name"]
        if not (isinstance(dataset, str) and dataset and isinstance(name, str)):
            raise TypeError("dataset and unit_name must be texts")
        epsilon, delta = values["epsilon"], values["delta"]
        return cls(
            dataset=dataset,
            budget=None if epsilon is None and delta is None else Budget(epsilon, delta),
            unit=PrivacyUnit(name, values["unit_max_examples"]),
            neighbours=Neighbours(values["neighbours"]),
            rule=Rule(values["rule"]),
        )
