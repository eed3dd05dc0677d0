"""All answers of a session as plain values, for printing, for files and for pages."""

import dataclasses
import datetime
from typing import Any

from tacit.queries.curves import compare_mechanisms
from tacit.queries.listing import Listed
from tacit.queries.query import Setting
from tacit.queries.session import Session


def answer_all(session: Session, listed: Listed, confidence: float, *, compared: bool) -> dict[str, Any]:
    """Asks all queries, or none where the budget does not hold them together or a cell cannot be read.

    Args:
        session: whom to ask.
        listed: what to ask.
        confidence: of the intervals.
        compared: whether each answer comes with a ``comparison`` of both mechanisms, for a page.

    Returns:
        ``answers``: as `Answer.to_dict` gives them. Where there are several, ``composition`` is their epsilon by
        theorem at ``delta``, ``epsilon`` that of privacy loss distributions, and ``statement`` says it in words.
    """
    pairs = [(priced.query, session.terms(priced.epsilon, priced.delta, priced.mechanism)) for priced in listed.queries]
    answers = []
    for (query, terms), answer in zip(pairs, session.ask_all(pairs, confidence=confidence), strict=True):
        found = answer.to_dict()
        if compared:
            found["comparison"] = compare_mechanisms(query, Setting(session.table.schema, terms, confidence), answer)
        answers.append(found)
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
