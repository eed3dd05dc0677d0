"""The results page is made from result files alone, and shows what they say."""

import json
import xml.etree.ElementTree as ElementTree
from unittest import mock

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent
from matplotlib.axes import Axes

from tacit.accounting import dpsgd_event, event_to_json
from tacit.core.errors import InputError
from tacit.recipes import read_results, write_result
from tacit.reporting import results_figures
from tacit.reporting.canvas import PALETTE, canvas, label_shares
from tacit.reporting.results_page import write_results_page

RESULT = {
    "name": "some-recipe",
    "method": "some method",
    "dataset": "mnist",
    "knobs": {"setting": "published", "epsilon": 2.0},
    "published": 0.95,
    "published_epsilon": 2.0,
    "measured": 0.9613,
    "std": 0.0012,
    "measured_on": "test set",
    "epsilon": 1.554,
    "epsilon_by_accountant": {"pld": 1.554, "moments": 1.99},
    "noise_multiplier": 4.0,
    "steps": 1000,
    "seeds": 5,
    "seconds_a_seed": 61.0,
    "history": [
        {"seed": 0, "step": 500, "epochs": 5, "epsilon": 1.0, "accuracy": 0.9},
        {"seed": 0, "step": 1000, "epochs": 10, "epsilon": 1.554, "accuracy": 0.96},
    ],
    "hardware": {"threads": 2},
    "versions": {},
    "command": "tacit recipe run some-recipe",
    "date": "2026-01-01T00:00:00+00:00",
}
SWEEP = {
    "name": "some-recipe",
    "over": [{"key": "clip", "values": ["1", "20"]}],
    "settings": {"epsilon": "2"},
    "measured_on": "test set",
    "rows": [
        {"clip": 1.0, "test_accuracy": 0.9, "std": None},
        {"clip": 20.0, "test_accuracy": 0.8, "std": None},
    ],
    "seeds": 1,
    "command": "tacit sweep some-recipe --over clip=1,20",
}
PUBLISHED = [{"recipe": "some-recipe", "dataset": "mnist", "method": "some method", "epsilon": 2.0, "accuracy": 0.95}]


@pytest.fixture
def page(tmp_path):
    write_result(RESULT, tmp_path, ["epsilon=2"])
    write_result(SWEEP, tmp_path, ["sweep", "clip"])
    path, figures = write_results_page(tmp_path, *read_results(tmp_path), PUBLISHED)
    return path.read_text(encoding="utf-8"), figures


def test_files_are_named_by_what_was_measured(tmp_path):
    assert write_result(RESULT, tmp_path, ["epsilon=0.5"]).name == "some-recipe-epsilon-0.5.json"


