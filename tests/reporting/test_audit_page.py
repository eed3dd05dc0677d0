"""The page of an audit says what came out, to whom it belongs, and what could have been shown."""

import math
import re

import numpy as np
import pytest
import torch

from tacit.auditing.black_box import CanaryEvidence
from tacit.auditing.canaries import plant
from tacit.auditing.experiment import AuditResult
from tacit.auditing.findings import Attack, Claim, Finding
from tacit.auditing.lower_bounds import LowerBound
from tacit.auditing.roc import Roc
from tacit.core.randomness import Randomness
from tacit.datasets import DataSet, Split
from tacit.reporting import audit_page
from tacit.reporting.audit_page import render_audit

SPLIT = Split(torch.zeros(400, 4), torch.zeros(400).long())
DATA = DataSet("made", SPLIT, SPLIT, 2, (4,), "here")


def finding(
    name="private",
    *,
    epsilon=2.0,
    shift=0.0,
    kind="blank",
    paid_for=True,
    attacks=("lira-online-fixed",),
    by_coins=True,
    coins=200,
    planted=True,
):
    stream = np.random.default_rng(0)
    included = stream.random(coins) < 0.5
    scores = stream.standard_normal(coins) + shift * included
    planting = plant(DATA, 100, kind, Randomness(unsafe_seed=0))[1]
    return Finding(
        name=name,
        claim=Claim(epsilon, 1e-5),
        confidence=0.95,
        canaries=CanaryEvidence.of(planting, scores, included, delta=1e-5, confidence=0.95) if planted else None,
        attacks=[Attack(attack, Roc.of(scores, included)) for attack in attacks],
        by_coins=by_coins,
        paid_for=paid_for,
        test_accuracy=None if attacks else 0.9,
    )


def record(*findings, run="runs/a", white_box=None, shadows=0):
    first = findings[0]
    whole = None if white_box is None else AuditResult(first, first, white_box, records=400, trained="all at once")
    values = first.to_dict() if whole is None else whole.to_dict()
    return {
        **values,
        "findings": [each.drawn() for each in findings],
        **{"shadows": shadows, "shadow_model": "linear"},
        **{"subject": "<b>run</b>", "dataset": "digits", "model": "mlp", "run": run},
        **{"created": "2026-01-01T00:00:00+00:00", "command": "tacit audit", "statement": "The released model is."},
        **{"versions": {"tacit": "0.1"}, "hardware": {"device": "cpu"}},
    }


@pytest.fixture
def without_figures(monkeypatch):
    """Most of the time of a page goes into its figures."""
    for name in ("record_curves", "attack_curves", "canary_curves", "epsilon_ranges", "score_histograms"):
        monkeypatch.setattr(audit_page, name, lambda *_, **__: None)


def words(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_the_page_stands_alone_and_has_words_for_every_figure():
    page = render_audit(record(finding(), finding("plain", epsilon=math.inf, shift=3.0)))
    assert page.count("<svg") == 5
    assert len(re.findall(r'<svg[^>]*aria-label="[^"]+"', page)) == 5
    assert "http" not in re.sub(r"http-equiv|http://www.w3.org/\S+", "", page)
    assert "<b>" not in page
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL).lower().replace("instances", "")


def test_claimed_audited_and_largest_epsilon_are_shown_with_their_confidence():
    found = finding(shift=2.0, epsilon=3.0)
    text = words(render_audit(record(found)))
    bound = found.canaries.bound
    assert 0 < bound.epsilon < 3
    assert f"claimed 3, at least {bound.epsilon:.4g}, of {bound.largest:.4g} that could have been shown" in text
    assert "The claim of epsilon 3 was not refuted: with 95 % confidence" in text
    assert found.canaries.gaussian_bound.method in text
    assert "if it is Gaussian DP" in found.canaries.gaussian_bound.method
    assert "may exceed the true epsilon of a mechanism of another shape" in text
    assert "200 coins" in text


@pytest.mark.usefixtures("without_figures")
def test_a_refuted_claim_is_said_aloud():
    text = words(render_audit(record(finding(epsilon=0.1, shift=3.0))))
    assert "The claim of epsilon 0.1 is refuted" in text
    assert "in at most 5 of 100 audits" in text


@pytest.mark.usefixtures("without_figures")
def test_a_bound_of_zero_is_not_praised():
    text = words(render_audit(record(finding(epsilon=3.0))))
    assert "Nothing was shown against the claim of epsilon 3. At most" in text


def test_without_a_claim_there_is_no_ceiling():
    page = render_audit(record(finding(epsilon=math.inf, shift=3.0)))
    assert "Nothing is claimed." in words(page)
    assert "Without a claim there is no ceiling." in words(page)
    assert "ceiling 100 %" not in page


def test_a_split_that_no_coin_dealt_has_no_ceiling():
    page = render_audit(record(finding(shift=1.0, by_coins=False)))
    assert page.count("there is no ceiling, and these curves refute nothing.</figcaption>") == 1
    assert page.count("which no attack is above on average.</figcaption>") == 1  # that of the canaries
    assert page.count(">ceiling</text>") == 1
    assert not re.search(r"ceiling \d+(\.\d+)? %", page)


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(
    ("options", "run", "said"),
    [
        ({}, "runs/a", "What may be published is the lower bound on epsilon"),
        ({"kind": "mislabelled"}, "runs/a", "its canaries are people’s own inputs"),
        ({"paid_for": False}, None, "no budget paid for these models"),
    ],
)
def test_the_page_says_that_it_is_for_the_owner_and_what_may_leave(options, run, said):
    text = words(render_audit(record(finding(**options), run=run)))
    assert "Private. For the owner of the data." in text
    assert said in text
    assert text.count("may be published") == (1 if not options else 0)


