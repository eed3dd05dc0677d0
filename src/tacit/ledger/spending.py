"""What a list of events costs together, for the unit and the relation of an account."""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from importlib import metadata

import dp_accounting

from tacit.accounting import ACCOUNTANTS, epsilon, event_from_json, event_to_json
from tacit.accounting.groups import for_unit
from tacit.core.errors import LedgerError
from tacit.core.privacy import Neighbours, PrivacyUnit

EventFor = Callable[[int], dp_accounting.DpEvent]
"""The event of the first k steps of a run, for each k of at least 1."""

Events = Counter[str]
"""How often each encoded event counts."""


def repeated(step_event: dp_accounting.DpEvent) -> EventFor:
    """The event of k steps that each are ``step_event``."""
    return lambda steps: dp_accounting.SelfComposedDpEvent(step_event, steps)


def encode_event(event: dp_accounting.DpEvent) -> str:
    """An event as text; equal events have equal texts."""
    return json.dumps(event_to_json(event), sort_keys=True)


@functools.lru_cache(maxsize=1024)
def event_key(text: str) -> str:
    """A short name of an encoded event, for those who count its cost as this version does."""
    versions = " ".join(metadata.version(package) for package in ("tacit", "dp-accounting"))
    return hashlib.sha256(f"{versions} {text}".encode("utf-8", "surrogatepass")).hexdigest()


@functools.lru_cache(maxsize=1024)
def decode_event(text: str) -> dp_accounting.DpEvent:
    """The event behind `encode_event`'s text; a `LedgerError` where there is none."""
    try:
        return event_from_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise LedgerError(
            f"ledger: the event of an entry cannot be read ({error}). Restore the file from a backup."
        ) from error


def compose(events: Events) -> dp_accounting.DpEvent:
    """One event for all, equal ones counted rather than repeated: an accountant pays for each kind once."""
    parts = [
        decode_event(text) if count == 1 else dp_accounting.SelfComposedDpEvent(decode_event(text), count)
        for text, count in events.items()
    ]
    if not parts:
        return dp_accounting.NoOpDpEvent()
    return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(parts)


def unit_epsilon(event: dp_accounting.DpEvent, delta: float, *, neighbours: Neighbours, unit: PrivacyUnit) -> float:
    """An upper bound on epsilon at ``delta`` for one whole privacy unit; infinite where there is none.

    By privacy loss distributions, or by Rényi divergences where those do not cover the event; for a unit of
    several examples by group privacy (Vadhan 2017, lemma 2.2), which multiplies a pure epsilon by their
    number. That lemma knows the privacy curve of one example and nothing else, so it holds for every event, and is
    above what a unit really costs: Gaussian noise without sampling, for one, has the curve of so many times the
    sensitivity. That curve is not taken where it is known, because one sampled run beside it would then raise what was
    already spent. A plan that bounds the whole unit itself (one clipped contribution of each user) has a unit of one.
    """
    name = "pld" if ACCOUNTANTS["pld"].supports(event, neighbours) else "rdp"
    if delta == 0:
        return unit.max_examples * epsilon(event, delta, accountant=name, neighbours=neighbours)
    accountant = for_unit(ACCOUNTANTS[name], unit.max_examples)
    return epsilon(event, delta, accountant=accountant, neighbours=neighbours)
