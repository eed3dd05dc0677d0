"""Small tables, and what a fit says about them: everything it releases, and how likely that was under another table."""

import dataclasses
import math

import numpy as np
from scipy import stats

from tacit.core.randomness import Randomness
from tacit.linear.fitting import problem_of
from tacit.linear.guarantee import Spending, Terms
from tacit.linear.rows import Block, PublicScale, targets_on_grid


def as_examples(inputs, targets, *, scale=None, classes=0, blocks=1):
    """Rows on the grid, in one block or several, with their scale."""
    inputs = np.asarray(inputs, dtype=np.float64)
    scale = scale or PublicScale.box(-np.ones(inputs.shape[1]), np.ones(inputs.shape[1]))
    design = scale.on_grid(inputs)
    codes = np.asarray(targets, dtype=np.int64) if classes else targets_on_grid(np.asarray(targets, float), (-1, 1))
    parts = np.array_split(np.arange(len(codes)), blocks)

    def examples():
        for part in parts:
            yield Block(design[part], codes[part])

    return examples, scale


class Recorded(Spending):
    """Keeps what was noised and what was released."""

    def __init__(self, mechanisms, guarantee, randomness=None):
        super().__init__(mechanisms, guarantee, Terms(), randomness or Randomness())
        self.exact, self.released = [], []

    def release(self, values):
        noised = super().release(values)
        self.exact.append(np.asarray(values))
        self.released.append(noised)
        return noised


class Replayed:
    """Answers as recorded, and keeps what would have been noised."""

    def __init__(self, mechanisms, guarantee, released):
        self.mechanisms, self.guarantee = mechanisms, guarantee
        self._left = list(released)
        self.exact = []

    def release(self, values):
        self.exact.append(np.asarray(values))
        return self._left.pop(0)


def losses(method, problem, guarantee, tables, *, noise, laplace, repeats):
    """How much likelier the releases of many fits on one table, and of many on another, are under the one.

    These are logarithms by the noise as it was planned; fits add that, or a part of it.
    """
    planned = method.mechanisms(problem, guarantee)
    drawn = [dataclasses.replace(mechanism, scale=float(mechanism.scale) * noise) for mechanism in planned]
    found = np.empty((2, repeats))
    for fitted, number in np.ndindex(found.shape):
        recorded = Recorded(drawn, guarantee, Randomness(unsafe_seed=fitted * repeats + number))
        method.fit(problem, tables[fitted], recorded)
        replayed = Replayed(drawn, guarantee, recorded.released)  # on its own table it would find what was recorded
        method.fit(problem, tables[1 - fitted], replayed)
        likelier = _likelier(planned, recorded.released, recorded.exact, replayed.exact, 1 if laplace else 2)
        found[fitted, number] = likelier if fitted == 0 else -likelier
    return found


def _likelier(mechanisms, released, exact, others, power):
    """The logarithm of how much likelier these releases are from the one numbers than from the others."""
    total = 0.0
    for mechanism, answer, one, other in zip(mechanisms, released, exact, others, strict=True):
        distances = [np.abs((answer - values).astype(np.float64)) / float(mechanism.scale) for values in (one, other)]
        total += float(np.sum(distances[1] ** power - distances[0] ** power)) / power
    return total


def small_problem(scale, classes=0):
    return problem_of(scale, classes=classes, examples=3)


def binomial_bounds(hits, count, confidence=0.99):
    """Clopper and Pearson's interval."""
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(stats.beta.ppf(tail, hits, count - hits + 1))
    high = 1.0 if hits == count else float(stats.beta.ppf(1 - tail, hits + 1, count - hits))
    return low, high


def delta_shown(hits, other_hits, count, epsilon):
    """What delta the counts prove at epsilon, at the least: P[S] - e^epsilon P'[S] with confidence."""
    return binomial_bounds(hits, count)[0] - math.exp(epsilon) * binomial_bounds(other_hits, count)[1]
