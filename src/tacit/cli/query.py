"""``tacit query``: private statistics of a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import Json, out, print_json, print_table
from tacit.core.errors import InputError
from tacit.core.privacy import Neighbours, PrivacyUnit

if TYPE_CHECKING:
    from tacit.datasets.tables.schema import Schema
    from tacit.ledger import Account
    from tacit.queries import Session

_MOST_CELLS_SHOWN = 40


def _public(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Public facts, never looked up in the data")


def _privacy(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Privacy")


def query(  # noqa: PLR0913 - one parameter for each option
    kind: Annotated[
        str, typer.Argument(help="count, histogram, sum, mean, variance, quantile or top; session for a list of them.")
    ],
    file: Annotated[str, typer.Argument(help="A CSV or Parquet file.")],
    column: Annotated[str | None, typer.Option(help="What to ask about.")] = None,
    where: Annotated[str | None, typer.Option(help="Only rows with column=value, as the schema reads them.")] = None,
    q: Annotated[float | None, typer.Option(help="quantile: the share of rows below it; 0.5 unless told.")] = None,
    count: Annotated[int | None, typer.Option(help="top: how many values; 1 unless told.")] = None,
    queries: Annotated[Path | None, typer.Option(help="session: a TOML file with one table for each query.")] = None,
    schema: Annotated[Path | None, _public("A TOML file with types, bounds and categories.")] = None,
    bounds: Annotated[str | None, _public("LOWER,UPPER of the column; values outside are moved there.")] = None,
    bins: Annotated[str | None, _public("histogram, top: how many bins of equal width, or their edges A,B,C.")] = None,
    epsilon: Annotated[float | None, _privacy("What the answer may cost.")] = None,
    delta: Annotated[float | None, _privacy("For Gaussian noise. session: what all are composed at.")] = None,
    mechanism: Annotated[str | None, _privacy("laplace, or gaussian with a delta.")] = None,
    group_size: Annotated[int | None, _privacy("How many rows one person may have; 1 unless told.")] = None,
    neighbours: Annotated[Neighbours | None, _privacy("The relation; add-remove unless told, or the ledger's.")] = None,
    ledger: Annotated[str | None, _privacy("The ledger that the budget comes from.")] = None,
    dataset: Annotated[str | None, _privacy("The account in the ledger; the file's name unless told.")] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    out_folder: Annotated[Path | None, typer.Option("--out", help="A folder for a page with figures.")] = None,
    json: Json = False,
) -> None:
    """A private statistic of one column: exact noise, an interval, and a statement of what it costs."""
    from tacit.queries.facts import parse_bounds, schema_for
    from tacit.queries.listing import listed_alone, read_list
    from tacit.queries.record import answer_all

    if out_folder is not None:
        from tacit.reporting.query_page import prepare_folder, write_query_page
    options = {"column": column, "where": where, "bins": bins, "q": q, "count": count}
    price = {"epsilon": epsilon, "delta": delta, "mechanism": mechanism}
    if kind == "session":
        _refuse(options | {"bounds": bounds, "epsilon": epsilon, "mechanism": mechanism})
        if queries is None or schema is None:
            raise InputError("--queries, --schema: a session needs a file with its queries and one with the schema.")
        listed = read_list(queries, delta)
    else:
        listed = listed_alone(kind, options, price)
    public = schema_for(listed.queries[0].query, schema, None if bounds is None else parse_bounds(bounds))
    session = _session(file, public, ledger, dataset, neighbours, group_size)
    if out_folder is not None:
        prepare_folder(out_folder)  # before anything is spent
    record = answer_all(session, listed, confidence, compared=out_folder is not None)
    page = None if out_folder is None else write_query_page(out_folder, record)
    _show(record, page, alone=kind != "session", as_json=json)


def _refuse(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name} {value}: is said for each query of a session, in the file of --queries.")


def _session(
    file: str,
    schema: "Schema",
    ledger: str | None,
    dataset: str | None,
    neighbours: Neighbours | None,
    group_size: int | None,
) -> "Session":
    """The table and who pays; relation and unit are the account's unless told otherwise."""
    from tacit.datasets.tables.table import Table
    from tacit.queries import Session

    account = None if ledger is None else _account(ledger, dataset or Path(file).name)
    name = "example" if account is None else account.unit.name
    unit = None if group_size is None else PrivacyUnit(name, group_size)
    return Session(Table.open(file, schema), neighbours=neighbours, unit=unit, account=account)


def _account(ledger: str, dataset: str) -> "Account":
    from tacit.ledger import Ledger

    return Ledger.open(ledger).account(dataset)


def _show(record: dict[str, Any], page: Path | None, *, alone: bool, as_json: bool) -> None:
    answers = [{key: value for key, value in answer.items() if key != "comparison"} for answer in record["answers"]]
    where = {} if page is None else {"page": str(page)}
    if as_json:
        print_json((answers[0] if alone else record | {"answers": answers}) | where)
        return
    for answer in answers:
        _show_answer(answer)
    if "composition" in record:
        names = ("basic", "strong", "pld")
        rows = [(name, f"{record['composition'][name]:.4f}") for name in names]
        print_table(f"epsilon of all answers at delta {record['delta']:g}", ("composition", "epsilon"), rows)
        out.print(record["statement"], markup=False)
    if page is not None:
        out.print(str(page), markup=False)


def _show_answer(answer: dict[str, Any]) -> None:
    title = f"{answer['kind']} of {answer['column']}" + (f" where {answer['where']}" if answer["where"] else "")
    if answer["kind"] == "histogram":
        cells = zip(answer["cells"], answer["value"], answer["interval"], strict=True)
        rows = [(name, f"{count:,}", f"{low:,} to {high:,}") for name, count, (low, high) in cells]
        print_table(title, ("cell", "rows", f"{100 * answer['confidence']:g} %"), rows[:_MOST_CELLS_SHOWN])
        if len(rows) > _MOST_CELLS_SHOWN:
            out.print(f"... and {len(rows) - _MOST_CELLS_SHOWN} more; --json has all", markup=False)
    else:
        value = ", ".join(answer["value"]) if isinstance(answer["value"], list) else f"{answer['value']:.10g}"
        out.print(f"{title}: {value}{_error(answer)}", markup=False)
    out.print(answer["statement"], markup=False)


def _error(answer: dict[str, Any]) -> str:
    sure = f"at {100 * answer['confidence']:g} % confidence"
    if answer["interval"] is not None:
        low, high = answer["interval"]
        return f", without noise from {low:.10g} to {high:.10g} {sure}"
    if "rank_error" in answer:
        return f", within {answer['rank_error']:.4g} rows of the wanted rank {sure}"
    return f", within {answer['count_error']:.4g} rows of the most common {sure}"
