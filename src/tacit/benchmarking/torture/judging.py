"""What must be true of a trial after every death and at its end.

The noise is observed from outside, in the noisy gradients that every step leaves. Two gradients of a trial must be the
same to the last bit and of the same step (a replay), or so far apart that they cannot hold the same noise: two sums of
n clipped gradients differ by at most 2 n C, and independent noise by about sigma C sqrt(2 d), far more. So noise that
is used again is found on another sum of the same step and on another step.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tacit.benchmarking.torture.processes import REFUSED, Ended
from tacit.benchmarking.torture.victim import AHEAD, CLIP, DIVISOR, NOISE, NUMBERS, RECORDS, STEPS, Trial, epsilon_of
from tacit.ledger import Entry, EntryState

_SUMS_APART = 2 * RECORDS * CLIP
_NOISE_APART = NOISE * CLIP * math.sqrt(2 * NUMBERS)
_SAME_EPSILON = 1e-3  # compositions in another order differ by their discretisation


def marked(entries: Sequence[Entry]) -> int:
    """How many steps the ledger says may have drawn noise."""
    return sum(entry.steps_drawn if entry.state is EntryState.RESERVED else entry.steps_charged for entry in entries)


def after_a_death(trial: Trial) -> Iterator[str]:
    """What is wrong with what a process left behind: noise that the ledger does not know of, or that came twice."""
    drawn, known = set(trial.observed), marked(trial.entries())
    if len(drawn) > known:
        yield f"{len(drawn)} noisy gradients were seen, and the ledger knows of {known}"
    yield from same_or_far_apart(drawn)


def after_the_first_death(trial: Trial) -> Iterator[str]:
    """What is wrong with the order of mark and noise, where all noise of the run was counted as it was drawn."""
    noises, known = trial.observed.noises, marked(trial.entries())
    if noises > known:
        yield f"noise was drawn {noises} times, and the ledger knows of {known}"


def refusal(ended: Ended) -> Iterator[str]:
    """What is wrong with how a process that could not go on said so."""
    if ended.status == REFUSED and ("\n" in ended.said or ". " not in ended.said):
        yield f"a refusal is unclear: {ended.said!r}"


def at_the_end(trial: Trial, weights: bytes, reference: bytes) -> Iterator[str]:
    """What is wrong with a trial whose run has ended."""
    account = trial.account()
    entries = account.entries()
    charged = sum(entry.steps_charged for entry in entries)
    if any(entry.state is EntryState.RESERVED for entry in entries):
        yield "a reservation is still open"
    if trial.key.exists():
        yield "the key is still there"
    spent = account.spent()
    if account.budget is not None and spent > account.budget.epsilon:
        yield "the budget is exceeded"
    expected = epsilon_of(charged) if charged else 0.0
    if abs(spent - expected) > _SAME_EPSILON * expected:
        yield f"epsilon is {spent:.6g}, and that of {charged} steps is {expected:.6g}"
    yield from after_a_death(trial)
    if trial.kind != "redrawn":
        if charged != STEPS:
            yield f"{charged} steps are charged, and the run has {STEPS}"
    else:
        drawn, stretches = len(set(trial.observed)), len(entries)
        unseen = AHEAD * (stretches - 1)  # each stretch but the last may end between a mark and our look at its steps
        if charged - drawn > unseen:
            yield f"{charged} steps are charged, and {drawn} were drawn in {stretches} stretches"
    if trial.kind == "seeded" and weights != reference:
        yield "the weights are not those of the uninterrupted run"


def same_or_far_apart(drawn: set[tuple[int, bytes]]) -> Iterator[str]:
    """Names the steps of which two gradients hold the same noise."""
    steps = [step for step, _ in sorted(drawn)]
    sums = np.frombuffer(b"".join(gradient for _, gradient in sorted(drawn))).reshape(-1, NUMBERS) * DIVISOR
    for place, step in enumerate(steps):
        distances = np.linalg.norm(sums[:place] - sums[place], axis=1)
        for other in np.flatnonzero(distances < (_SUMS_APART + _NOISE_APART) / 2):
            yield f"steps {steps[other]} and {step}: two different sums have the same noise"
