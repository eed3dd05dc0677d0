"""Neighbouring votes, for the slow oracles of PATE's bounds."""

import itertools


def moved_votes(row: list[int]) -> list[list[int]]:
    """Every vector of counts that one teacher who votes otherwise makes of this one."""
    found = []
    for source, target in itertools.permutations(range(len(row)), 2):
        if row[source]:
            other = list(row)
            other[source] -= 1
            other[target] += 1
            found.append(other)
    return found
