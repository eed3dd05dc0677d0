"""Does an attack on one step show more than the step may give away?"""

import dataclasses

import torch
from torch import Tensor, nn

from tacit.accounting import ACCOUNTANTS
from tacit.auditing.judges.subject import Subject, observe
from tacit.auditing.judges.verdict import FALSE_ACCUSATION, Verdict
from tacit.auditing.lower_bounds import one_run_bound
from tacit.core.privacy import Neighbours
from tacit.core.randomness import Randomness
from tacit.plan import DPSGD
from tacit.training import Execution

_CANARIES = 2**15
_HUGE = 1e6
_DELTA = 1e-16  # the claim is tested beside this delta: at a usual one, a rare leak would be allowed, and no proof


def judge_canaries(subject: Subject) -> Verdict:
    r"""Accuses a plan whose clipping and noise give more away in one step than its epsilon allows.

    Each of 32,768 canaries has a gradient along an axis of its own, as long as can be; a fair coin decides whether it
    takes part. One step of the real thing releases a noisy number for each, from which the coins are guessed, and the
    guesses that are right bound epsilon from below (Steinke, Nasr and Jagielski 2023). Of the subject
    only clipping and noise enter.

    This is an audit in the full sense: it assumes nothing about how the step works. It is blunt, though. Noise that is
    missing, or far too small, or a gradient that is not clipped is found; a tenth less noise is for `judge_noise`.

    Raises:
        InputError: the clipping has bounds for layers by name, which the canaries do not have.
    """
    stream = Randomness().stream("canaries")
    coins = stream.random(_CANARIES) < 0.5
    audit = dataclasses.replace(
        subject,
        model=lambda: nn.Embedding(_CANARIES, 1, dtype=torch.float64),
        loss_fn=_along_an_axis,
        records=(torch.arange(_CANARIES)[torch.from_numpy(coins)][:, None],),
        plan=_one_step(subject.plan),
        execution=Execution(preflight=False),
    )
    (seen,) = observe(audit.private(audit.model()), audit.records, _CANARIES)
    claimed = ACCOUNTANTS["rdp"].epsilon(audit.plan.event(), _DELTA, Neighbours.ADD_REMOVE)
    # A record's gradient is positive along its axis, and so is the noisy sum there if it took part.
    bound = one_run_bound(seen.released, coins, delta=_DELTA, confidence=1 - FALSE_ACCUSATION)
    finding = (
        f"one step shows epsilon of at least {bound.epsilon:.3g} (at most {bound.largest:.3g} could be shown), and "
        f"{claimed:.3g} is claimed"
    )
    return Verdict("canaries", bound.epsilon > claimed, finding)


def _along_an_axis(model: nn.Module, ids: Tensor) -> Tensor:
    """A loss whose gradient for a record is huge, along the axis that the record names."""
    found: Tensor = _HUGE * model(ids).flatten(1).sum(1)
    return found


def _one_step(plan: DPSGD) -> DPSGD:
    return DPSGD(
        expected_batch_size=_CANARIES,
        examples=_CANARIES,
        steps=1,
        clipping=plan.clipping,
        delta=plan.delta,
        noise_multiplier=plan.noise_multiplier,
    )
