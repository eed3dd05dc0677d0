"""Models after the first are compiled beside it, where nothing was compiled on this machine yet and never otherwise."""

import subprocess
import sys

import pytest

from tacit.benchmarking import alone, stepping
from tacit.benchmarking.measuring import Deadline, measure, silent
from tacit.benchmarking.plain import CONTENDERS
from tacit.benchmarking.stepping import StepSettings, benchmark_step
from tacit.benchmarking.tasks import make_task

TASKS = [("cnn", "float32", 4), ("wrn", "float32", 2)]
MODULE = [sys.executable, "-m", "tacit.benchmarking.alone"]


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Processes in place of compilers, each with its command, on a machine that has compiled nothing."""
    processes = []

    class Sleeper(subprocess.Popen):
        def __init__(self, command, **options):
            super().__init__([sys.executable, "-c", f"import time; time.sleep({self.seconds})"], **options)
            self.command = command
            processes.append(self)

    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    monkeypatch.setattr(Sleeper, "seconds", 0.2, raising=False)
    monkeypatch.setattr(alone.subprocess, "Popen", Sleeper)
    return processes


def test_each_model_has_a_process_that_is_waited_for(started):
    with alone.compiling_ahead(TASKS, "tacit") as wait:
        commands = [[*MODULE, "cnn", "tacit", "float32", "4"], [*MODULE, "wrn", "tacit", "float32", "2"]]
        assert [process.command for process in started] == commands
        wait()
        assert [process.poll() for process in started] == [0, 0]


def test_whoever_breaks_off_leaves_no_compiler_behind(started, monkeypatch):
    monkeypatch.setattr(alone.subprocess.Popen, "seconds", 600)
    with pytest.raises(KeyboardInterrupt), alone.compiling_ahead(TASKS, "tacit"):
        raise KeyboardInterrupt
    assert all(process.poll() is not None for process in started)


def test_libraries_on_disk_are_not_compiled_again(started, tmp_path):
    (tmp_path / "programs" / "some").mkdir(parents=True)
    (tmp_path / "programs").chmod(0o700)
    with alone.compiling_ahead(TASKS, "tacit") as wait:
        wait()
    assert started == []


@pytest.mark.parametrize(("engines", "expected"), [(("plain",), []), (("plain", "tacit"), ["logistic"])])
def test_a_benchmark_compiles_what_it_measures_later(engines, expected, monkeypatch):
    ahead = []
    real = alone.compiling_ahead

    def noted(tasks, engine):
        ahead.extend(task[0] for task in tasks)
        return real([], engine)

    monkeypatch.setattr(alone, "compiling_ahead", noted)
    monkeypatch.setattr(stepping, "_measure_rows", lambda *arguments, ready: ready() or [])
    benchmark_step(StepSettings(models=("mlp", "logistic"), engines=engines, device="cpu"))
    assert ahead == expected


def test_nothing_is_timed_before_all_is_ready(monkeypatch):
    happened = []
    task = make_task("logistic", StepSettings(device="cpu").place)
    monkeypatch.setattr("tacit.benchmarking.measuring._run_block", lambda task, lane: happened.append("timed"))
    measure(
        task, CONTENDERS[:1], rounds=1, deadline=Deadline(), progress=silent, ready=lambda: happened.append("ready")
    )
    assert happened == ["ready", "timed"]
