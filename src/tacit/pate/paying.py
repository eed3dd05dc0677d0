"""Who pays for a run of PATE, and what is asked of the account before anybody learns."""

from collections.abc import Sequence

from dp_accounting import ComposedDpEvent, DpEvent

from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours
from tacit.ledger import Account
from tacit.pate.answering import Terms, event_of
from tacit.pate.plan import Pate
from tacit.pate.publishing import Publication


def terms_for(pate: Pate, account: Account | None = None, *, run: str = "pate") -> Terms:
    """Who pays, for what the voters of a run protect, under the account's relation or else their own."""
    neighbours = pate.voters.relations[0] if account is None else account.neighbours
    return Terms(account, neighbours, pate.voters.unit, run)


def check_terms(terms: Terms, pate: Pate, publication: Publication | None) -> None:
    """Refuses before anybody learns what the publication or the first question would refuse."""
    _check_relation(terms.neighbours, pate)
    if terms.account is not None:
        events = [event_of(pate.aggregator, terms.neighbours, 1, 1)]
        events += [] if publication is None else [publication.event]
        terms.account.require(ComposedDpEvent(events), neighbours=terms.neighbours, unit=terms.unit)


def require_runs(runs: Sequence[Pate], account: Account | None) -> None:
    """Refuses now what would end the questions of one of these runs before its last, however the votes may be.

    A single run asks as many questions as the account still holds. Several that are to be compared ask all of theirs,
    and none is paid for in vain because a later one is refused.

    Raises:
        InputError: a relation under which one person would move more than one vote.
        BudgetExceededError: the account does not hold all of it; nothing was spent.
    """
    if account is None:
        return
    for pate in runs:
        _check_relation(account.neighbours, pate)
    everything = ComposedDpEvent([event for pate in runs for event in _most(pate, account.neighbours)])
    account.require(everything, neighbours=account.neighbours, unit=runs[0].voters.unit)


def _most(pate: Pate, neighbours: Neighbours) -> list[DpEvent]:
    """What a run costs where every question is answered."""
    events = [event_of(aggregator, neighbours, questions, questions) for aggregator, questions in pate.asking]
    return events + ([Publication.planned(pate.asking, pate.delta).event] if pate.publish_epsilon else [])


def _check_relation(neighbours: Neighbours, pate: Pate) -> None:
    if neighbours not in pate.voters.relations:
        known = ", ".join(relation.value for relation in pate.voters.relations)
        raise InputError(
            f"neighbours={neighbours.value!r}: these voters protect under {known}, since records are dealt out "
            "by their places. Take one of these, or name the owners of the records."
        )
