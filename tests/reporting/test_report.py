"""The page of a run: what it shows, what it never shows, and what a broken folder is told."""

import json
import math
import os
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib._pylab_helpers import Gcf

from tacit.core import InputError
from tacit.reporting import read_run, write_report

SENTENCE = "The released model is (2.999, 1e-05)-differentially private for one example under the add-remove relation."


def a_run(**changes: Any) -> dict[str, Any]:
    run: dict[str, Any] = {
        "schema": 1,
        "name": "first",
        "created": "2026-11-15T12:12:44+02:00",
        "command": ["tacit", "train", "digits", "--epsilon", "3"],
        "dataset": "digits",
        "model": "mlp",
        "plan": {
            "steps": 500,
            "noise_multiplier": 1.2345,
            "clipping": {"kind": "flat", "bound": 0.1},
            "epsilon": 3.0,
            "delta": 1e-5,
        },
        "statement": {
            "epsilon": 2.9987,
            "delta": 1e-5,
            "accountant": "pld",
            "caveats": [],
            "sentence": SENTENCE,
        },
        "epsilon_by_accountant": {"pld": 2.9987, "rdp": 3.3, "gdp": 2.8, "basic": 812.0},
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "hardware": {"cpu": "x86_64", "cores": 2},
        "seeds": [0, 1],
        "metrics": {"test_accuracy": 0.9123, "test_accuracy_std": 0.0045, "seconds": 75.0},
        "status": "finished",
        "steps_done": 500,
    }
    return run | changes


def history(seeds: int = 2, steps: int = 500, every: int = 50) -> list[dict[str, Any]]:
    return [
        {"seed": seed, "step": step, "epsilon": math.sqrt(step / 500) * 3, "test_accuracy": 0.9 - 40 / (step + 50)}
        for seed in range(seeds)
        for step in range(every, steps + 1, every)
    ]  # fmt: skip


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write a run folder and return its page as text."""

    def write_page(run: dict[str, Any] | None = None, lines: list[dict[str, Any]] | None = None) -> str:
        (tmp_path / "run.json").write_text(json.dumps(a_run() if run is None else run))
        text = "".join(json.dumps(line) + "\n" for line in (history() if lines is None else lines))
        (tmp_path / "history.jsonl").write_text(text)
        page = write_report(tmp_path)
        assert page == tmp_path / "report.html"
        return page.read_text()

    return write_page


class _Page(HTMLParser):
    """Tags in the order of opening; raises on tags that close what is not open."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_page_says_what_the_run_says(write: Any) -> None:
    page = write()
    shown = [SENTENCE, "mlp", "digits", "91.23 %", "± 0.45 over 2 seeds", "2.999", "1e-5", "1.234", "500", "1 min 15 s"]
    shown += ["flat, bound 0.1", "tacit train digits --epsilon 3", "3.11.7", "x86_64", "2026-11-15 10:12 UTC"]
    for text in shown:
        assert text in page, text
    assert "interrupted" not in page.split("</style>")[1]
    assert "What weakens this guarantee" not in page


def test_the_statement_stands_before_every_figure(write: Any) -> None:
    page = write()
    assert page.index(SENTENCE) < page.index("<dl") < page.index("<svg")


def test_the_page_is_well_formed_and_stands_alone(write: Any) -> None:
    text = write()
    page = _Page(text)
    assert page.open == []
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object"}
    for _, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href"):
                assert value is not None
                assert value.startswith("#")
    assert "//" not in re.sub(r"<svg.*?</svg>", "", text, flags=re.DOTALL)
    assert "url(http" not in text
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_every_reference_inside_a_figure_has_its_target(write: Any) -> None:
    for svg in re.findall(r"<svg.*?</svg>", write(), flags=re.DOTALL):
        targets = set(re.findall(r'\bid="([^"]+)"', svg))
        used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
        assert used
        assert used <= targets


