"""``tacit bench`` through its entry point."""

import json
import subprocess
import sys

import pytest
from command_line import run_tacit

from tacit.benchmarking import accounting

ROW_KEYS = {
    *("model", "engine", "precision", "batch", "ms", "ratio", "ratio_fastest", "ratio_own"),
    *("peak_mib", "status", "reason"),
}
TINY = ("bench", "step", "--device", "cpu", "--models", "mlp", "--batch", "4", "--rounds", "1")


def found_by(*arguments, **options):
    done = run_tacit(*arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip().splitlines()) == 1
    return json.loads(done.stdout)


def test_rows_with_what_they_were_measured_on(tmp_path):
    result = found_by(*TINY, "--engines", "plain,tacit-eager,plain-graph", "--out", str(tmp_path / "folder" / "r.json"))
    rows = {row["engine"]: row for row in result["rows"]}
    assert list(rows) == ["plain", "tacit-eager", "plain-graph"]
    assert all(row.keys() >= ROW_KEYS for row in rows.values())
    assert rows["plain"]["ratio"] == 1
    assert rows["tacit-eager"]["ms"] > 0
    assert rows["tacit-eager"]["ratio"] == pytest.approx(rows["tacit-eager"]["ms"] / rows["plain"]["ms"])
    assert rows["plain-graph"]["ms"] is None
    assert (rows["plain-graph"]["status"], rows["plain-graph"]["reason"]) == ("refused", "needs a GPU")
    assert result["hardware"]["device"] == "cpu"
    assert result["versions"].keys() >= {"python", "torch", "tacit"}
    assert "bench step" in result["command"]
    assert result["date"].endswith("+00:00")
    assert json.loads((tmp_path / "folder" / "r.json").read_text()) == result


def test_a_table_without_json():
    done = run_tacit(*TINY, "--engines", "plain")
    assert done.returncode == 0
    assert "One training step" in done.stdout
    assert "float32" in done.stdout


def test_growth_gives_an_exponent_for_each_axis():
    result = found_by(*TINY, "--engines", "plain", "--growth", "--seconds", "0.1")
    assert {row["axis"] for row in result["growth"]} == {"batch", "width", "depth"}
    assert all(len(row["sizes"]) == 3 and row["exponent"] is not None for row in result["growth"])


def test_memory_on_a_cpu_is_measured_in_processes_apart():
    (row,) = found_by(*TINY, "--engines", "plain", "--memory")["rows"]
    assert row["peak_mib"] is None or 0 < row["peak_mib"] < 1000


def test_a_page_holds_the_rows_and_can_be_drawn_again(tmp_path):
    page, result = tmp_path / "page.html", tmp_path / "result.json"
    found = found_by(*TINY, "--engines", "plain,plain-graph", "--page", str(page), "--out", str(result))
    assert found["page"] == str(page)
    text = page.read_text(encoding="utf-8")
    for part in ("mlp", "float32", "plain-graph", "refused: needs a GPU", "<svg", found["hardware"]["processor"]):
        assert part in text
    again = found_by("bench", "page", str(result))
    assert again["page"] == str(tmp_path / "result.html")
    assert (tmp_path / "result.html").read_text(encoding="utf-8") == text


def test_accounting_rows(monkeypatch):
    monkeypatch.setattr(
        accounting,
        "calibrations",
        lambda: {"tacit pld": lambda rate, target: 4.0 / target, "double": lambda rate, target: 8.0 / target},
    )
    result = found_by("bench", "accounting", "--rounds", "2")
    assert [(row["contender"], row["epsilon"]) for row in result["rows"]] == [
        *(("tacit pld", 1.0), ("double", 1.0)),
        *(("tacit pld", 8.0), ("double", 8.0)),
    ]
    keys = {"noise_multiplier", "epsilon_by_pld", "seconds", "spread_seconds", "ratio"}
    assert all(keys <= row.keys() for row in result["rows"])
    assert result["rows"][0]["ratio"] == 1
    assert result["rows"][0]["epsilon_by_pld"] > result["rows"][1]["epsilon_by_pld"]
    assert result["problem"]["rounds"] == 2


def test_every_calibration_solves_its_problem():
    from tacit.accounting import dpsgd_event, epsilon

    for name, calibrate in accounting.calibrations().items():
        if name.endswith("rdp"):  # the quick ones
            noise = calibrate(accounting.RATE, 8.0)
            assert epsilon(dpsgd_event(accounting.RATE, noise, accounting.STEPS), accounting.DELTA) <= 8.001


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("step", "--models", "llm"), ("model='llm'", "mlp")),
        (("step", "--engines", "warp"), ("engine='warp'", "opacus-ghost")),
        (("step", "--device", "cpu", "--precision", "int4"), ("precision='int4'", "bfloat16")),
        (("step", "--device", "cpu", "--precision", "tf32"), ("precision='tf32'", "GPUs")),
        (("step", "--device", "tpu"), ("device='tpu'", "cuda")),
        (("step", "--device", "cuda"), ("device='cuda'", "--device cpu")),
        (("step", "--device", "cpu", "--memory-limit", "100"), ("memory_limit=100", "GPUs")),
        (("step", "--rounds", "-1"), ("rounds=-1", "at least 1", "Use 3 or more")),
        (("step", "--batch", "0"), ("batch=0", "at least 1", "Use a number such as 256")),
        (("step", "--memory-limit", "0"), ("memory_limit=0", "at least 1", "MiB such as")),
        (("step", "--device", "cpu", "--batch", "1" + "0" * 10), ("batch=10000000000", "would take", "well below")),
        (("step", "--seconds", "0"), ("seconds=0", "above 0", "leave it out")),
        (("step", "--models", ","), ("models=','", "mlp")),
        (("step", "--out", "file/r.json"), ("out='file/r.json'", "cannot be written")),
        (("step", "--page", "file/r.html"), ("page='file/r.html'", "cannot be written")),
        (("accounting", "--rounds", "0"), ("rounds=0", "at least 1", "Use 3 or more")),
        (("page", "no-such-file.json"), ("no-such-file.json", "cannot be read")),
        (("page", "file"), ("result='file'", "no JSON")),
        (("page", "rows.json"), ("rows", "tacit bench step")),
        (("page", "numbers.json"), ("result='numbers.json'", "rows[0]=1", "tacit bench step --out")),
        (("page", "none.json", "other.json"), ("differ in hardware", "a page for each")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input_is_one_line_that_names_argument_and_remedy(arguments, parts, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "rows.json").write_text('{"rows": [{"contender": "x"}]}', encoding="utf-8")
    (tmp_path / "numbers.json").write_text('{"rows": [1]}', encoding="utf-8")
    (tmp_path / "none.json").write_text('{"rows": []}', encoding="utf-8")
    (tmp_path / "other.json").write_text('{"rows": [], "hardware": {"cores": 3}}', encoding="utf-8")
    done = run_tacit("bench", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    for part in parts:
        assert part in line
    written = {"file", "rows.json", "numbers.json", "none.json", "other.json"}
    assert {path.name for path in tmp_path.iterdir()} == written


def test_the_module_entry_needs_no_packages_of_the_command_line():
    blocked = ("typer", "matplotlib", "jinja2")
    script = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from tacit.benchmarking.step import main\n"
        "sys.argv = ['step', '--device', 'cpu', '--models', 'mlp', '--batch', '4', '--rounds', '1',"
        " '--engines', 'tacit-eager']\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {row["engine"] for row in json.loads(done.stdout)["rows"]} == {"plain", "tacit-eager"}
