"""``tacit bench pate``: rows that say what was measured, of contenders that train the same teachers."""

import json

import numpy as np
import pytest
import torch
from command_line import run_tacit

from tacit.benchmarking import PateSettings, benchmark_pate
from tacit.benchmarking import pate as benchmark
from tacit.benchmarking.teachers import TOGETHER, linear_teaching, network_teaching
from tacit.datasets import load
from tacit.pate import partition

SMALL = ("bench", "pate", "--dataset", "digits", "--device", "cpu", "--teachers", "6", "--sample", "2", "--rounds", "2")


def test_rows_say_what_was_measured_and_inferred(tmp_path):
    done = run_tacit(*SMALL, "--json", "--out", str(tmp_path / "r.json"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert json.loads((tmp_path / "r.json").read_text()) == result
    rows = {(row["kind"], row["contender"]): row for row in result["rows"]}
    assert list(rows) == [
        ("linear", "together"),
        ("linear", "one after the other"),
        ("linear", "one after the other, by inner products"),
        ("network", "together"),
        ("network", "one after the other"),
    ]
    for (kind, contender), row in rows.items():
        low, high = row["spread_seconds"]
        assert 0 < low <= row["seconds"] <= high
        assert row["ratio"] == pytest.approx(row["seconds"] / rows[kind, "together"]["seconds"])
        assert row["teachers"] == 6
        assert row["measured_teachers"] == (6 if contender == TOGETHER else 2)
        assert row["measured_steps"] == (200 if kind == "linear" else 4)
        assert row["inferred"] == ((kind, contender) != ("linear", "together"))
        assert row["agreement"] > 0.99
    assert result["problem"] == {"dataset": "digits", "teachers": 6, "rounds": 2}
    assert result["hardware"]["device"] == "cpu"


def test_a_table_without_json():
    done = run_tacit(*SMALL, "--kinds", "linear", "--rounds", "1")
    assert done.returncode == 0
    assert "times together" in done.stdout
    assert "2 teachers, 200 of 200 steps" in done.stdout


@pytest.mark.parametrize("make", [linear_teaching, network_teaching])
def test_contenders_train_the_same_teachers_and_others_are_told_apart(make):
    data = load("digits")
    teaching = make(data, torch.device("cpu"))
    parts, steps = partition(len(data.train), 5), min(teaching.steps, 30)
    asked = data.test.inputs
    said = [prepare(parts, steps)()(asked) for prepare in teaching.contenders.values()]
    assert all(votes.shape == (5, len(asked)) for votes in said)
    assert all(np.mean(votes == said[0]) > 0.99 for votes in said[1:])
    other = teaching.contenders[TOGETHER](parts[::-1], steps)()(asked)
    assert np.mean(other == said[0]) < 0.98


def test_time_of_a_part_is_scaled_to_the_whole(monkeypatch):
    clock = iter(np.cumsum([0.0, 1.0, 10.0] * 100))
    monkeypatch.setattr(benchmark, "_now", lambda _device: float(next(clock)))
    settings = PateSettings("digits", teachers=6, kinds=("network",), device="cpu", rounds=1, sample=2)
    # Between turns the clock stands still: every turn takes 1 s to build and 10 s to train.
    together, in_turn = benchmark_pate(settings)["rows"]
    assert together["seconds"] == pytest.approx(1 + 10 * 160 / 4)
    assert in_turn["seconds"] == pytest.approx(3 * (1 + 10 * 160 / 4))
    assert in_turn["ratio"] == pytest.approx(3)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--teachers", "0"), ("teachers=0", "at least 1")),
        (("--teachers", "5000", "--dataset", "digits"), ("teachers=5000", "1438 records")),
        (("--sample", "0"), ("sample=0", "at least 1")),
        (("--rounds", "0"), ("rounds=0", "at least 1")),
        (("--kinds", "forest"), ("kind='forest'", "linear")),
        (("--device", "tpu"), ("device='tpu'", "cuda")),
        (("--device", "cuda"), ("device='cuda'", "--device cpu")),
        (("--dataset", "mnsit"), ("dataset='mnsit'", "mnist")),
        (("--out", "file/r.json"), ("out='file/r.json'", "cannot be written")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input_is_one_line_that_names_argument_and_remedy(arguments, parts, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = run_tacit("bench", "pate", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    for part in parts:
        assert part in line
