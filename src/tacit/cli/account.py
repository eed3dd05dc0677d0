"""``tacit account``: events in, epsilon out."""

from typing import Annotated

import typer

from tacit.cli.console import Delta, Json, out, print_json, print_table
from tacit.core.validation import check_count

app = typer.Typer(no_args_is_help=True)

SamplingRate = Annotated[float, typer.Option(help="Expected batch size / number of examples.")]
Steps = Annotated[int, typer.Option(help="How many steps the run takes.")]


@app.command()
def dpsgd(
    sampling_rate: SamplingRate,
    noise_multiplier: Annotated[float, typer.Option(help="The noise's standard deviation / clipping norm.")],
    steps: Steps,
    delta: Delta,
    accountant: Annotated[str | None, typer.Option(help="Only this accountant.")] = None,
    json: Json = False,
) -> None:
    """Epsilon of DP-SGD with Poisson sampling, under the add-remove relation."""
    from tacit.accounting import ACCOUNTANTS, dpsgd_event, epsilon, epsilon_by_accountant
    from tacit.accounting.statements import dpsgd_statement

    check_count("steps", steps)
    event = dpsgd_event(sampling_rate, noise_multiplier, steps)
    if accountant is None:
        found = epsilon_by_accountant(event, delta)
    else:
        found = {accountant: epsilon(event, delta, accountant=accountant)}
    statement = dpsgd_statement(sampling_rate, noise_multiplier, steps, delta, accountant=accountant or "pld")
    if json:
        print_json({"epsilon": found, "statement": str(statement)})
        return
    kinds = {name: "bound" if ACCOUNTANTS[name].is_upper_bound else "estimate" for name in found}
    rows = ((name, f"{value:.4f}", kinds[name]) for name, value in found.items())
    print_table(f"epsilon at delta {delta:g}", ("accountant", "epsilon", "kind"), rows)
    out.print(str(statement), markup=False)
