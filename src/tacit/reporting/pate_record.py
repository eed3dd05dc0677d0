"""What the page of a PATE run may know: each key that is read stands in this file."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.core.errors import InputError
from tacit.reporting.record import HARDWARE_KEYS, VERSION_KEYS, mapping, number, picked, text

Curve = tuple[tuple[float, float], ...]
"""Points from left to right."""

PLAN_KEYS: Mapping[str, str] = {
    "aggregator": "Aggregator",
    "teachers": "Teachers",
    "teacher_model": "Teachers’ model",
    "student": "Student",
    "student_model": "Student’s model",
    "selection": "Which inputs are asked",
    "rounds": "Rounds of questions",
    "public_inputs": "Public inputs",
    "neighbours": "Neighbouring relation",
    "unit": "Privacy unit",
    "delta": "Delta",
}


@dataclasses.dataclass(frozen=True)
class VoteRecord:
    """What was computed from votes without noise: for the owner of the data only, since no budget paid for it.

    Read from the key ``private`` of a record.

    Attributes:
        epsilon: ``epsilon``: for these votes, at the record's delta.
        teacher_accuracy: ``teacher_accuracy``: the mean over the teachers, on public inputs.
        plurality_accuracy: ``plurality_accuracy``: of the votes without noise, on public inputs.
        agreement: ``agreement_histogram``: how many inputs had so many teachers on their first class, in bins of equal
            width from 0 to the number of teachers.
        gaps: ``gaps``: for each input, how many more votes its first class had than its second.
        accuracy_by_gamma: ``gammas`` and ``aggregate_accuracy_by_gamma``: how often the noisy first class is right,
            where Laplace noise of scale 1 / gamma is added.
        epsilon_by_queries: ``epsilon_by_queries``: a list of ``{"queries": n, "epsilon": e}``, for these votes.
    """

    epsilon: float | None
    teacher_accuracy: float | None
    plurality_accuracy: float | None
    agreement: tuple[float, ...]
    gaps: tuple[float, ...]
    accuracy_by_gamma: Curve
    epsilon_by_queries: Curve


@dataclasses.dataclass(frozen=True)
class PateRecord:
    """A PATE run as its page shows it, from plain JSON values under these keys.

    Everything here but ``votes`` is public or computed from noisy answers alone.

    Attributes:
        dataset: ``dataset``: its name.
        sentence, caveats: ``statement``, a mapping with ``sentence`` and ``caveats``.
        epsilon: ``epsilon_data_independent``: whatever the votes, at ``delta``.
        epsilon_released: ``epsilon_released``: for these votes, with the noise that makes it public. May be missing.
        delta: ``delta``.
        teachers: ``teachers``: how many vote.
        queries, answered: ``queries`` and ``answered``: how many were asked and answered.
        noise_deviation: ``noise_deviation``: the standard deviation of the noise on a count of votes.
        student_accuracy: ``student_accuracy``: on examples that nobody saw.
        aggregator_accuracy: ``aggregator_accuracy``: of the noisy answers.
        student_curve: ``student_curve``: a list of ``{"step": n, "accuracy": a}``.
        epsilon_by_queries: ``epsilon_by_queries``: a list of ``{"queries": n, "epsilon": e}``, whatever the votes.
        seconds, command, created, seed: under their names.
        plan: ``plan``: those of `PLAN_KEYS` that are given.
        versions, hardware: under their names, the keys that reports of runs show as well.
        votes: ``private``; None where it is missing or was left out.
    """

    dataset: str
    sentence: str
    caveats: tuple[str, ...]
    epsilon: float | None
    epsilon_released: float | None
    delta: float | None
    teachers: int
    queries: int
    answered: int
    noise_deviation: float | None
    student_accuracy: float | None
    aggregator_accuracy: float | None
    student_curve: Curve
    epsilon_by_queries: Curve
    seconds: float | None
    command: str
    created: str
    seed: str
    plan: Mapping[str, Any]
    versions: Mapping[str, Any]
    hardware: Mapping[str, Any]
    votes: VoteRecord | None


def read_pate_record(values: Mapping[str, Any], *, public: bool = False) -> PateRecord:
    """The record of a run.

    Args:
        values: plain JSON values.
        public: leaves out what was computed from votes without noise: that key is not even looked at.

    Raises:
        InputError: the statement or a count is missing, or two lists that belong together differ in length.
    """
    statement = mapping(values.get("statement"))
    if not statement.get("sentence"):
        raise InputError("record: has no statement. Run again: a report without its statement says nothing.")
    return PateRecord(
        dataset=text(values.get("dataset")),
        sentence=str(statement["sentence"]),
        caveats=tuple(str(caveat) for caveat in statement.get("caveats") or ()),
        epsilon=number(values.get("epsilon_data_independent")),
        epsilon_released=number(values.get("epsilon_released")),
        delta=number(values.get("delta")),
        teachers=_count(values, "teachers"),
        queries=_count(values, "queries"),
        answered=_count(values, "answered"),
        noise_deviation=number(values.get("noise_deviation")),
        student_accuracy=number(values.get("student_accuracy")),
        aggregator_accuracy=number(values.get("aggregator_accuracy")),
        student_curve=_curve(values.get("student_curve"), "step", "accuracy"),
        epsilon_by_queries=_curve(values.get("epsilon_by_queries"), "queries", "epsilon"),
        seconds=number(values.get("seconds")),
        command=text(values.get("command")),
        created=text(values.get("created")),
        seed=text(values.get("seed")),
        plan=picked(values.get("plan"), PLAN_KEYS),
        versions=picked(values.get("versions"), VERSION_KEYS),
        hardware=picked(values.get("hardware"), HARDWARE_KEYS),
        votes=None if public or not values.get("private") else _votes(mapping(values["private"])),
    )


def _votes(values: Mapping[str, Any]) -> VoteRecord:
    gammas, accuracies = _numbers(values.get("gammas")), _numbers(values.get("aggregate_accuracy_by_gamma"))
    if len(gammas) != len(accuracies):
        raise InputError(
            f"aggregate_accuracy_by_gamma: {len(accuracies)} numbers for {len(gammas)} gammas. Give one for each."
        )
    return VoteRecord(
        epsilon=number(values.get("epsilon")),
        teacher_accuracy=number(values.get("teacher_accuracy")),
        plurality_accuracy=number(values.get("plurality_accuracy")),
        agreement=_numbers(values.get("agreement_histogram")),
        gaps=_numbers(values.get("gaps")),
        accuracy_by_gamma=tuple(sorted(zip(gammas, accuracies, strict=True))),
        epsilon_by_queries=_curve(values.get("epsilon_by_queries"), "queries", "epsilon"),
    )


def _count(values: Mapping[str, Any], key: str) -> int:
    found = number(values.get(key))
    if found is None or found < 0:
        raise InputError(f"{key}={values.get(key)!r} in the record: must be a count. Run again.")
    return int(found)


def _numbers(value: object) -> tuple[float, ...]:
    """The finite numbers of a list; one that holds anything else is no list of numbers."""
    given: Sequence[Any] = value if isinstance(value, list | tuple) else ()
    found = [number(item) for item in given]
    if None in found:
        raise InputError("record: a list of numbers holds something else. Run again.")
    return tuple(item for item in found if item is not None)


def _curve(value: object, across: str, up: str) -> Curve:
    """Points with both numbers, from left to right; others are passed over, such as an epsilon that is infinite."""
    points = [mapping(point) for point in value] if isinstance(value, list | tuple) else []
    pairs = [(number(point.get(across)), number(point.get(up))) for point in points]
    return tuple(sorted((x, y) for x, y in pairs if x is not None and y is not None))
