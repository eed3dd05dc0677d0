"""``python -m tacit.benchmarking.membership``: membership inference on plain and on private models.

    python -m tacit.benchmarking.membership --dataset mnist --out results/audit/membership-mnist.json
    python -m tacit.benchmarking.membership --dataset cifar10-jpeg --out results/audit/membership-cifar10-jpeg.json
    python -m tacit.benchmarking.membership --dataset digits --others --out results/audit/membership-others-digits.json

Every model is once the target, with all others of its kind as shadow models; private ones are attacked a second time,
with the plain models as shadows. Each record joins each model by a fair coin.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.auditing.attacks import ATTACKS, Observations, attack_each
from tacit.auditing.ceilings import ceiling
from tacit.auditing.roc import FALSE_POSITIVE_RATES, OperatingPoint, Roc
from tacit.auditing.shadows import fair_memberships, observe
from tacit.benchmarking import environment
from tacit.benchmarking.commands import measured, print_line
from tacit.benchmarking.membership_others import other_subjects
from tacit.benchmarking.membership_subjects import SETTINGS, Experiment, Subject, network_subjects
from tacit.core.randomness import Randomness

_EPSILONS = (8.0, 1.0)
_COMPARED_AT = 0.001
_DRAWN = np.geomspace(1e-5, 1, 41)


def measure(experiment: Experiment, subjects: Sequence[Subject], seed: int) -> dict[str, Any]:
    """Rows of every attack on every subject, and how the subjects compare; the first subject is the plain one.

    A row holds ``subject``, ``epsilon`` and ``delta`` that it claims, ``shadows`` (the ``same`` kind, or the ``plain``
    models of the first subject), ``attack``, ``auc``, ``tpr_at_fpr`` with the ceiling of the claim alone and that of
    the whole privacy curve, and ``tprs`` at the result's ``fprs``, to draw. ``within`` says that the interval ends
    below the ceiling, ``beyond`` that it begins above, even at the upper end of the false positive rate: the claim
    would be refuted.
    """
    coins = Randomness(unsafe_seed=seed)
    plain: Observations | None = None
    rows, models = [], []
    for subject in subjects:
        started = time.perf_counter()
        member = fair_memberships(experiment.setting.models, len(experiment.pool), coins, subject.name)
        answers = subject.train(member, lambda _share: None)
        seen = observe(answers, experiment.pool, member)
        models.append(
            {
                "subject": subject.name,
                "test_accuracy": experiment.accuracy(answers),
                "member_accuracy": experiment.member_accuracy(answers, member),
                "seconds": time.perf_counter() - started,
            }
        )
        print_line(f"{subject.name}: {models[-1]}")
        for shadows, others in (("same", None), ("plain", plain)):
            if shadows == "same" or others is not None:
                rows += _rows(subject, seen, shadows, others)
        plain = seen if plain is None else plain
    return {
        "rows": rows,
        "models": models,
        "compared": _compared(rows, [subject.name for subject in subjects]),
        "fprs": _DRAWN.tolist(),
        "problem": {
            "dataset": experiment.dataset,
            "records": len(experiment.pool),
            "models": experiment.setting.models,
            "shadow_models": experiment.setting.models - 1,
            "seed": seed,
        },
    }


def _rows(subject: Subject, seen: Observations, shadows: str, others: Observations | None) -> list[dict[str, Any]]:
    found = []
    for name, attack in ATTACKS.items():
        if name == "loss" and others is not None:
            continue  # it asks no shadows
        roc = attack_each(seen, attack, shadows=others)
        found.append(
            {
                "subject": subject.name,
                "epsilon": None if subject.claim is None else subject.claim.epsilon,
                "delta": None if subject.claim is None else subject.claim.delta,
                "shadows": shadows,
                "attack": name,
                "members": len(roc.members),
                "non_members": len(roc.non_members),
                "auc": roc.auc().to_dict(),
                "tpr_at_fpr": [_point(roc.tpr_at(fpr), subject) for fpr in FALSE_POSITIVE_RATES],
                "tprs": np.round(roc.tprs(_DRAWN), 6).tolist(),
            }
        )
        print_line(f"  {shadows} shadows, {name}: {_summary(roc)}")
    return found


def _point(point: OperatingPoint, subject: Subject) -> dict[str, Any]:
    if subject.claim is None:
        return point.to_dict()
    allowed = float(subject.ceiling.at(point.asked_fpr))
    return {
        **point.to_dict(),
        "ceiling": allowed,
        "ceiling_of_claim": ceiling(point.asked_fpr, subject.claim.epsilon, subject.claim.delta),
        "within": point.tpr.high <= allowed,
        "beyond": point.tpr.low > float(subject.ceiling.at(point.fpr.high)),
    }


def _compared(rows: Sequence[dict[str, Any]], subjects: Sequence[str]) -> list[dict[str, Any]]:
    """LiRA's best variant against each subject at 0.1 %, and how many times as much it finds in the plain one.

    A rate below the false positive one is taken for that, so that luck makes no model look better.
    """
    best = {name: _best_point(rows, name) for name in subjects}
    first = best[subjects[0]]["tpr"]["value"]
    return [
        {
            "subject": name,
            "fpr": _COMPARED_AT,
            **{key: best[name][key] for key in ("shadows", "attack", "tpr")},
            **{key: best[name][key] for key in ("ceiling", "within") if key in best[name]},
            "plain_over_this": first / max(best[name]["tpr"]["value"], _COMPARED_AT),
        }
        for name in subjects
    ]


def _best_point(rows: Sequence[dict[str, Any]], subject: str) -> dict[str, Any]:
    """The largest rate over all variants, so that what is said of a private model is the worst that was found."""
    points = [
        {**point, "shadows": row["shadows"], "attack": row["attack"]}
        for row in rows
        for point in row["tpr_at_fpr"]
        if row["subject"] == subject and row["attack"].startswith("lira") and point["asked_fpr"] == _COMPARED_AT
    ]
    return max(points, key=lambda point: float(point["tpr"]["value"]))


def _summary(roc: Roc) -> str:
    rates = ", ".join(f"{roc.tpr_at(fpr).tpr.value:.3%} at {fpr:.2%}" for fpr in FALSE_POSITIVE_RATES)
    return f"AUC {roc.auc().value:.4f}, {rates}"


def main() -> int:
    """Attacks plain and private models; progress on standard error, the result in ``--out`` or on standard output."""
    given = _parser().parse_args()
    return 0 if measured(lambda: _measure(given), given.out) is not None else 2


def _measure(given: argparse.Namespace) -> dict[str, Any]:
    experiment = Experiment.on(given.dataset, models=given.models, records=given.records, seed=given.seed)
    subjects = network_subjects(experiment, () if given.others else _EPSILONS, given.seed)
    subjects += other_subjects(experiment, _EPSILONS, given.seed) if given.others else []
    return {**measure(experiment, subjects, given.seed), **environment.circumstances()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tacit.benchmarking.membership", description=main.__doc__)
    parser.add_argument("--dataset", default="mnist", help=f"one of {', '.join(SETTINGS)}")
    parser.add_argument("--models", type=int, help="of each kind")
    parser.add_argument("--records", type=int, help="of the pool")
    parser.add_argument("--seed", type=int, default=0, help="of pool, memberships and first weights")
    parser.add_argument("--others", action="store_true", help="linear models and PATE in place of private networks")
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
