"""Several models are compiled at once, where nothing was compiled on this machine yet and never otherwise."""

import sys

import pytest

from tacit.benchmarking import alone, stepping
from tacit.benchmarking.stepping import StepSettings, benchmark_step

TASKS = [("mlp", "float32", 8), ("cnn", "float32", 4)]


@pytest.fixture
def built(monkeypatch, tmp_path):
    """The commands that were started, and a machine that has compiled nothing."""
    commands = []
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    monkeypatch.setattr(alone.subprocess, "run", lambda command, **options: commands.append(command))
    return commands


def test_each_model_has_a_process(built):
    alone.compile_ahead(TASKS, "tacit")
    module = [sys.executable, "-m", "tacit.benchmarking.alone"]
    expected = [[*module, "mlp", "tacit", "float32", "8"], [*module, "cnn", "tacit", "float32", "4"]]
    assert sorted(built) == sorted(expected)


def test_one_model_compiles_by_itself(built):
    alone.compile_ahead(TASKS[:1], "tacit")
    assert built == []


def test_what_was_compiled_before_is_not_waited_for(built, tmp_path):
    (tmp_path / "programs" / "some").mkdir(parents=True)
    (tmp_path / "programs").chmod(0o700)
    alone.compile_ahead(TASKS, "tacit")
    assert built == []


@pytest.mark.parametrize(("engines", "expected"), [(("plain",), []), (("plain", "tacit"), ["mlp", "logistic"])])
def test_a_benchmark_compiles_ahead_what_it_measures(engines, expected, monkeypatch):
    ahead = []
    monkeypatch.setattr(alone, "compile_ahead", lambda tasks, engine: ahead.extend(task[0] for task in tasks))
    monkeypatch.setattr(stepping, "_measure_rows", lambda *arguments: [])
    benchmark_step(StepSettings(models=("mlp", "logistic"), engines=engines, device="cpu"))
    assert ahead == expected
