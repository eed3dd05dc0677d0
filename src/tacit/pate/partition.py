"""Disjoint parts of the private records, one for each teacher.

What one person changes depends on how they are counted. Where the rows are public places and a neighbour has another
record in one of them, or none (replace-one, zero-out), `partition` deals places out in equal shares. Where a neighbour
has a row more or less, anywhere (add-remove), rows behind it move up, and only who a record is may decide:
`partition_by_identity`.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tacit.core.errors import InputError
from tacit.core.validation import check_count

Indices = npt.NDArray[np.int64]


def partition(examples: int, teachers: int, *, seed: int = 0) -> tuple[Indices, ...]:
    """Which rows each teacher sees, by their numbers alone: parts differ by one row at most.

    Guarantee: a record that is replaced or emptied in its place, or added at the end, changes one part alone, so that
    it changes one teacher's vote at most.

    Rows are dealt out in rounds, every round to all teachers in a new random order that is public.

    Args:
        examples: the number of records.
        teachers: the number of parts; at most as many as records, since each needs one to learn from.
        seed: of the order, public.
    """
    check_count("examples", examples)
    if check_count("teachers", teachers) > examples:
        raise InputError(f"teachers={teachers}: must be at most the {examples} records. Train fewer teachers.")
    stream = np.random.Generator(np.random.Philox(key=np.array([seed, teachers], dtype=np.uint64)))
    rounds = [stream.permutation(teachers) for _ in range(-(-examples // teachers))]
    return _parts(np.concatenate(rounds)[:examples], teachers)


def partition_by_identity(owners: Iterable[str | int | bytes], teachers: int, *, seed: int = 0) -> tuple[Indices, ...]:
    """Which rows each teacher sees, by whose they are: all records of one owner go to one teacher.

    Guarantee: an owner who joins or leaves, with any number of rows anywhere, changes one part alone. A hash of the
    owner chooses the teacher, so that parts are of about equal size but not exactly; one without any record is refused.

    Args:
        owners: of each row, such as user names; or the record itself as bytes, which protects records.
        teachers: the number of parts.
        seed: of the hash, public.
    """
    check_count("teachers", teachers)
    chosen = np.array([_hashed(owner, seed) % teachers for owner in owners], dtype=np.int64)
    parts = _parts(chosen, teachers)
    empty = sum(len(part) == 0 for part in parts)
    if empty:
        raise InputError(f"teachers={teachers}: {empty} of them have no record. Train fewer teachers.")
    return parts


def read_owners(path: Path) -> list[str]:
    """Whose each row is, from a file with one name a line; a line without a name is refused."""
    try:
        names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"owners={str(path)!r}: cannot be read as text ({error}). Give one name a line.") from error
    if "" in names:
        raise InputError(f"owners={str(path)!r}: line {names.index('') + 1} is empty. Give one name a line.")
    return names


def _parts(teacher_of: Indices, teachers: int) -> tuple[Indices, ...]:
    return tuple(np.flatnonzero(teacher_of == teacher) for teacher in range(teachers))


def _hashed(owner: str | int | bytes, seed: int) -> int:
    content = owner if isinstance(owner, bytes) else repr(owner).encode()
    return int.from_bytes(hashlib.blake2b(content, key=str(seed).encode(), digest_size=16).digest())