@pytest.mark.usefixtures("without_figures")
def test_rates_stand_beside_their_ceiling_where_there_are_non_members_enough():
    found = finding(shift=1.0)
    text = words(render_audit(record(found)))
    point = found.to_dict()["attacks"][0]["tpr_at_fpr"]
    assert f"ceiling {100 * point[0]['ceiling']:.3g} %" in text
    assert point[0]["enough_non_members"]
    assert not point[1]["enough_non_members"]
    assert text.count("too few non-members") == 2


def test_a_run_whose_records_are_not_at_hand_has_a_page_of_its_canaries():
    page = render_audit(record(finding(attacks=())))
    assert page.count("<svg") == 3
    assert "Attacks on records" not in page
    text = words(page)
    assert "Of people’s records none was looked at." in text
    assert "no budget paid for them" not in text
    assert "may be published is the lower bound" in text
    mislabelled = words(render_audit(record(finding(attacks=(), kind="mislabelled"))))
    assert "no budget paid for them" in mislabelled
    assert "none was looked at" not in mislabelled


@pytest.mark.usefixtures("without_figures")
def test_the_white_box_has_a_headline_a_row_and_a_word_in_the_verdict():
    bound = LowerBound(1.9, 1e-5, 0.975, 100.0, "one run, 50 independent canaries")
    text = words(render_audit(record(finding(), white_box=bound)))
    assert "refuted" not in text
    for shift in (0.0, 1.0):  # the models show nothing, and something
        said = words(render_audit(record(finding(shift=shift), white_box=bound)))
        assert "could have been shown. To whoever sees every step epsilon is at least 1.9." in said
    assert "whoever sees every step" not in words(render_audit(record(finding())))
    assert "White box ≥ 1.9" in text
    assert "one run, 50 independent canaries 1.9 100 97.5 %" in text
    assert "White box" not in words(render_audit(record(finding())))


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize(
    ("shift", "seen", "said"),
    [
        (0.0, 2.4, "epsilon is at least 2.4 in the white box."),
        (4.0, 2.4, ", and epsilon is at least 2.4 in the white box."),
        (4.0, 1.9, " at delta 1e-05."),
    ],
)
def test_either_bound_refutes_and_both_share_the_chance_of_a_false_accusation(shift, seen, said):
    bound = LowerBound(seen, 1e-5, 0.975, 100.0, "one run")
    page = render_audit(record(finding(shift=shift), white_box=bound))
    assert "The claim of epsilon 2 is refuted: with 95 % confidence epsilon is at least" in words(page)
    assert f"{said} A true claim is accused in at most 5 of 100 audits." in words(page)
    assert 'class="statement void"' in page


RUN_ATTACKS = ("calibrated-loss", "lira-offline-fixed", "lira-offline", "loss")


def test_every_attack_on_a_run_has_a_curve_and_no_ceiling():
    found = finding(by_coins=False, attacks=RUN_ATTACKS, shift=1.0)
    page = render_audit(record(found, shadows=16))
    assert page.count("<svg") == 5
    for name in RUN_ATTACKS:
        assert f">{name}</text>" in page
        assert f"{name} {found.attacks[0].roc.auc().value:.3f}" in words(page)
    assert page.count(">ceiling</text>") == 1  # that of the canaries
    assert "The auditor trained 16 plain models (linear) beside the released one" in words(page)
    assert "Scores of calibrated-loss." in words(page)
    assert "The auditor trained" not in words(render_audit(record(finding(by_coins=False))))


def test_every_attack_of_an_experiment_is_drawn_under_its_ceiling():
    findings = [finding(attacks=RUN_ATTACKS), finding("plain", epsilon=math.inf, attacks=RUN_ATTACKS)]
    page = render_audit(record(*findings, run=None, shadows=16))
    assert page.count("<svg") == 6
    assert "Every attack on records" in page
    assert "Area under the curve: private: calibrated-loss" in words(page)
    assert page.count(">lira-offline</text>") == 2  # a panel for each model
    assert page.count(">ceiling</text>") == 3  # canaries, the attack that counts, and of every attack the private panel
    assert "The auditor trained" not in words(page)


def test_a_run_without_canaries_is_neither_praised_nor_accused():
    page = render_audit(record(finding(by_coins=False, attacks=RUN_ATTACKS, planted=False, shift=9.0), shadows=16))
    assert page.count("<svg") == 2
    text = words(page)
    assert "The claim of epsilon 2 was not tested: no canaries were planted in this run." in text
    assert "Audited epsilon not tested" in text
    assert "Lower bounds on epsilon" not in text
    assert "may be published" not in text
    assert "is refuted" not in text
    unclaimed = words(render_audit(record(finding(by_coins=False, planted=False, epsilon=math.inf))))
    assert "Nothing is claimed: no canaries were planted in this run." in unclaimed
