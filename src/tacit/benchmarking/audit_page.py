"""``python -m tacit.benchmarking.audit_page``: the results of audits as tables, from the files that hold them.

    python -m tacit.benchmarking.audit_page --folder results/audit

It writes ``README.md`` into the folder, with whatever of the known files is there.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.benchmarking.commands import print_line
from tacit.core.errors import InputError, TacitError

Values = Mapping[str, Any]

_HEAD = """# Audits

Written by `python -m tacit.benchmarking.audit_page` from the files beside it. Each of them holds its command,
settings, hardware, versions and date; seconds in them were taken on a busy machine.
[docs/auditing.md](../../docs/auditing.md) says what the figures mean.
"""
_WHITE_BOX = """## White box, one run

Dirac gradient canaries through the real private step. The share of the claimed epsilon that the bound for independent
canaries shows at 95 % confidence, and how often it lay above the claim; beside it the mean of the bound that holds for
any mechanism, and the largest share that such a bound can show in half of all runs, whatever the test. Every run draws
fresh randomness: there is no seed.
"""
_MEMBERSHIP = """Every record joined every model by a fair coin; each model was the target once, and all others of its
kind were its shadow models (`same`); private ones were attacked a second time with the plain models as shadows
(`plain`). Rates in percent, of the best of LiRA's four variants over both kinds of shadows, with 95 % Clopper-Pearson
intervals, which take scores as independent and do not correct for the choice of the best; in brackets the ceiling, the
largest rate that the mechanism's privacy curve, or for linear models the claim, allows.
"""
_TANH = """## The tanh filter's promise

{source}. The published claim, audited lower bounds at 95 % confidence, and an upper bound by tacit's own account;
`sound` bounds the norm of the filtered gradient.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m tacit.benchmarking.audit_page", description=main.__doc__)
    parser.add_argument("--folder", type=Path, default=Path("results/audit"), help="where the results are")
    try:
        page = audit_page(parser.parse_args(arguments).folder)
    except TacitError as error:
        print_line(str(error))
        return 2
    print_line(str(page))
    return 0


def audit_page(folder: Path) -> Path:
    """Writes ``README.md`` into a folder of results, and returns its place."""
    sections = [write(_read(path)) for pattern, write in _SECTIONS.items() for path in sorted(folder.glob(pattern))]
    if not sections:
        raise InputError(f"folder={str(folder)!r}: holds no results of audits. Name the folder that holds them.")
    page = folder / "README.md"
    page.write_text("\n".join([_HEAD, *sections]), encoding="utf-8")
    return page


