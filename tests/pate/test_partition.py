"""One person is in one part alone, and moves nobody else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core import InputError
from tacit.pate import partition


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


def test_a_person_is_in_one_part_with_all_records():
    users = np.array(["b", "a", "b", "c", "a", "d", "b"])
    parts = partition(7, 3, users=users)
    for name in "abcd":
        holders = {k for k, part in enumerate(parts) if name in users[part]}
        assert len(holders) == 1


@given(st.lists(st.integers(0, 12), min_size=6, max_size=60))
def test_a_person_more_changes_one_part_alone(owners):
    teachers = min(3, len(set(owners)))
    before = partition(len(owners), teachers, users=owners)
    after = partition(len(owners) + 2, teachers, users=[*owners, 99, 99])
    assert sum(a.tolist() != b.tolist() for a, b in zip(after, before, strict=True)) == 1


def test_the_seed_is_public_and_decides():
    first, same, other = (partition(50, 5, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_bad_input_is_named():
    with pytest.raises(InputError, match="teachers=4: must be at most the 2 users"):
        partition(5, 4, users=[1, 1, 2, 2, 2])
    with pytest.raises(InputError, match=r"users of shape \(3,\): must name the owner of each of the 5 records"):
        partition(5, 2, users=[1, 2, 3])
    with pytest.raises(InputError, match="teachers"):
        partition(5, 0)
