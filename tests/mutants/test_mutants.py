"""The library audits itself: every planted bug is accused by the judges it is listed for, the true thing by none."""

import pytest
from subjects import SUBJECTS

from mutants import MUTANTS, Planter
from tacit.auditing.judges import JUDGES, judge_noise
from tacit.auditing.judges.verdict import missed_scale
from tacit.mechanisms import StepNoise
from tacit.sampling import Shuffled

CORRECT_RUNS = 20
ACCUSATIONS = [(name, judge) for name, mutant in MUTANTS.items() for judge in mutant.judges]


@pytest.mark.parametrize(("name", "judge"), ACCUSATIONS)
def test_pitfall_40_every_mutant_is_accused(name, judge):
    mutant = MUTANTS[name]
    with pytest.MonkeyPatch.context() as patch:
        planter = Planter(patch)
        mutant.plant(planter)
        verdict = JUDGES[judge](SUBJECTS[mutant.subject]())
        assert planter.unused == []
    assert verdict.accused, verdict.finding


@pytest.mark.parametrize("run", range(CORRECT_RUNS))
def test_no_correct_run_is_accused(run):
    names = list(SUBJECTS)
    subject = SUBJECTS[names[run % len(names)]]()
    verdicts = [judge(subject) for judge in JUDGES.values()]
    assert [str(verdict) for verdict in verdicts if verdict.accused] == []


def test_a_patch_of_a_place_that_is_gone_or_never_reached_is_an_error():
    with pytest.MonkeyPatch.context() as patch:
        planter = Planter(patch)
        with pytest.raises(AttributeError):
            planter.replace(StepNoise, "add_noise_as_it_was_once", lambda real: None)
        planter.replace(Shuffled, "describe", lambda real, self: real(self))
        judge_noise(SUBJECTS["usual"]())
        assert planter.unused == ["Shuffled.describe"]


def test_patches_are_taken_back():
    """A mutant leaves nothing behind: the true thing passes after each."""
    for mutant in MUTANTS.values():
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(Planter(patch))
    assert not judge_noise(SUBJECTS["usual"]()).accused


@pytest.mark.parametrize("factor", [0.5, 0.8, 0.9, 1.1])
def test_the_chance_to_miss_a_scale_is_small(factor):
    """What is needed for the mutants above not to be flaky, computed and not drawn."""
    subject = SUBJECTS["usual"]()
    numbers = subject.plan.steps * subject.parts()[-1].stop
    tests = subject.plan.steps**2 + 100  # more than there are
    assert missed_scale(factor, numbers, tests) < 1e-7
