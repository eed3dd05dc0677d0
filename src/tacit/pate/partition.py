"""Disjoint parts of the private records, one for each teacher."""

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.validation import check_count

Indices = npt.NDArray[np.int64]


def partition(
    examples: int, teachers: int, *, users: npt.ArrayLike | None = None, seed: int = 0
) -> tuple[Indices, ...]:
    """Which records each teacher sees.

    Guarantee: one record (or, with ``users``, all records of one person) is in one part alone, and adding it at the end
    or taking it away again moves no other record to another teacher. So one person changes one teacher's vote at most,
    whatever the relation between neighbouring data sets.

    Rows are dealt out in rounds, every round to all teachers in a new random order, so that parts differ by one record
    (by one person) at most. The order is public: it depends on ``seed`` and row numbers alone.

    Args:
        examples: the number of records.
        teachers: the number of parts; at most as many as records or persons, since each needs one to learn from.
        users: whose record each row is, in any hashable type; persons are dealt out in the order of their first rows.
        seed: of the order, public.
    """
    check_count("examples", examples)
    check_count("teachers", teachers)
    owners, count = np.arange(examples), examples
    if users is not None:
        owners, count = _numbered(np.asarray(users), examples)
    if teachers > count:
        what = "records" if users is None else "users"
        raise InputError(f"teachers={teachers}: must be at most the {count} {what}. Train fewer teachers.")
    teacher_of = _dealt_out(count, teachers, seed)[owners]
    return tuple(np.flatnonzero(teacher_of == teacher) for teacher in range(teachers))


def _dealt_out(count: int, teachers: int, seed: int) -> Indices:
    """The teacher of each of ``count`` persons; the first k of them get the same whatever the count."""
    stream = np.random.Generator(np.random.Philox(key=np.array([seed, teachers], dtype=np.uint64)))
    rounds = [stream.permutation(teachers) for _ in range(-(-count // teachers))]
    return np.concatenate(rounds)[:count]


def _numbered(users: np.ndarray, examples: int) -> tuple[Indices, int]:
    """Persons by the order in which they appear first."""
    if users.shape != (examples,):
        raise InputError(f"users of shape {users.shape}: must name the owner of each of the {examples} records.")
    _, first, inverse = np.unique(users, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse], len(first)
