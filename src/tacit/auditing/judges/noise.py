"""Is the noise what the plan says, on every number, in every step, and drawn once?"""

import itertools
import random
from collections.abc import Sequence

import numpy as np
import torch

from tacit.auditing.judges.subject import Subject, noise_of
from tacit.auditing.judges.verdict import (
    Evidence,
    Numbers,
    Verdict,
    alike_p_values,
    scale_p_value,
    shape_p_value,
)
from tacit.core.randomness import Randomness

_STEPS_OF_EACH_RUN = 8
_COMPARED = 64  # numbers of a parameter, in every step, that are compared with another parameter's


def judge_noise(subject: Subject) -> Verdict:
    r"""Accuses a run whose noise is not :math:`N(0, \sigma^2 \Delta^2)` on each number, independently.

    Here :math:`\sigma` is the plan's noise multiplier and :math:`\Delta` the sensitivity that its clipping states. The
    noise is seen as what a step released, less what each drawn record adds on its own. Tested are its size over all
    numbers, in each step and in each parameter; its shape; and that no two steps and no two parameters share it.

    How small an error is found depends on how many numbers there are, steps times parameters (`missed_scale`): 10,000
    find 0.9 and 1.1 of the scale with near certainty, 2,500 find 0.8 and 1.2.
    """
    noise, scale = noise_of(subject), subject.plan.noise_multiplier * subject.sensitivity()
    evidence = Evidence()
    off = float(np.sqrt(np.mean(np.square(noise)))) / scale
    evidence.add(f"noise of {off:.3g} times its scale", scale_p_value(noise, scale))
    by_step = [scale_p_value(row, scale) for row in noise]
    step = int(np.argmin(by_step))
    evidence.add(f"the size of the noise of step {step}", by_step[step], len(by_step))
    by_part = [scale_p_value(noise[:, part], scale) for part in subject.parts()]
    part = int(np.argmin(by_part))
    evidence.add(f"the size of the noise of parameter number {part}", by_part[part], len(by_part))
    evidence.add("the distribution of the noise", shape_p_value(noise, scale))
    _add_steps_alike(evidence, noise)
    _add_parts_alike(evidence, noise, subject.parts())
    return evidence.verdict("noise")


def judge_reuse(subject: Subject) -> Verdict:
    """Accuses two runs that share noise: both from one source, and with all global generators seeded alike.

    A noise that can be found a second time, or be drawn again from a seed, can be subtracted.
    """
    source, state = Randomness(), _global_generators()
    try:
        runs = []
        for _ in range(2):
            _seed_global_generators()
            runs.append(noise_of(subject, steps=_STEPS_OF_EACH_RUN, randomness=source))
    finally:
        _restore_global_generators(state)
    evidence = Evidence()
    _add_steps_alike(evidence, np.concatenate(runs))
    return evidence.verdict("reuse")


def _add_steps_alike(evidence: Evidence, noise: Numbers) -> None:
    first, second = np.triu_indices(len(noise), k=1)
    if not len(first):
        return
    found = alike_p_values(noise, noise)[first, second]
    place = int(np.argmin(found))
    evidence.add(f"the likeness of the noise of steps {first[place]} and {second[place]}", found[place], len(found))


def _add_parts_alike(evidence: Evidence, noise: Numbers, parts: Sequence[slice]) -> None:
    for (i, first), (j, second) in itertools.combinations(enumerate(parts), 2):
        size = min(first.stop - first.start, second.stop - second.start, _COMPARED)
        one, other = (noise[:, part.start : part.start + size].reshape(1, -1) for part in (first, second))
        if one.size > 1:
            evidence.add(f"the likeness of the noise of parameters {i} and {j}", alike_p_values(one, other)[0, 0])


_Generators = tuple[object, dict[str, object], torch.Tensor]


def _global_generators() -> _Generators:
    return random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state()


def _seed_global_generators() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _restore_global_generators(state: _Generators) -> None:
    random.setstate(state[0])  # type: ignore[arg-type]
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])
