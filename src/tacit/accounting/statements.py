"""Epsilons with everything that they depend on."""

from tacit.accounting.accountants import epsilon, find_accountant
from tacit.accounting.events import dpsgd_event
from tacit.core.privacy import Neighbours, PrivacyUnit, Statement


def dpsgd_statement(
    sampling_rate: float, noise_multiplier: float, steps: int, delta: float, *, accountant: str = "pld"
) -> Statement:
    """The guarantee of DP-SGD with Poisson sampling for one example under add-remove."""
    chosen = find_accountant(accountant)
    event = dpsgd_event(sampling_rate, noise_multiplier, steps)
    estimate = "this accountant is an estimate that can lie below the true epsilon"
    return Statement(
        epsilon=epsilon(event, delta, accountant=chosen),
        delta=delta,
        neighbours=Neighbours.ADD_REMOVE,
        unit=PrivacyUnit(),
        mechanism=f"{steps} steps of DP-SGD with noise multiplier {noise_multiplier:.6g}",
        sampler=f"Poisson sampling at rate {sampling_rate:.6g}",
        accountant=chosen.name,
        caveats=() if chosen.is_upper_bound else (estimate,),
    )
