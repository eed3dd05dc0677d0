"""All answers of a session as plain values, for printing, for files and for pages."""

import dataclasses
import datetime
from typing import Any

from tacit.queries.curves import compare_mechanisms
from tacit.queries.listing import Listed
from tacit.queries.query import Setting
from tacit.queries.session import Session


def answer_all(session: Session, listed: Listed, confidence: float) -> dict[str, Any]:
    """Asks all queries, or none where the budget does not hold them together.

    Returns:
        ``answers``: as `Answer.to_dict` gives them, with ``comparison`` of both mechanisms (`compare_mechanisms`) at
        the end of each. ``composition``: epsilon by theorem at ``composition_delta``, where there are several answers.
    """
    pairs = [(priced.query, session.terms(priced.epsilon, priced.delta, priced.mechanism)) for priced in listed.queries]
    session.require(pairs)
    answers = []
    for query, terms in pairs:
        answer = session.ask(query, terms, confidence=confidence)
        comparison = compare_mechanisms(query, Setting(session.table.schema, terms, confidence), answer)
        answers.append(answer.to_dict() | {"comparison": comparison})
    record: dict[str, Any] = {
        "table": session.table.name,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "answers": answers,
    }
    if len(answers) > 1:
        composition = session.composition(listed.delta)
        record |= {"composition": dataclasses.asdict(composition), "delta": listed.delta, "epsilon": composition.pld}
        record["statement"] = str(session.statement(listed.delta))
    return record
