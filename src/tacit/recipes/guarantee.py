"""What a result says of its privacy, or that it has none."""

from typing import Any

from tacit.accounting import epsilon_by_accountant, event_to_json
from tacit.plan import DPSGD

NO_GUARANTEE = "No guarantee: trained without noise."


def guarantee_facts(plan: DPSGD | None) -> dict[str, Any]:
    """What a result says of its privacy, as plain JSON values; without a plan ``epsilon`` is None: there is none."""
    if plan is None:
        return {
            "epsilon": None,
            "delta": None,
            "epsilon_by_accountant": {},
            "noise_multiplier": None,
            "statement": NO_GUARANTEE,
        }
    return {
        "epsilon": plan.epsilon(),
        "delta": plan.delta,
        "epsilon_by_accountant": epsilon_by_accountant(plan.event(), plan.delta, plan.neighbours),
        "noise_multiplier": plan.noise_multiplier,
        "plan": plan.to_dict(),
        "event": event_to_json(plan.event()),
        "statement": str(plan.statement()),
    }
