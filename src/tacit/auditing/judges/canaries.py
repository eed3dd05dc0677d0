"""Does an attack on one step show more than the step may give away?"""

from tacit.auditing.judges.subject import Subject
from tacit.auditing.judges.verdict import FALSE_ACCUSATION, Verdict
from tacit.auditing.white_box import run_on_dirac_canaries
from tacit.core.errors import InputError, UnsupportedError
from tacit.plan import DPSGD

_CANARIES = 2**16
_FILTERED_CANARIES = 2**11  # a filter has every gradient written out, with a number for each canary


def judge_canaries(subject: Subject) -> Verdict:
    """Accuses a plan whose clipping and noise give more away in one step than its epsilon allows.

    Each of 65,536 canaries (2,048 where clipping has a filter) has a gradient along an axis of its own, as long as
    clipping lets it be; a fair coin decides whether it takes part. One step of the real thing releases a noisy number
    for each, from which the coins are guessed, and the guesses that are right bound epsilon from below
    (`tacit.auditing.white_box`). Of the subject only clipping and noise enter.

    This is an audit in the full sense: it knows nothing of how the step works. Noise of 0.8 of its scale is found, with
    a multiplier of 1.5; a tenth less is for `judge_noise`.

    Raises:
        UnsupportedError: the clipping has bounds for layers by name, which the canaries do not have.
    """
    try:
        filtered = subject.plan.clipping.bind({"weights.weight": 1}).filter is not None
    except InputError as error:
        raise UnsupportedError(f"clipping: does not fit the one layer that canaries have ({error})") from error
    canaries = _FILTERED_CANARIES if filtered else _CANARIES
    run = run_on_dirac_canaries(_one_step(subject.plan, canaries), canaries)
    bound = run.bound(1 - FALSE_ACCUSATION)
    finding = f"one step shows epsilon of at least {bound.epsilon:.3g}, and {run.claimed:.3g} is claimed for it"
    return Verdict("canaries", bound.epsilon > run.claimed, finding)


def _one_step(plan: DPSGD, canaries: int) -> DPSGD:
    """With everyone in it."""
    return DPSGD(
        expected_batch_size=canaries,
        examples=canaries,
        steps=1,
        clipping=plan.clipping,
        delta=min(plan.delta, 0.5 / canaries),
        noise_multiplier=plan.noise_multiplier,
    )
