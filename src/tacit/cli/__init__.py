"""The command line: one file a command, no logic of its own.

Exit status: 0 on success, 1 where memory ran out, 2 on bad input, 3 where a budget refuses the work, 130 on Ctrl-C.
"""

import itertools
import sys
import warnings
from typing import Any

import typer

from tacit.cli import (
    account,
    audit,
    bench,
    calibrate,
    data,
    ledger,
    linear,
    pate,
    query,
    recipe,
    report,
    schema,
    sweep,
    train,
)
from tacit.cli.console import Interrupted, err, out
from tacit.cli.memory import shortage
from tacit.core.errors import BudgetExceededError, TacitError

app = typer.Typer(
    name="tacit",
    help="Deep learning with differential privacy: train, account for, audit and release private models.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(account.app, name="account", help="The epsilon of what was or will be done, under each accountant.")
app.add_typer(calibrate.app, name="calibrate", help="The least noise, or most steps, that a budget allows.")
app.command("train")(train.train)
app.command("sweep")(sweep.sweep)
app.command("pate")(pate.pate)
app.command("linear")(linear.linear)
app.command("query")(query.query)
app.add_typer(recipe.app, name="recipe", help="Published results again, with seeds, spread and exact accounting.")
app.add_typer(data.app, name="data", help="Named data sets and where they come from.")
app.add_typer(schema.app, name="schema", help="The public facts about a table, as a file to fill in.")
app.add_typer(ledger.app, name="ledger", help="Budgets of data sets and what was spent of them.")
app.command("audit")(audit.audit)
app.command("report")(report.report)
app.add_typer(bench.app, name="bench", help="tacit beside plain training and its peers, in one run.")

# The class of all usage errors; typer exports its subclass alone, and brings its own click along or not by version.
_UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")

_INTERRUPTED = 130  # exit status
_FIRST_STEPS = """\
[bold]tacit[/bold] trains models that provably keep what they learned about any one person unsaid.

  tacit train                                   a private model on the embedded digits, in seconds
  tacit train mnist --epsilon 3                 the same on MNIST, to a budget of your choice
  tacit schema draft people.csv --out people.toml
                                                what the public knows of a table of your own, to fill in
  tacit train people.csv --target employed --schema people.toml
                                                a private model of that table
  tacit linear people.csv --target income --schema people.toml --epsilon 1
                                                a private regression or classification, in seconds
  tacit query histogram people.csv --column age --bins 18,30,45,60,93 --epsilon 0.5
                                                a private statistic, with its interval
  tacit sweep digits --over clip=0.1,0.5,1,2    accuracy against anything that may be changed
  tacit audit digits --epsilon 2                tries to break private and plain models, side by side
  tacit recipe list                             published results that one command measures again
  tacit account dpsgd --sampling-rate 0.01 --noise-multiplier 4 --steps 10000 --delta 1e-5
                                                what a training run costs, under each accountant
  tacit ledger create budget.sqlite --dataset mnist --epsilon 3 --delta 1e-5
                                                a budget that no run can overspend

Each command explains itself with --help and prints one JSON object with --json."""


@app.callback(invoke_without_command=True)
def first_steps(context: typer.Context) -> None:
    """Shows what to do first."""
    if context.invoked_subcommand is None:
        out.print(_FIRST_STEPS)


def main() -> None:
    """The entry point: every expected error is one line on standard error and an exit status."""
    warnings.showwarning = _show_warning
    sys.exit(_run())


def _run() -> int:
    try:
        status = app(standalone_mode=False)
    except _UsageError as error:
        # A group without a command has shown its help, and has no message beside it.
        return _stop(_usage_line(error), 2) if error.format_message() else 2
    except Interrupted as stopped:
        return _stop(str(stopped), _INTERRUPTED)
    except BudgetExceededError as error:
        return _stop(str(error), 3)
    except TacitError as error:
        return _stop(str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _stop("interrupted", _INTERRUPTED)
    except (RuntimeError, MemoryError) as error:
        if (line := shortage(error)) is None:
            raise
        return _stop(line, 1)
    if status == _INTERRUPTED:  # which typer makes of Ctrl-C
        return _stop("interrupted", _INTERRUPTED)
    return status if isinstance(status, int) else 0


def _usage_line(error: Any) -> str:
    """What is wrong with which option, with the value that was given where it can be found."""
    names = getattr(getattr(error, "param", None), "opts", ())
    given = [f"{name} {value}: " for name, value in itertools.pairwise(sys.argv) if name in names]
    command = error.ctx.command_path if error.ctx else "tacit"
    return f"{''.join(given[:1])}{error.format_message().rstrip('.')}. See {command} --help."


def _stop(message: str, status: int) -> int:
    line = " ".join(message.split())
    err.print(f"tacit: {line}", markup=False)
    return status


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    err.print(f"tacit: warning: {' '.join(str(message).split())}", markup=False)
