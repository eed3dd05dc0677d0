"""Bad input: exit status 2 (or 3), one clear line on standard error that names argument, value and remedy."""

import json
import signal
import subprocess
import time

import pytest
from command_line import PROGRAM, refusal, run_process, run_tacit

QUICK = ("train", "digits", "--steps", "3", "--batch-size", "64")
POINT = ("--sampling-rate", "0.01", "--steps", "100")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ((*QUICK, "--delta", "0"), ("delta=0", "strictly between 0 and 1", "1e-5")),
        ((*QUICK, "--delta", "1.5"), ("delta=1.5", "strictly between 0 and 1")),
        ((*QUICK, "--epsilon", "0"), ("epsilon=0", "above 0")),
        ((*QUICK, "--epsilon", "-1"), ("epsilon=-1", "above 0")),
        ((*QUICK, "--epsilon", "1", "--noise-multiplier", "1"), ("epsilon=1", "noise_multiplier=1", "exactly one")),
        ((*QUICK, "--noise-multiplier", "0"), ("noise_multiplier=0", "unsafe_no_noise")),
        (("train", "digits", "--batch-size", "100000"), ("100000", "1438", "smaller batch")),
        (("train", "digits", "--steps", "0"), ("steps=0", "at least 1")),
        (("train", "digits", "--epochs", "0"), ("epochs=0", "above 0")),
        (("train", "digits", "--steps", "3", "--epochs", "2"), ("steps=3", "epochs=2", "Leave one out")),
        ((*QUICK, "--seeds", "0"), ("seeds=0", "at least 1")),
        ((*QUICK, "--clip", "0"), ("bound=0", "above 0")),
        ((*QUICK, "--clipping", "round"), ("clipping='round'", "automatic", "flat")),
        ((*QUICK, "--clipping", "tanh", "--tanh-range", "0"), ("c=0", "above 0")),
        ((*QUICK, "--clipping", "tanh-alone", "--tanh-expansion", "-1"), ("k=-1", "above 0")),
        ((*QUICK, "--optimizer", "magic"), ("optimizer='magic'", "momentum")),
        ((*QUICK, "--sampler", "sorted"), ("sampler='sorted'", "poisson")),
        ((*QUICK, "--model", "llm"), ("model='llm'", "tanh-cnn")),
        ((*QUICK, "--engine", "warp"), ("engine='warp'", "bookkeeping")),
        ((*QUICK, "--learning-rate", "0"), ("learning_rate=0", "above 0")),
        ((*QUICK, "--device", "cuda"), ("cuda", "--device cpu")),
        ((*QUICK, "--target", "x"), ("target='x'", "named set")),
        ((*QUICK, "--ledger", "no-such-ledger.sqlite"), ("no-such-ledger.sqlite", "create")),
        (("train", "no-such-set"), ("no-such-set", "mnist")),
        (("train", "no-such-file.csv", "--target", "a", "--schema", "b.toml"), ("schema='b.toml'",)),
        (("train", "people.csv"), ("--target", "--schema")),
        (("account", "dpsgd", *POINT, "--noise-multiplier", "1", "--delta", "2"), ("delta=2",)),
        (("account", "dpsgd", *POINT, "--noise-multiplier", "-1", "--delta", "1e-5"), ("noise_multiplier=-1",)),
        (
            ("account", "dpsgd", *POINT, "--noise-multiplier", "1", "--delta", "1e-5", "--accountant", "guess"),
            ("accountant='guess'", "pld"),
        ),
        (("account", "dpsgd", "--steps", "1", "--delta", "1e-5", "--noise-multiplier", "1"), ("--sampling-rate",)),
        (("calibrate", "dpsgd", *POINT, "--epsilon", "0", "--delta", "1e-5"), ("epsilon=0",)),
        (("calibrate", "dpsgd", *POINT, "--epsilon", "1", "--delta", "0"), ("delta",)),
        (
            ("calibrate", "dpsgd", *POINT, "--epsilon", "1", "--delta", "1e-5", "--accountant", "gdp"),
            ("accountant='gdp'", "estimate", "pld"),
        ),
        (("data", "get", "no-such-set"), ("no-such-set", "digits")),
        (("report", "no-such-folder"), ("no-such-folder",)),
        (("ledger", "show", "no-such-ledger.sqlite"), ("no-such-ledger.sqlite",)),
        (("train", "--epsilon", "many"), ("--epsilon", "many", "--help")),
        (("frobnicate",), ("frobnicate", "--help")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_refusals_name_argument_value_and_remedy(arguments, parts, tmp_path):
    line = refusal(*arguments, cwd=tmp_path)
    for part in parts:
        assert part in line, line
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_the_same_in_a_process_of_its_own(tmp_path):
    done = run_process(*QUICK, "--delta", "0", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == run_tacit(*QUICK, "--delta", "0", cwd=tmp_path).stderr


@pytest.mark.filterwarnings("default")
def test_a_large_delta_is_a_warning(tmp_path):
    done = run_tacit(*QUICK, "--delta", "0.01", "--json", "--out", str(tmp_path / "run"))
    assert done.returncode == 0
    assert "tacit: warning: delta=0.01" in done.stderr
    json.loads(done.stdout)


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    line = refusal(*QUICK, "--out", str(tmp_path / "file" / "run"))
    assert "out=" in line
    assert "cannot be written" in line


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    assert run_tacit(*QUICK, "--out", str(tmp_path / "run")).returncode == 0
    assert "already holds a run" in refusal(*QUICK, "--out", str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda text: text.replace("employed", "working", 1), ("employed",)),
        (lambda text: text.replace("Bonn", "Rome", 1), ("Rome", "city", "row")),
        (lambda text: text.replace("18,", "17,", 1), ("17", "age", "row")),
        (lambda text: text.replace("18,", ",", 1), ("age", "row")),
        (lambda text: text.replace("18,", "nan,", 1), ("age", "row")),
        (lambda text: text.splitlines()[0] + "\n", ("no rows", "empty")),
    ],
    ids=["no target", "category", "bound", "empty cell", "nan", "no rows"],
)
def test_tables_outside_their_schema_are_refused_by_row_and_column(change, parts, table):
    path = table / "people.csv"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    line = refusal("train", str(path), "--target", "employed", "--schema", str(table / "people.toml"), cwd=table)
    assert any(part in line for part in parts), line
    if "row" in parts:
        assert all(part in line for part in parts), line


def test_ctrl_c_keeps_what_was_spent_and_says_where_it_stopped(tmp_path):
    book = str(tmp_path / "budget.sqlite")
    assert (
        run_tacit("ledger", "create", book, "--dataset", "digits", "--epsilon", "3", "--delta", "1e-5").returncode == 0
    )
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [str(PROGRAM), "train", "--steps", "4000", "--epsilon", "3", "--ledger", book, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # where the tests run in the background
    )
    history = folder / "history.jsonl"
    deadline = time.monotonic() + 60
    while not history.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "interrupted after" in stderr
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "interrupted"
    assert 0 < record["steps_done"] < 4000
    assert (folder / "report.html").exists()
    entries = json.loads(run_tacit("ledger", "history", book, "--json").stdout)
    assert entries["entries"][0]["state"] == "committed"
    assert 0 < entries["spent"]["epsilon"] < 3
    assert record["statement"]["epsilon"] == pytest.approx(entries["spent"]["epsilon"], rel=1e-3)