def test_a_result_replaces_another_whole_or_not_at_all(tmp_path, monkeypatch):
    path = write_result(RESULT, tmp_path, [])
    before = path.read_bytes()
    monkeypatch.setattr("tacit.reporting.rendering.os.replace", mock.Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(InputError, match="No space left"):
        write_result({**RESULT, "measured": 0.1}, tmp_path, [])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_page_shows_the_figures_of_the_files(page):
    text, _ = page
    for part in ("**96.13** ± 0.12", "95 at 2", "1.554", "1.990", "1,000", "some-recipe-epsilon-2.json", "published"):
        assert part in text
    assert "earlier" not in text  # no such row needs explaining


def test_rows_say_what_their_command_has_set(tmp_path):
    command = "tacit recipe run some-recipe --set epsilon=2 --set public=last --set learning_rate=0.1 --seeds 5"
    write_result({**RESULT, "command": command}, tmp_path, [])
    page, _ = write_results_page(tmp_path, *read_results(tmp_path), [])
    assert "| some method | published, public last, learning rate 0.1 |" in page.read_text(encoding="utf-8")


def test_a_row_from_before_its_recipe_was_changed_says_so(tmp_path):
    """In the table with what it had then; in figures, where there is no room for that, with a word."""
    knobs = {"epsilon": 3.0, "whitening": 0.7, "learning_rate": None}
    earlier = {**RESULT, "name": "noise-linear-cifar10", "dataset": "cifar10-jpeg", "knobs": knobs}
    text, drawn = shown(tmp_path, {**earlier, "command": "tacit recipe run noise-linear-cifar10 --set epsilon=3"})
    assert "| ours, earlier (whitening 0.7, steps 1000, public start not recorded) |" in text
    assert "\n\n*earlier* marks a row" in text
    assert "some method, ours, earlier<" in drawn["frontier-cifar10-jpeg"]
    assert "noise-linear-cifar10-ours-earlier-epochs" in drawn


def test_every_figure_is_shown_and_whole(page):
    text, figures = page
    assert {figure.stem for figure in figures} == {
        "frontier-mnist",
        "some-recipe-published-epochs",
        "some-recipe-sweep-clip",
        "accountants",
    }
    for figure in figures:
        assert f"figures/{figure.name}" in text
        root = ElementTree.parse(figure).getroot()
        assert root.tag.endswith("svg")
        assert "var(--" not in figure.read_text(encoding="utf-8")


def test_published_points_are_marked(page):
    _, figures = page
    frontier = next(figure for figure in figures if figure.stem == "frontier-mnist")
    assert "some method, as published" in frontier.read_text(encoding="utf-8")


def test_notes_have_the_same_number_in_the_figure(tmp_path):
    write_result(RESULT, tmp_path, [])
    noted = [{**PUBLISHED[0], "note": "other images", "accountant": "moments"}]
    page, (frontier, *_) = write_results_page(tmp_path, *read_results(tmp_path), noted)
    assert "1. **some method** at epsilon 2: other images; accounted by moments." in page.read_text(encoding="utf-8")
    assert "some method, as published [1]" in frontier.read_text(encoding="utf-8")


def test_a_data_set_without_a_measurement_has_no_part(tmp_path):
    write_result(RESULT, tmp_path, [])
    page, figures = write_results_page(tmp_path, *read_results(tmp_path), [{**PUBLISHED[0], "dataset": "svhn"}])
    assert "svhn" not in page.read_text(encoding="utf-8")
    assert "frontier-svhn" not in {figure.stem for figure in figures}


def test_sweeps_say_how_many_seeds_they_have(tmp_path):
    text, _ = shown(tmp_path, SWEEP, {**SWEEP, "seeds": 3})
    assert "A point is one\nmodel, of one seed, unless" in text
    assert "; 1 seed a point." in text
    assert "; 3 seeds a point." in text


def test_the_same_files_give_the_same_page(page, tmp_path):
    text, figures = page
    before = [figure.read_text(encoding="utf-8") for figure in figures]
    path, again = write_results_page(tmp_path, *read_results(tmp_path), PUBLISHED)
    assert path.read_text(encoding="utf-8") == text
    assert [figure.read_text(encoding="utf-8") for figure in again] == before


def test_accountants_are_those_of_the_paper(page):
    text, _ = page
    row = next(line for line in text.splitlines() if line.startswith("| 100 |"))
    strong, moments, rdp, pld = (float(cell) for cell in row.split("|")[2:6])
    assert 9.3 < strong < 9.4  # Abadi et al. 2016: 9.34 and 1.26 after 100 epochs
    assert moments == pytest.approx(1.26, abs=0.005)
    assert pld < rdp < moments


def test_a_file_that_is_no_result_is_named(tmp_path):
    (tmp_path / "odd.json").write_text(json.dumps({"name": "x"}), encoding="utf-8")
    with pytest.raises(InputError, match=r"odd\.json"):
        read_results(tmp_path)
    (tmp_path / "odd.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="no JSON"):
        read_results(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_results(tmp_path / "nowhere")
    (tmp_path / "odd.json").unlink()
    (tmp_path / "odd.json").mkdir()
    with pytest.raises(InputError, match=r"odd\.json': cannot be read"):
        read_results(tmp_path)


@pytest.mark.parametrize("field", ["steps", "knobs", "method", "dataset", "history", "epsilon_by_accountant"])
def test_a_file_without_what_the_page_shows_is_named(tmp_path, field):
    written = write_result({key: value for key, value in RESULT.items() if key != field}, tmp_path, [])
    with pytest.raises(InputError, match=rf"{written.name}': has no {field}\. Measure it again"):
        read_results(tmp_path)


def test_a_sweep_without_its_axes_is_named(tmp_path):
    written = write_result({key: value for key, value in SWEEP.items() if key != "over"}, tmp_path, [])
    with pytest.raises(InputError, match=rf"{written.name}': has no over\."):
        read_results(tmp_path)


def test_an_epsilon_of_certain_votes_is_marked_in_the_plot(tmp_path):
    """It is smaller than what is guaranteed, and stands where others are guarantees."""
    _, drawn = shown(tmp_path, {**RESULT, "epsilon_is_private": True, "epsilon_note": "these votes, private"})
    assert "some method, published *<" in drawn["frontier-mnist"]


def shown(folder, *results):
    for number, result in enumerate(results):
        write_result(result, folder, [str(number)])
    path, figures = write_results_page(folder, *read_results(folder), [])
    return path.read_text(encoding="utf-8"), {figure.stem: figure.read_text(encoding="utf-8") for figure in figures}


def test_epsilons_that_were_claimed_stand_beside_the_true_one(tmp_path):
    claimed = {**RESULT, "epsilon": 365_963.3, "epsilons": {"claimed": 1.281, "actual": 365_963.3}}
    text, figures = shown(tmp_path, RESULT, claimed)
    assert "epsilon, claimed" in text
    assert "| 1.281 |" in text
    assert "365,963" in text
    assert "10^5" not in figures["frontier-mnist"]  # it would flatten all the others


def test_what_stands_beside_the_accuracy_is_shown(tmp_path):
    write_result({**RESULT, "beside": {"AUC": 0.7123, "constant answer": 0.6}}, tmp_path, ["a"])
    write_result({**RESULT, "method": "other", "beside": {"AUC": 0.8}}, tmp_path, ["b"])
    text = write_results_page(tmp_path, *read_results(tmp_path), [])[0].read_text(encoding="utf-8")
    assert "| method | measured | AUC | constant answer |" in text
    assert "| 96.13 | 71.23 | 60.00 |" in text
    assert "| 96.13 | 80.00 | – |" in text


def test_runs_without_a_guarantee_are_compared_with_those_that_have_one(tmp_path):
    history = [{**point, "epsilon": None} for point in RESULT["history"]]
    free = {**RESULT, "epsilon": None, "noise_multiplier": None, "epsilon_by_accountant": {}, "history": history}
    free |= {"knobs": {"setting": "plain"}, "metric": "variance explained"}
    text, figures = shown(tmp_path, free, RESULT)
    assert "| none |" in text
    assert "Measured is the variance explained." in text
    assert "frontier-mnist" not in figures
    assert "plain" in figures["some-recipe-without-noise-epochs"]
    assert "published, epsilon 1.55" in figures["some-recipe-private-epochs"]


def test_a_baseline_without_privacy_is_in_its_table_and_in_no_frontier(tmp_path):
    history = [{**point, "epsilon": None} for point in RESULT["history"]]
    plain = {**RESULT, "epsilon": None, "noise_multiplier": None, "epsilon_by_accountant": {}, "history": history}
    plain |= {"knobs": {"setting": "plain"}, "published": 0.983, "published_epsilon": None}
    write_result(plain, tmp_path, ["plain"])
    write_result(RESULT, tmp_path, ["private"])
    claims = [*PUBLISHED, {**PUBLISHED[0], "epsilon": None, "accuracy": 0.983}]
    path, figures = write_results_page(tmp_path, *read_results(tmp_path), claims)
    text, drawn = path.read_text(encoding="utf-8"), {figure.stem: figure.read_text("utf-8") for figure in figures}
    assert "| some method | plain | 98.3 without privacy | **96.13** ± 0.12 | 5 | none | – | – |" in text
    assert "plain" not in drawn["frontier-mnist"]
    assert drawn["frontier-mnist"].count("some method, as published") == 1
    assert "epsilon" not in drawn["some-recipe-plain-epochs"].split("</title>")[1]
    assert "some-recipe-published-epochs" in drawn  # as without the baseline


def test_accuracy_against_epsilon_and_delta_is_recounted_from_the_event(tmp_path):
    event = event_to_json(ComposedDpEvent([GaussianDpEvent(7.0), dpsgd_event(0.01, 4.0, 1000)]))
    text, figures = shown(tmp_path, {**RESULT, "name": "abadi2016-mnist", "event": event})
    drawn = figures["abadi2016-mnist-published-deltas"]
    assert "figures/abadi2016-mnist-published-deltas.svg" in text
    for label in ("delta 0.01", "delta 1e-05", "noise 4"):
        assert label in drawn


def test_runs_on_other_inputs_have_a_figure_of_deltas_of_their_own(tmp_path):
    """In one figure, runs of the same noise would be told apart by nothing."""
    run = {**RESULT, "name": "abadi2016-mnist", "event": event_to_json(dpsgd_event(0.01, 4.0, 1000))}
    kinds = [
        {
            **{**run, "knobs": {"setting": "published", "inputs": inputs}},
            "command": f"tacit recipe run abadi2016-mnist --set inputs={inputs}",
        }
        for inputs in ("upright", "pixels")
    ]
    text, figures = shown(tmp_path, *kinds)
    for name in ("abadi2016-mnist-published-upright-deltas", "abadi2016-mnist-published-pixels-deltas"):
        assert figures[name].count("delta 0.01<") == 1
        assert text.count(f"figures/{name}.svg") == 1
    assert text.count("## Accuracy against epsilon and delta") == 1


def test_what_was_measured_to_choose_by_says_so_and_is_in_no_frontier(tmp_path):
    chosen = {**RESULT, "measured": 0.9999, "measured_on": "5000 held-out training examples"}
    text, figures = shown(tmp_path, RESULT, chosen)
    assert "| some method | published, on held-out training examples | 95 at 2 | **99.99** ± 0.12 |" in text
    assert "| some method | published | 95 at 2 | **96.13** ± 0.12 |" in text
    assert "held-out" not in figures["frontier-mnist"]


@pytest.mark.parametrize(
    ("training", "mixed"),
    [
        ({"weights": "last iterate"}, False),
        ({"weights": "exponential average, decay 0.99"}, True),
        ({"average": 0.99}, True),
        ({"weights": "exponential average, decay 0.99", "weights_on_the_way": "exponential average"}, False),
    ],
)
def test_a_curve_of_weights_that_ends_with_their_average_says_so(tmp_path, training, mixed):
    text, _ = shown(tmp_path, {**RESULT, "training": training})
    assert text.count("On the way the weights themselves, at the end their moving average.") == mixed


def test_bars_end_where_shares_do(monkeypatch):
    """Half of the seeds at 100 %, half at chance: a standard deviation more is no share."""
    drawn = []
    monkeypatch.setattr(Axes, "errorbar", lambda self, x, y, yerr, **_: drawn.append(yerr))
    shares, spreads = (0.75, 0.25, -0.5), (0.5, None, 0.1)  # variance that is explained may be less than nothing
    rows = [{"clip": 1.0, "test_accuracy": share, "std": std} for share, std in zip(shares, spreads, strict=True)]
    results_figures.sweep("some-sweep", {**SWEEP, "rows": rows})
    np.testing.assert_allclose(drawn, [[[0.5, 0.0, 0.0], [0.25, 0.0, 0.1]]])


def test_names_are_not_joined_by_a_line(tmp_path):
    rows = [{"optimizer": name, "test_accuracy": 0.9, "std": None} for name in ("sgd", "adam")]
    swept = {**SWEEP, "over": [{"key": "optimizer", "values": ["sgd", "adam"]}], "rows": rows}
    _, figures = shown(tmp_path, swept)
    drawn = figures["some-recipe-0"]
    assert ">sgd<" in drawn
    assert ">adam<" in drawn


def test_knobs_are_shown_as_they_were_asked_for(tmp_path):
    """Noise for epsilon 0.5 gives a little less; lots of 12,000 are whole."""
    for key, values, labels in (
        ("epsilon", [0.499963, 7.99828, 1234.5], [">0.5<", ">8<", ">1234.5<"]),
        ("batch_size", [600, 12_000], [">600<", ">12000<"]),
    ):
        rows = [{key: value, "test_accuracy": 0.9, "std": None} for value in values]
        _, figures = shown(tmp_path, {**SWEEP, "over": [{"key": key, "values": values}], "rows": rows})
        for label in labels:
            assert label in figures["some-recipe-0"]


def test_ticks_of_shares_say_where_they_stand():
    """Ticks at 87.5 and 82.5 % were labelled 88 and 82."""
    figure, axes = canvas()
    axes.set_ylim(0.74, 0.92)
    label_shares(axes)
    figure.canvas.draw()
    ticks = axes.get_yticks()
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"{100 * tick:.6g} %" for tick in ticks]
    assert any(round(1000 * tick) % 10 for tick in ticks)


def test_methods_that_share_a_colour_differ_in_their_markers(monkeypatch):
    """Measured and published points alike, where there are more methods than colours."""
    figures = []
    monkeypatch.setattr(results_figures, "as_svg_file", lambda figure, *names: figures.append(figure) or "")
    names = [f"method {number}" for number in range(len(PALETTE) + 1)]
    published = [{"method": name, "epsilon": 1.0, "accuracy": 0.5} for name in names]
    measured = [{**row, "setting": "ours", "std": 0.01} for row in published]
    results_figures.frontier("mnist", measured, published)
    looks = [
        (line.get_color(), line.get_marker(), line.get_fillstyle())
        for line in figures[0].axes[0].lines
        if line.get_marker() in (*results_figures._MARKERS, *results_figures._HOLLOW)
    ]
    assert len(looks) == len(set(looks)) == 2 * len(names)
