"""One person is in one part alone, and moves nobody else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core import InputError
from tacit.pate import partition, partition_by_identity


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 5))
def test_parts_are_disjoint_balanced_and_hold_everybody(examples, teachers, seed):
    if teachers > examples:
        with pytest.raises(InputError, match=f"teachers={teachers}: must be at most the {examples} records"):
            partition(examples, teachers, seed=seed)
        return
    parts = partition(examples, teachers, seed=seed)
    assert len(parts) == teachers
    assert sorted(np.concatenate(parts).tolist()) == list(range(examples))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(2, 200), st.integers(1, 20), st.integers(0, 5))
def test_another_record_changes_one_part_alone(examples, teachers, seed):
    if teachers >= examples:
        return
    before, after = partition(examples - 1, teachers, seed=seed), partition(examples, teachers, seed=seed)
    changed = [k for k in range(teachers) if before[k].tolist() != after[k].tolist()]
    assert len(changed) == 1
    assert set(after[changed[0]]) - set(before[changed[0]]) == {examples - 1}


def held(owners: list[int], parts: tuple[np.ndarray, ...]) -> list[list[int]]:
    """Whose records each teacher sees."""
    return [sorted(owners[row] for row in part) for part in parts]


@given(st.lists(st.integers(0, 40), min_size=40, max_size=80, unique_by=lambda owner: owner % 41), st.data())
def test_whoever_joins_anywhere_changes_one_part_alone(owners, data):
    place = data.draw(st.integers(0, len(owners)))
    joined = [*owners[:place], 99, 99, *owners[place:]]
    before, after = (held(each, partition_by_identity(each, 2)) for each in (owners, joined))
    changed = [k for k in range(2) if before[k] != after[k]]
    assert len(changed) == 1
    assert sorted([*before[changed[0]], 99, 99]) == after[changed[0]]


def test_dealing_places_out_would_move_everybody_behind():
    owners = list(range(40))
    before, after = (held(each, partition(len(each), 4)) for each in (owners, owners[1:]))
    assert sum(a != b for a, b in zip(after, before, strict=True)) > 1


def test_hashed_parts_are_about_equal_and_all_records_of_one_owner_stay_together():
    owners = [f"user {k // 3}" for k in range(9000)]
    parts = partition_by_identity(owners, 30)
    assert sorted(np.concatenate(parts).tolist()) == list(range(9000))
    sizes = np.array([len(part) for part in parts])
    assert abs(sizes - 300).max() < 5 * np.sqrt(100) * 3
    homes = {owner: {k for k, part in enumerate(parts) if owners.index(owner) in part} for owner in set(owners[:30])}
    assert all(len(home) == 1 for home in homes.values())


def test_the_seed_is_public_and_decides():
    first, same, other = (partition(50, 5, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_bad_input_is_named():
    with pytest.raises(InputError, match=r"teachers=4: [23] of them have no record. Train fewer"):
        partition_by_identity([1, 1, 2, 2, 2], 4)
    with pytest.raises(InputError, match="teachers"):
        partition(5, 0)
