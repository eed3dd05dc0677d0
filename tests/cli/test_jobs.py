"""``--jobs``: several models at a time, through the entry point."""

import json

import pytest
from command_line import refusal, run_tacit

RANDOM = {"test_accuracy", "held_out_accuracy", "std", "seconds", "command", "date", "jobs", "figures", "file"}
SWEEP = ("sweep", "digits", "--over", "clip=0.1,1", "--set", "steps=3", "--seeds", "2", "--held-out")


def fixed(values):
    """What does not depend on noise, time or the number of processes, in its order."""
    if isinstance(values, dict):
        return [(key, None if key in RANDOM else fixed(value)) for key, value in values.items()]
    return [fixed(value) for value in values] if isinstance(values, list) else values


@pytest.mark.filterwarnings("default")
def test_a_sweep_with_jobs_gives_what_one_without_gives(tmp_path, monkeypatch):
    moved = []
    monkeypatch.setattr("rich.progress.Progress.update", lambda *_, completed, **__: moved.append(completed))
    options = (*SWEEP, "--set", "delta=0.001", "--json")
    found = []
    for jobs in ("1", "2"):
        moved.clear()
        done = run_tacit(*options, "--jobs", jobs, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.strip().splitlines()) == 1
        assert "warning: delta=0.001" in done.stderr
        found.append(json.loads(done.stdout))
    assert moved == [1, 2, 3, 4]  # models that are done, in whatever order
    assert [each["jobs"] for each in found] == [1, 2]
    assert found[1]["command"].endswith("--jobs 2")
    assert fixed(found[0]) == fixed(found[1])
    assert any(row["std"] > 0 for row in found[1]["rows"])  # models of their own; two of them may agree by chance


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((*SWEEP, "--jobs", "0"), ("jobs=0", "at least 1")),
        (("sweep", "digits", "--over", "clip=0.1,1", "--private", "--jobs", "2"), ("jobs=2", "Leave out --jobs")),
        (("recipe", "run", "pate2017-mnist", "--jobs", "2"), ("jobs=2", "runs by itself")),
        (("recipe", "run", "abadi2016-mnist", "--jobs", "-1"), ("jobs=-1", "at least 1")),
    ],
)
def test_bad_jobs_are_one_line(arguments, parts, tmp_path):
    line = refusal(*arguments, cwd=tmp_path)
    assert all(part in line for part in parts)
