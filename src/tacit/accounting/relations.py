"""How the neighbouring relation enters an event, in one place.

Events state noise over the bound C on one record's contribution. Under add-remove and zero-out that bound is the
sensitivity of a sum; under replace-one the sensitivity is 2C. dp-accounting's RDP accountant reads a noise multiplier
as noise over sensitivity for every relation, so events are restated for it by `per_sensitivity`.
"""

import attr
from dp_accounting import DpEvent, NeighboringRelation, dp_event

from tacit.core.privacy import Neighbours

_REFERENCE = {
    Neighbours.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Neighbours.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
    Neighbours.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
}


def reference_relation(neighbours: Neighbours) -> NeighboringRelation:
    """dp-accounting's name for the relation; zeroing a record is its replacement by a special one."""
    return _REFERENCE[neighbours]


def contributions_moved(neighbours: Neighbours) -> int:
    """By how many times one record's bound a sum moves between neighbours."""
    return 2 if neighbours is Neighbours.REPLACE_ONE else 1


def per_sensitivity(event: DpEvent, neighbours: Neighbours) -> DpEvent:
    """The event with noise stated over the sensitivity under the relation, not over one record's contribution."""
    if neighbours is not Neighbours.REPLACE_ONE:
        return event
    if isinstance(event, dp_event.GaussianDpEvent | dp_event.LaplaceDpEvent):
        return attr.evolve(event, noise_multiplier=event.noise_multiplier / contributions_moved(neighbours))
    if isinstance(event, dp_event.ComposedDpEvent):
        return attr.evolve(event, events=[per_sensitivity(part, neighbours) for part in event.events])
    if hasattr(event, "event"):
        return attr.evolve(event, event=per_sensitivity(event.event, neighbours))
    return event
