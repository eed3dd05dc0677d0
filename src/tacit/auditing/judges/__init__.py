"""Judges: is what a private step does what its plan says? Each runs the real thing and looks at what comes out.

```python
subject = Subject(make_model, loss_fn, records, plan)   # a few dozen records, the plan of the real run
for verdict in judge(subject):
    print(verdict)                                      # noise: passed, noise of 1 times its scale …
```

Lower bounds on epsilon measure how much leaks from a whole run; judges test the promises that the upper bound is built
on, one by one: the scale and independence of the noise, the sensitivity of the sum, the event that was accounted for,
and noise that is never drawn twice. They find small errors that no attack could show, such as noise of 0.9 times its
scale. A correct program is accused with chance 1e-10 by each.
"""

from collections.abc import Iterator

from tacit.auditing.judges.canaries import judge_canaries as judge_canaries
from tacit.auditing.judges.event import judge_event as judge_event
from tacit.auditing.judges.noise import judge_noise as judge_noise
from tacit.auditing.judges.noise import judge_reuse as judge_reuse
from tacit.auditing.judges.resume import judge_resume as judge_resume
from tacit.auditing.judges.sensitivity import judge_sensitivity as judge_sensitivity
from tacit.auditing.judges.subject import Subject as Subject
from tacit.auditing.judges.verdict import FALSE_ACCUSATION as FALSE_ACCUSATION
from tacit.auditing.judges.verdict import Verdict as Verdict
from tacit.core.errors import UnsupportedError

JUDGES = {
    "noise": judge_noise,
    "reuse": judge_reuse,
    "sensitivity": judge_sensitivity,
    "event": judge_event,
    "resume": judge_resume,
    "canaries": judge_canaries,
}
"""All judges by name."""


def judge(subject: Subject) -> Iterator[Verdict]:
    """Every judge's verdict on a private run; what a judge has no test for is not judged, and the others go on."""
    for name, each in JUDGES.items():
        try:
            yield each(subject)
        except UnsupportedError as error:
            yield Verdict(name, accused=False, finding=str(error), judged=False)
