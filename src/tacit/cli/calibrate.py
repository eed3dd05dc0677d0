"""``tacit calibrate``: a budget in, the least noise or the most steps out."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.account import SamplingRate, Steps
from tacit.cli.console import Delta, Json, out, print_json
from tacit.core.privacy import Budget
from tacit.core.validation import check_positive

if TYPE_CHECKING:
    from dp_accounting import DpEvent

app = typer.Typer(no_args_is_help=True)

Epsilon = Annotated[float, typer.Option(help="The epsilon that must not be exceeded.")]
AccountantName = Annotated[str, typer.Option(help="An accountant whose epsilon is a proven bound.")]
Noise = Annotated[float, typer.Option(help="The noise's standard deviation / clipping norm.")]


@app.command()
def dpsgd(
    epsilon: Epsilon,
    delta: Delta,
    sampling_rate: SamplingRate,
    steps: Steps,
    accountant: AccountantName = "pld",
    json: Json = False,
) -> None:
    """The smallest noise multiplier of DP-SGD that keeps to epsilon."""
    from tacit.accounting import calibrate_dpsgd_noise, dpsgd_event

    started = time.perf_counter()
    noise = calibrate_dpsgd_noise(sampling_rate, steps, budget(epsilon, delta), accountant=accountant)
    seconds = time.perf_counter() - started
    reached = accounted(dpsgd_event(sampling_rate, noise, steps), delta, accountant)
    if json:
        print_json({"noise_multiplier": noise, "epsilon": reached, "delta": delta, "seconds": seconds})
        return
    out.print(f"noise multiplier {noise:.6g}: epsilon {reached:.6g} at delta {delta:g} ({accountant}, {seconds:.2f} s)")


@app.command("steps")
def most_steps(
    epsilon: Epsilon,
    delta: Delta,
    sampling_rate: SamplingRate,
    noise_multiplier: Noise,
    accountant: AccountantName = "pld",
    json: Json = False,
) -> None:
    """The largest number of steps of DP-SGD that keeps to epsilon."""
    from tacit.accounting import calibrate_dpsgd_steps, dpsgd_event

    steps = calibrate_dpsgd_steps(sampling_rate, noise_multiplier, budget(epsilon, delta), accountant=accountant)
    reached = accounted(dpsgd_event(sampling_rate, noise_multiplier, steps), delta, accountant)
    if json:
        print_json({"steps": steps, "epsilon": reached, "delta": delta})
        return
    out.print(f"{steps} steps: epsilon {reached:.6g} at delta {delta:g} ({accountant})")


@app.command("batch-size")
def largest_batch(
    epsilon: Epsilon,
    delta: Delta,
    examples: Annotated[int, typer.Option(help="The public number of examples.")],
    noise_multiplier: Noise,
    steps: Steps,
    accountant: AccountantName = "pld",
    json: Json = False,
) -> None:
    """The largest expected batch size of DP-SGD that keeps to epsilon."""
    from tacit.accounting import calibrate_dpsgd_batch_size, dpsgd_event

    size = calibrate_dpsgd_batch_size(examples, noise_multiplier, steps, budget(epsilon, delta), accountant=accountant)
    reached = accounted(dpsgd_event(size / examples, noise_multiplier, steps), delta, accountant)
    if json:
        print_json({"batch_size": size, "epsilon": reached, "delta": delta})
        return
    out.print(f"batch size {size}: epsilon {reached:.6g} at delta {delta:g} ({accountant})")


def budget(epsilon: float, delta: float) -> Budget:
    """The budget of the options; an epsilon of 0 allows nothing that is worth calibrating."""
    return Budget(check_positive("epsilon", epsilon, remedy="Typical values lie from 0.1 to 10."), delta)


def accounted(event: "DpEvent", delta: float, accountant: str) -> float:
    """Epsilon of what was found, by the same accountant."""
    from tacit import accounting

    return accounting.epsilon(event, delta, accountant=accountant)
