"""An event for "one of these happens to a record, and which one it is does not depend on the data"."""

from collections.abc import Sequence

import attr
from dp_accounting import DpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class WorstOfDpEvent(DpEvent):  # type: ignore[misc]  # dp-accounting carries no types
    r"""One of several events, whichever is the worst for the record in question.

    It describes two things whose Rényi divergence is at most the largest of the parts' at each order:

    - **parallel composition**: disjoint parts of the records go into different mechanisms, by a public rule that gives
      each record its place whatever the others are. One record changes one of them alone;
    - **a public coin**: a choice by chance among mechanisms, made without the data and published with the result. With
      probabilities :math:`w_i` the moment :math:`e^{(\alpha-1)D_\alpha}` is :math:`\sum_i w_i
      e^{(\alpha-1)D_{\alpha,i}}`, a mean.

    Attributes:
        events: at least one.
    """

    events: Sequence[DpEvent]
