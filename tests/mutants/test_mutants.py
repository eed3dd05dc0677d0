"""The library audits itself: every planted bug is accused by the judges it is listed for, the true thing by none."""

import pytest
from subjects import SUBJECTS

from mutants import MUTANTS, Planter
from tacit.auditing.judges import JUDGES

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
