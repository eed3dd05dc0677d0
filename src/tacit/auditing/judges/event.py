"""Is what was accounted for what was drawn?"""

import numpy as np
import numpy.typing as npt
from dp_accounting import dp_event
from scipy import stats

from tacit.auditing.judges.subject import Observation, Subject, observe
from tacit.auditing.judges.verdict import Evidence, Verdict, count_p_value
from tacit.core.errors import UnsupportedError

Drawn = npt.NDArray[np.bool_]
"""Which step drew which record, ``[steps, records]``."""


def judge_event(subject: Subject) -> Verdict:
    """Accuses a run whose lots are not those that its event describes, or that took more steps than it states.

    The lots of all steps are compared with the event of the plan:

    - Poisson sampling at rate q: each record is in each lot by a coin of its own. Tested are how often each record is
      drawn, how many lots have each size, and in how many pairs of lots a record comes twice; each is binomial,
      exactly. Shuffled batches have all one size and no record twice in an epoch.
    - A Gaussian for each epoch, without amplification: a record may be in no more lots than there are Gaussians.

    Then the statement is compared with the number of noisy gradients that were seen.

    Raises:
        UnsupportedError: the event is of another kind.
    """
    private = subject.private(subject.model())
    seen = list(observe(private, subject.records, subject.plan.expected_batch_size))
    drawn, (count, one) = _drawn(seen, len(subject.records[0])), _parts(subject.plan.training_event(len(seen)))
    stated, needed = private.statement().epsilon, subject.plan.epsilon(len(seen))
    if stated < needed:
        finding = f"epsilon {stated:.4g} is stated and {len(seen)} steps were seen, which cost {needed:.4g}"
        return Verdict("event", accused=True, finding=finding)
    if isinstance(one, dp_event.GaussianDpEvent):
        most = int(drawn.sum(0).max(initial=0))
        finding = f"a record was drawn {most} times, and {count} times are accounted for"
        return Verdict("event", most > count, finding)
    if not isinstance(one, dp_event.PoissonSampledDpEvent):
        raise UnsupportedError(
            f"event={type(one).__name__}: no judge knows its lots. Use sampler='poisson' or sampler='shuffled'."
        )
    if count != len(seen):
        finding = f"{count} steps are accounted for, and {len(seen)} were seen"
        return Verdict("event", accused=True, finding=finding)
    return _judge_poisson(drawn, one.sampling_probability)


def _judge_poisson(drawn: Drawn, rate: float) -> Verdict:
    steps, records = drawn.shape
    evidence = Evidence()
    often = [count_p_value(int(count), steps, rate) for count in drawn.sum(0)]
    record = int(np.argmin(often))
    evidence.add(f"how often record {record} was drawn", often[record], len(often))
    sizes = np.bincount(drawn.sum(1), minlength=records + 1)
    chances = stats.binom.pmf(np.arange(records + 1), records, rate)
    by_size = [count_p_value(int(count), steps, chance) for count, chance in zip(sizes, chances, strict=True)]
    size = int(np.argmin(by_size))
    evidence.add(f"how many of {steps} lots have {size} records: {sizes[size]}", by_size[size], len(by_size))
    total = int(drawn.sum())
    evidence.add(f"{total} records in all lots", count_p_value(total, drawn.size, rate))
    pairs = steps // 2
    again = int((drawn[0 : 2 * pairs : 2] & drawn[1 : 2 * pairs : 2]).sum())
    evidence.add(f"{again} records twice in a pair of lots", count_p_value(again, pairs * records, rate**2))
    return evidence.verdict("event")


def _drawn(seen: list[Observation], records: int) -> Drawn:
    drawn = np.zeros((len(seen), records), dtype=np.bool_)
    for row, step in zip(drawn, seen, strict=True):
        row[step.indices] = True
    return drawn


def _parts(event: dp_event.DpEvent) -> tuple[int, dp_event.DpEvent]:
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return event.count, event.event
    return 1, event
