"""``tacit train --checkpoint``: killed and resumed by the program itself."""

import json
import signal
import subprocess
import time

import pytest
from command_line import PROGRAM, run_process, run_tacit

LINES = ("train", "digits", "--model", "linear", "--batch-size", "64", "--epsilon", "3", "--delta", "1e-5")


def train(*more, cwd):
    return run_tacit(*LINES, "--steps", "12", "--json", *more, cwd=cwd)


@pytest.fixture
def folder(tmp_path):
    made = run_tacit(
        "ledger", "create", "ledger.db", "--dataset", "digits", "--epsilon", "3.001", "--delta", "1e-5", cwd=tmp_path
    )
    assert made.returncode == 0, made.stderr
    return tmp_path


def test_a_killed_run_is_resumed_within_its_budget(folder):
    """The budget holds the run once; the killed process has reserved all of it."""
    command = [str(PROGRAM), *LINES, "--steps", "200", "--ledger", "ledger.db", "--checkpoint", "saved", "--json"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    states = folder / "saved" / "0"
    while len(list(states.glob("state-*"))) < 3 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (states / "key").exists()
    assert run_tacit(*command[1:], cwd=folder).returncode == 3  # a second run does not fit beside it
    resumed = run_process(*command[1:], "--resume", cwd=folder)  # like the run that was killed
    assert resumed.returncode == 0, resumed.stderr
    told = json.loads(resumed.stdout)
    assert told["steps"] == 200
    assert told["epsilon"] <= 3
    assert not (states / "key").exists()
    shown = json.loads(run_tacit("ledger", "show", "ledger.db", "--json", cwd=folder).stdout)
    text = json.dumps(shown)
    assert '"committed"' in text
    assert '"reserved"' not in text


def test_each_model_has_a_checkpoint_of_its_own(tmp_path):
    told = train("--seeds", "2", "--checkpoint", "saved", "--out", "run", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["0", "1"]
    again = train("--seeds", "2", "--checkpoint", "saved", "--resume", "--out", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["test_accuracy"] == json.loads(told.stdout)["test_accuracy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--resume",), "resume: needs --checkpoint, the folder that the run is saved in. Name it."),
        (("--redraw",), "redraw: needs --checkpoint"),
        (("--checkpoint-every", "3"), "checkpoint-every: needs --checkpoint"),
        (("--checkpoint", "saved", "--checkpoint-every", "0"), "every=0: must be at least 1"),
        (("--checkpoint", "file/saved"), "cannot be written (Not a directory)"),
    ],
)
def test_bad_input_is_told_in_one_line(tmp_path, arguments, message):
    (tmp_path / "file").touch()
    told = train(*arguments, cwd=tmp_path)
    assert told.returncode == 2
    assert message in told.stderr
    assert told.stdout == ""


def test_another_plan_or_a_second_run_is_refused(tmp_path):
    assert train("--checkpoint", "saved", cwd=tmp_path).returncode == 0
    told = train("--checkpoint", "saved", cwd=tmp_path)
    assert told.returncode == 2
    assert "already holds a run. Resume it with resume=True (--resume)" in told.stderr
    told = train("--checkpoint", "saved", "--resume", "--clip", "0.7", cwd=tmp_path)
    assert told.returncode == 2
    assert "checkpoint: it is of another run, since plan changed." in told.stderr


def test_a_refused_resume_leaves_the_run_as_it_was(tmp_path):
    first = train("--checkpoint", "saved", "--out", "run", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    told = train("--checkpoint", "saved", "--resume", "--out", "run", "--noise-multiplier", "9", cwd=tmp_path)
    assert told.returncode == 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
