"""``tacit ledger``: budgets of data sets and what was spent of them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Json, out, print_json, print_table
from tacit.core.errors import InputError
from tacit.core.privacy import Budget, Neighbours, PrivacyUnit

if TYPE_CHECKING:
    from tacit.ledger import Account

app = typer.Typer(no_args_is_help=True)

Url = Annotated[str, typer.Argument(help="The ledger: a file, or a database URL.")]
DataSetName = Annotated[
    str | None, typer.Option("--dataset", help="Which account; may be left out where there is one.")
]


@app.command()
def create(
    ledger: Url,
    dataset: Annotated[str, typer.Option(help="The data set that the budget is for.")],
    epsilon: Annotated[float, typer.Option(help="The total budget.")],
    delta: Annotated[float, typer.Option(help="Of the total budget.")],
    neighbours: Annotated[Neighbours, typer.Option(help="The relation that all runs must be planned under.")] = (
        Neighbours.ADD_REMOVE
    ),
    unit: Annotated[str, typer.Option(help="What one privacy unit is called.")] = "example",
    unit_examples: Annotated[int, typer.Option(help="How many examples one unit holds at most.")] = 1,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Runs are planned from earlier results: a Rényi filter decides.")
    ] = False,
    json: Json = False,
) -> None:
    """Opens an account with a total budget for one data set.

    Without --adaptive all runs are added up by privacy loss distributions: the tightest, and a run calibrated to the
    whole budget fits. It is proven if every run was declared before the first result was seen. Take --adaptive where
    you look at one run before you plan the next: it holds whatever you do, and admits somewhat less. The rule cannot
    be changed later; `tacit ledger show` gives what is spent under both.
    """
    from tacit.ledger import Ledger, Rule

    opened = Ledger.create(
        ledger,
        dataset=dataset,
        budget=Budget(epsilon, delta),
        unit=PrivacyUnit(unit, unit_examples),
        neighbours=neighbours,
        rule=Rule.ADAPTIVE if adaptive else Rule.FIXED_PLAN,
    )
    _show(opened.account(dataset), json)


@app.command()
def show(ledger: Url, dataset: DataSetName = None, json: Json = False) -> None:
    """Budget, spent and remaining under both rules; the whole history is verified."""
    _show(_account(ledger, dataset), json)


@app.command()
def history(ledger: Url, dataset: DataSetName = None, json: Json = False) -> None:
    """Everything that was reserved and what became of it, oldest first; every record is verified."""
    facts = _account(ledger, dataset).to_dict()
    if json:
        print_json(facts)
        return
    columns = ("id", "created", "run", "state", "steps_reserved", "steps_charged")
    rows = ([str(entry[column]) for column in columns] for entry in facts["entries"])
    headers = (column.replace("_", " ") for column in columns)
    print_table(f"history of {facts['dataset']}", headers, rows)


@app.command()
def settle(
    ledger: Url,
    reservation: Annotated[int, typer.Argument(help="Its id in `tacit ledger history`.")],
    dataset: DataSetName = None,
    json: Json = False,
) -> None:
    """Closes an open reservation of a run that died and will not be resumed.

    One for which noise may have been drawn counts whole for ever; one for which none was costs nothing. A process that
    still works on it is refused.
    """
    entry = _account(ledger, dataset).settle(reservation)
    if json:
        print_json(entry.to_dict())
        return
    out.print(
        f"reservation {entry.id} ({entry.run}): {entry.state.value}, {entry.steps_charged} of {entry.steps_reserved} "
        "steps charged",
        markup=False,
        soft_wrap=True,
    )


def _account(ledger: str, dataset: str | None) -> "Account":
    from tacit.ledger import Ledger

    opened = Ledger.open(ledger)
    if dataset is not None:
        return opened.account(dataset)
    accounts = opened.accounts()
    if len(accounts) != 1:
        names = ", ".join(account.dataset for account in accounts) or "none"
        raise InputError(f"dataset: the ledger holds {len(accounts)} accounts ({names}). Name one with --dataset.")
    return accounts[0]


def _show(account: "Account", as_json: bool) -> None:
    facts = account.to_dict()
    if as_json:
        print_json(facts)
        return

    def amount(part: dict[str, Any] | None) -> str:
        if part is None:
            return "no limit"
        return "infinite" if part["epsilon"] is None else f"epsilon {part['epsilon']:.4f} at delta {part['delta']:g}"

    lines = [
        f"{facts['dataset']}: one {facts['unit']}, {facts['neighbours']}",
        f"budget     {amount(facts['budget'])}",
        f"spent      {amount(facts['spent'])}",
        f"remaining  {amount(facts['remaining'])}",
        f"rule       {_RULES[facts['rule']]}",
        *(f"           {name}: {_under(rule)}" for name, rule in (facts["rules"] or {}).items()),
        f"odometer   {amount(facts['odometer'])}, however the runs were chosen",
        f"entries    {len(facts['entries'])}, {_open(facts['entries'])}",
        f"verified   {facts['records']} records, head {facts['head']}",
    ]
    out.print("\n".join(lines), markup=False, soft_wrap=True)


def _open(entries: list[dict[str, Any]]) -> str:
    waiting = [str(entry["id"]) for entry in entries if entry["state"] == "reserved"]
    if not waiting:
        return "none open"
    shown = ", ".join(waiting[:5]) + (", ..." if len(waiting) > 5 else "")
    return f"{len(waiting)} open and counted whole ({shown}): under way, to be resumed, or to be settled"


_RULES = {
    "fixed-plan": "fixed-plan: holds if every run was declared before the first result was seen, else see adaptive",
    "adaptive": "adaptive: a Rényi filter, holds also if runs are planned from earlier results",
}


def _under(rule: dict[str, float | None]) -> str:
    spent, remaining = (
        "no bound" if value is None else f"epsilon {value:.4f}" for value in (rule["spent"], rule["remaining"])
    )
    return f"{spent} spent, {remaining} remaining"