def _white_box(result: Values) -> str:
    rows = [
        [
            f"{row['mechanism']}, rate {row['sampling_rate']:g}, {_steps(row['steps'])}",
            f"{row['epsilon_claimed']:.3g}",
            f"{row['ratio']:.3f} ± {row['ratio_std']:.3f}",
            f"{row['ratio_lowest']:.3f}",
            f"{row['above']} ({row['above_allowed']} allowed)",
            f"{row['ratio_for_any_mechanism']:.3f} ({row['ratio_limit_for_any_mechanism']:.3f})",
        ]
        for row in result["rows"]
    ]
    heads = ("mechanism", "claimed epsilon", "share shown", "lowest", "runs above", "for any mechanism (limit)")
    repetitions = result["settings"]["repetitions"]
    ending = f"\n{result['above']} of {repetitions * len(rows)} runs lay above the claim.\n"
    return _WHITE_BOX + "\n" + _table(heads, rows) + ending


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _membership(result: Values) -> str:
    problem = result["problem"]
    tested = {one["subject"]: one["test_accuracy"] for one in result["models"]}
    rows = [[subject, f"{100 * tested[subject]:.1f}", *_rates(result, subject)] for subject in tested]
    heads = (
        "models",
        "test accuracy",
        "best AUC",
        "TPR at FPR 1 % (ceiling)",
        "at 0.1 %",
        "at 0.01 %",
        "best at 0.1 %",
    )
    claims = {row["subject"] for row in result["rows"] if row["epsilon"] is not None}
    compared = [one for one in result["compared"] if one["subject"] in claims]
    times = ", ".join(f"{one['plain_over_this']:.1f} times that of {one['subject']}" for one in compared)
    points = [
        {**point, "non_members": row["non_members"]}
        for row in result["rows"]
        if row["epsilon"] is not None
        for point in row["tpr_at_fpr"]
    ]
    return "\n".join(
        [
            f"## Membership inference on {problem['dataset']}\n",
            f"A pool of {problem['records']:,} records, {problem['models']} models of each kind "
            f"({problem['shadow_models']} shadow models for each target).\n",
            _MEMBERSHIP,
            _table(heads, rows),
            f"At 0.1 % the plain network's rate is {times}. Of {len(points)} rates of private models, by all attacks, "
            f"{sum(point['tpr']['value'] > point['ceiling'] for point in points)} stand above their ceiling, the "
            f"intervals of {sum(not point['within'] for point in points)} reach above it, and "
            f"{sum(point['beyond'] for point in points)} lie beyond it: with the whole interval, at the upper end of "
            f"the false positive rate. At 0.01 % a threshold rests on {_fewest(points)} non-members.\n",
        ]
    )


def _fewest(points: Sequence[Values]) -> int:
    """How many non-members lie above the threshold of the lowest rate, about."""
    lowest = min(points, key=lambda point: float(point["asked_fpr"]))
    return round(float(lowest["asked_fpr"]) * int(lowest["non_members"]))


def _rates(result: Values, subject: str) -> list[str]:
    """The best AUC of all attacks, LiRA's best rates, and which variant that was at 0.1 %."""
    mine = [row for row in result["rows"] if row["subject"] == subject]
    lira = [row for row in mine if row["attack"].startswith("lira")]
    cells = [f"{max(row['auc']['value'] for row in mine):.3f}"]
    for place in range(len(lira[0]["tpr_at_fpr"])):
        point = max((row["tpr_at_fpr"][place] for row in lira), key=lambda one: float(one["tpr"]["value"]))
        tpr = point["tpr"]
        interval = f"{100 * tpr['value']:.3g} [{100 * tpr['low']:.3g}, {100 * tpr['high']:.3g}]"
        cells.append(interval + (f" ({100 * point['ceiling']:.3g})" if "ceiling" in point else ""))
    best = next(one for one in result["compared"] if one["subject"] == subject)
    return [*cells, f"{best['attack']}, {best['shadows']}"]


def _tanh(result: Values) -> str:
    rows = [
        [
            row["experiment"],
            row["setting"],
            f"{row['epsilon_lower']:.3g} (of {row['largest']:.3g} at most)",
            f"{row['epsilon_claimed']:.3g}",
            f"{row['epsilon_true']:.4g}",
            "exceeded" if row["exceeds_claim"] else "not exceeded",
        ]
        for row in result["rows"]
    ]
    heads = ("attack", "setting", "lower bound", "claimed", "upper bound", "the claim is")
    return _TANH.format(source=result["source"]) + "\n" + _table(heads, rows)


def _times(result: Values) -> str:
    rows = [[f"`{row['command']}`", f"{row['seconds']:.0f}"] for row in result["rows"]]
    return f"## How long it takes\n\n{result['hardware']['cores']} cores.\n\n" + _table(("command", "seconds"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _read(path: Path) -> Values:
    found: Values = json.loads(path.read_text(encoding="utf-8"))
    return found


_SECTIONS: Mapping[str, Callable[[Values], str]] = {
    "white-box.json": _white_box,
    "membership-*.json": _membership,
    "tanh-filter.json": _tanh,
    "times.json": _times,
}

if __name__ == "__main__":
    raise SystemExit(main())
