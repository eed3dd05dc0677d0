"""The page of an audit: one HTML file that needs nothing else, for the owner of the data."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tacit.reporting.audit_figures import (
    attack_curves,
    canary_curves,
    epsilon_ranges,
    record_curves,
    score_histograms,
)
from tacit.reporting.rendering import Headline, display, fill, moment

Values = Mapping[str, Any]


def render_audit(record: Values) -> str:
    """The page as text, from the record of `tacit audit`."""
    findings = record["findings"]
    drawings = [
        record_curves(findings),
        epsilon_ranges(findings),
        canary_curves(findings),
        score_histograms(findings, of_records=False),
        score_histograms(findings, of_records=True),
        attack_curves(findings),
    ]
    return fill(
        "audit.html",
        {
            "record": record,
            "audited": findings[0],
            "verdict": _verdict(record),
            "of_records": bool(record["attacks"]) or "epsilon_lower" in record["private"],
            "publishable": "epsilon_lower" not in record["private"],
            "tested": record["canaries"] is not None,
            "references": bool(record["attacks"]) and record["shadows"] > 0,
            "white_box": record.get("white_box") is not None,
            "headlines": _headlines(record),
            "drawings": [drawing for drawing in drawings if drawing is not None],
            "attacks": [_attack_cells(finding, attack) for finding in findings for attack in finding["attacks"]],
            "bounds": _bounds(record),
            "provenance": _provenance(record),
        },
    )


def _verdict(record: Values) -> str:
    if record["canaries"] is None:
        claim = record["epsilon_claimed"]
        against = "Nothing is claimed" if claim is None else f"The claim of epsilon {claim:.4g} was not tested"
        return f"{against}: no canaries were planted in this run. Its records were attacked, which refutes nothing."
    confidence = f"with {100 * record['confidence']:g} % confidence"
    lower = f"epsilon is at least {record['epsilon_lower']:.4g} at delta {record['delta']:g}"
    if record["epsilon_claimed"] is None:
        return f"Nothing is claimed. {confidence.capitalize()} {lower}."
    claim = f"the claim of epsilon {record['epsilon_claimed']:.4g}"
    if record["refuted"]:
        accused = f"A true claim is accused in at most {100 - 100 * record['confidence']:.3g} of 100 audits."
        return f"{claim.capitalize()} is refuted: {confidence} {_refutation(record, lower)}. {accused}"
    most = f"At most {record['epsilon_largest']:.4g} could have been shown.{_seen_at_every_step(record)}"
    if record["epsilon_lower"] == 0:
        return f"Nothing was shown against {claim}. {most}"
    return f"{claim.capitalize()} was not refuted: {confidence} {lower}. {most}"


def _seen_at_every_step(record: Values) -> str:
    """What the white box shows: mostly far more than the models, which would look harmless without it."""
    bound = record.get("white_box")
    return f" To whoever sees every step epsilon is at least {bound['epsilon']:.4g}." if bound else ""


def _refutation(record: Values, lower: str) -> str:
    """What lies above the claim: the models' bound, or else that of the white box."""
    bound = record.get("white_box") or {"refuted": False}
    if not bound["refuted"]:
        return lower
    white_box = f"epsilon is at least {bound['epsilon']:.4g} in the white box"
    return f"{lower}, and {white_box}" if record["findings"][0]["refuted"] else white_box


def _headlines(record: Values) -> list[Headline]:
    findings = record["findings"]
    first = findings[0]
    claimed = "none" if first["epsilon_claimed"] is None else display(first["epsilon_claimed"])
    headlines = [
        Headline("Claimed epsilon", claimed, f"delta {display(first['delta'])}"),
        *_audited(record, first),
    ]
    if first["auc"] is not None:
        detail = _beside(findings, lambda finding: f"{finding['auc']:.3f}")
        headlines.append(Headline("AUC on records", f"{first['auc']:.3f}", f"{first['attacks'][0]['name']}{detail}"))
    if first["test_accuracy"] is not None:
        detail = _beside(findings, _accuracy)
        headlines.append(Headline("Test accuracy", _accuracy(first), f"mean over the models{detail}"))
    return headlines


def _audited(record: Values, first: Values) -> list[Headline]:
    canaries = first["canaries"]
    if canaries is None:
        return [Headline("Audited epsilon", "not tested", "no canaries were planted")]
    several = "" if canaries["coins"] == canaries["count"] else f", {canaries['coins']:,} coins"
    could = f"{100 * first['confidence']:g} % confidence; {first['epsilon_largest']:.3g} could have been shown"
    return [
        Headline("Audited epsilon", f"≥ {first['epsilon_lower']:.3g}", could),
        *_white_box(record),
        Headline("Canaries", display(canaries["count"]), f"{canaries['kind']}{several}"),
    ]


def _white_box(record: Values) -> list[Headline]:
    bound = record.get("white_box")
    return [Headline("White box", f"≥ {bound['epsilon']:.3g}", "every step seen, Dirac gradients")] if bound else []


def _beside(findings: Sequence[Values], told: Callable[[Values], str]) -> str:
    return "".join(f"; {finding['name']} {told(finding)}" for finding in findings[1:])


def _accuracy(finding: Values) -> str:
    return f"{100 * finding['test_accuracy']:.1f} %"


def _attack_cells(finding: Values, attack: Values) -> list[str]:
    area = attack["auc"]
    cells = [finding["name"], attack["name"], f"{area['value']:.3f} ({area['low']:.3f} to {area['high']:.3f})"]
    return [*cells, *(_rate_cell(point) for point in attack["tpr_at_fpr"])]


def _rate_cell(point: Values) -> str:
    if not point["enough_non_members"]:
        return "too few non-members"
    rate = point["tpr"]
    most = point.get("ceiling", 1.0)
    under = "" if most >= 1 else f", ceiling {_percent(most)}"
    return f"{_percent(rate['value'])} ({_percent(rate['low'])} to {_percent(rate['high'])}){under}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _bounds(record: Values) -> list[list[str]]:
    rows = [(finding["name"], bound) for finding in record["findings"] for bound in finding["bounds"]]
    if record.get("white_box"):
        rows.append(("private, white box", record["white_box"]))
    return [[name, bound["method"], *_bound_cells(bound)] for name, bound in rows]


def _bound_cells(bound: Values) -> list[str]:
    return [f"{bound['epsilon']:.4g}", f"{bound['largest']:.4g}", f"{100 * bound['confidence']:g} %"]


def _provenance(record: Values) -> list[tuple[str, str]]:
    rows = [
        ("Audited", record["subject"]),
        ("Created", moment(record["created"])),
        ("Command", record["command"]),
        ("Versions", display(record["versions"])),
        ("Hardware", display(record["hardware"])),
    ]
    return [(label, value) for label, value in rows if value]