def test_the_page_can_be_read_without_seeing_it(write: Any) -> None:
    page = _Page(write())
    figures = page.attributes("svg")
    assert len(figures) == 3
    for figure in figures:
        assert figure["role"] == "img"
        assert figure["aria-label"]
    labels = " ".join(str(figure["aria-label"]) for figure in figures)
    assert "82.7 % after 500 steps" in labels
    assert "epsilon 3 after 500 steps" in labels
    assert "pld 2.999" in labels
    assert all("scope" in header for header in page.attributes("th"))
    assert page.attributes("html") == [{"lang": "en"}]


def test_figures_follow_light_and_dark(write: Any) -> None:
    page = write()
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    for svg in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL):
        assert "var(--accent)" in svg
        ET.fromstring(svg.replace("xlink:href", "href"))
        assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) <= {"#ffffff"}  # the transparent background


def test_estimates_are_marked_and_bounds_are_not(write: Any) -> None:
    page = write()
    assert "2.8 (estimate)" in page
    assert "Hatched bars (gdp) are estimates, not upper bounds." in page
    for bound in ("2.999", "3.3", "812"):
        assert f"{bound} (estimate)" not in page


def test_an_unknown_accountant_is_not_drawn(write: Any) -> None:
    assert "astrology" not in write(a_run(epsilon_by_accountant={"astrology": 0.01, "pld": 2.9987}))


def test_pitfall_35_figures_on_training_data_never_reach_the_page(write: Any) -> None:
    secret = {"train_loss": 0.7654321, "gradient_norm": 31337.25, "batch_size": 98765, "train_accuracy": 0.87654321}
    run = a_run(**secret)
    for part in ("plan", "metrics", "versions", "hardware", "statement"):
        run[part] = run[part] | secret
    page = write(run, [line | secret for line in history()])
    for key, value in secret.items():
        assert key not in page
        assert str(value)[:5] not in page
        assert f"{value:,.4g}" not in page
        assert key.replace("_", " ") not in page


def test_hostile_names_stay_text(write: Any) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>"
    run = a_run(name=evil, dataset=evil, model=evil, command=evil, created=evil, seeds=[evil])
    run["plan"] |= {"optimizer": evil, "clipping": {evil: evil}}
    run["versions"] = {"python": evil}
    run["hardware"] = {"cpu": evil}
    run["statement"] |= {"sentence": evil, "caveats": [evil], "accountant": evil}
    run["epsilon_by_accountant"] = {evil: 1.0, "pld": 2.0}
    text = write(run)
    page = _Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "b"}
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(("status", "words"), [("interrupted", "was interrupted"), ("failed", "failed")])
def test_a_run_that_did_not_finish_says_where_it_stopped(write: Any, status: str, words: str) -> None:
    page = write(a_run(status=status, steps_done=173), history(1, 150))
    assert f"This run {words} after step 173 of 500." in page
    assert 'role="alert"' in page
    assert ">173<small>of 500</small>" in page


def test_caveats_are_set_apart(write: Any) -> None:
    run = a_run()
    run["statement"] |= {"caveats": ["a fixed seed voids the guarantee"]}
    page = write(run)
    assert "What weakens this guarantee" in page
    assert "<li>a fixed seed voids the guarantee</li>" in page


def test_no_guarantee_is_not_a_number(write: Any) -> None:
    run = a_run()
    run["statement"] |= {"epsilon": None}
    page = write(run)
    assert ">∞<small>no guarantee</small>" in page
    assert page.count("This run has no guarantee: the figure is what its noise would have earned.") == 2


def test_a_bare_run_gives_a_page_without_figures(tmp_path: Path) -> None:
    bare = {"schema": 1, "status": "failed", "statement": {"sentence": SENTENCE, "epsilon": 1.0, "delta": 0}}
    (tmp_path / "run.json").write_text(json.dumps(bare))
    page = write_report(tmp_path).read_text()
    assert SENTENCE in page
    assert "<svg" not in page


def test_one_point_and_zero_epsilon_can_be_drawn(write: Any) -> None:
    run = a_run(epsilon_by_accountant={"pld": 0.0, "rdp": 0.0}, seeds=[0])
    run["plan"]["epsilon"] = 0
    page = write(run, [{"seed": 0, "step": 1, "epsilon": 0.0, "test_accuracy": 0.1}])
    assert "One seed: 10.0 % after 1 steps." in page


