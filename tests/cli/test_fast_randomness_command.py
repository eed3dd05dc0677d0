"""``tacit train --fast-randomness``: asked for, recorded, and said."""

import json

from command_line import run_tacit

QUICK = ("train", "digits", "--steps", "4", "--batch-size", "32", "--model", "linear", "--json")


def statement(folder, *options):
    done = run_tacit(*QUICK, *options, "--out", str(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["statement"]


def test_a_fast_run_says_so_in_its_statement_and_its_record(tmp_path):
    assert "from Philox, which is not cryptographic" in statement(tmp_path / "run", "--fast-randomness")
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert record["statement"]["generator"] == "Philox"
    assert "Philox, which is not cryptographic" in (tmp_path / "run/report.html").read_text()


def test_a_usual_run_has_the_cipher(tmp_path):
    assert "cryptographic" not in statement(tmp_path / "run")
    assert json.loads((tmp_path / "run/run.json").read_text())["statement"]["generator"] == "ChaCha20"
