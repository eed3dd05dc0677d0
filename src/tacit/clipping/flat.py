"""Clipping of the whole gradient at one norm."""

import dataclasses
from collections.abc import Collection

from tacit.clipping.bound import BoundClipping, check_names, shrink
from tacit.core.validation import check_positive


@dataclasses.dataclass(frozen=True)
class Flat:
    r"""Scales an example's whole gradient g by :math:`\min(1, C / \|g\|_2)`.

    Sensitivity of the sum: C when an example is added, removed or zeroed, 2C when it is replaced.

    Reference: Abadi et al., Deep Learning with Differential Privacy, 2016, https://arxiv.org/abs/1607.00133.

    Args:
        bound: C, above 0.
    """

    bound: float

    def __post_init__(self) -> None:
        check_positive("bound", self.bound, remedy="Typical clipping norms lie between 0.01 and 10.")

    def bind(self, names: Collection[str]) -> BoundClipping:
        """One group that holds every parameter."""
        return BoundClipping(groups=(check_names(names),), bounds=(float(self.bound),), rule=shrink)

    def describe(self) -> str:
        """A clause for statements and reports."""
        return f"flat clipping at norm {self.bound:g}"