def test_seeds_without_a_common_step_have_no_mean(write: Any) -> None:
    lines = [{"seed": seed, "step": seed + 1, "test_accuracy": 0.5} for seed in range(2)]
    assert "Last of 2 seeds: 50.0 % after 2 steps." in write(None, lines)


def test_the_mean_is_over_the_seeds(write: Any) -> None:
    lines = [{"seed": s, "step": t, "test_accuracy": 0.5 + 0.1 * s} for s in range(3) for t in (1, 2)]
    assert "Mean of 3 seeds: 60.0 % after 2 steps." in write(None, lines)


def test_long_histories_are_thinned(write: Any) -> None:
    short = write(None, history(1, 300, 1))
    run = a_run(steps_done=20_000)
    long = write(run, history(1, 20_000, 1))
    assert len(long) < 1.5 * len(short)
    assert "after 20,000 steps" in long


def test_thinning_keeps_both_ends() -> None:
    from tacit.reporting.figures import MAX_POINTS_A_LINE, thin

    for length in (1, MAX_POINTS_A_LINE, MAX_POINTS_A_LINE + 1, 12_345):
        line = [(step, float(step)) for step in range(length)]
        thinned = thin(line)
        assert len(thinned) == min(length, MAX_POINTS_A_LINE)
        assert (thinned[0], thinned[-1]) == (line[0], line[-1])
        assert thinned == sorted(set(thinned))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "has no run.json. Give the folder that a run wrote"),
        ("{", "cannot be read"),
        ("[1]", "must hold one JSON object"),
        (b"\xff\xfe", "cannot be read"),
        (json.dumps(a_run(schema=2)), "schema=2.*Install the tacit that wrote it"),
        (json.dumps(a_run(statement=None)), "has no statement"),
        (json.dumps(a_run(status="fine")), "status='fine'.*finished, interrupted, failed"),
    ],
)
def test_a_broken_run_is_named_with_a_remedy(tmp_path: Path, content: str | bytes | None, words: str) -> None:
    if content is not None:
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "run.json").write_bytes(data)
    with pytest.raises(InputError, match=words) as caught:
        write_report(tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.*has no run\.json"):
        write_report(tmp_path / "nowhere")


def test_a_broken_line_of_the_history_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(a_run()))
    good = json.dumps(history()[0])
    (tmp_path / "history.jsonl").write_text(f'{good}\n{{"seed": 0\n{good}\n')
    with pytest.raises(InputError, match="line 2 is not a step of a run"):
        write_report(tmp_path)
    (tmp_path / "history.jsonl").write_text(f'{good}\n{{"step": 3}}\n')
    with pytest.raises(InputError, match="line 2 is not a step of a run"):
        write_report(tmp_path)


def test_the_last_words_of_a_killed_run_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(a_run()))
    (tmp_path / "history.jsonl").write_text(json.dumps(history()[0]) + '\n{"seed": 0, "st')
    assert len(read_run(tmp_path).history) == 1


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(a_run()))
    (tmp_path / "report.html").mkdir()  # what cannot be replaced by a file, also by root
    with pytest.raises(InputError, match=r"cannot write report.html .*Check that you may write there"):
        write_report(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["report.html", "run.json"]


def test_the_page_is_written_again_the_same(write: Any, tmp_path: Path) -> None:
    assert write() == write()
    assert sorted(os.listdir(tmp_path)) == ["history.jsonl", "report.html", "run.json"]


def test_drawing_leaves_no_global_state(write: Any) -> None:
    before = dict(mpl.rcParams)
    write()
    assert dict(mpl.rcParams) == before
    assert Gcf.figs == {}


def test_a_regression_shows_its_squared_error(write: Any) -> None:
    points = [{"seed": 0, "step": step, "epsilon": step / 100, "test_mse": 1 / step} for step in (10, 20, 40)]
    page = write(a_run(metrics={"test_mse": 0.025, "test_mse_std": 0.0, "seconds": 3.0}, seeds=[0]), points)
    assert "Test squared error" in page
    assert "0.025" in page
    assert "One seed: 0.025 after 40 steps." in page
    assert "Test accuracy" not in page
