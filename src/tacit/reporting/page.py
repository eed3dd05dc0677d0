"""The page of a run: one HTML file that needs nothing else, on a screen, on a phone or on paper."""

from pathlib import Path

from tacit.core.errors import InputError
from tacit.reporting.figures import accuracy_over_steps, epsilon_by_accountant, epsilon_over_steps, error_over_steps
from tacit.reporting.pate_page import render_pate
from tacit.reporting.record import PLAN_KEYS, RunRecord, read_run, read_values
from tacit.reporting.rendering import Headline, display, duration, fill, moment, write_whole


def write_report(run_folder: Path | str) -> Path:
    """Write ``report.html`` into a run folder, from its ``run.json`` and ``history.jsonl``, and say where it
    is.

    The page holds only what those files carry under whitelisted names: figures on training data are never
    shown, and of a run of PATE nothing that votes without noise say.

    Raises:
        InputError: the folder holds no readable run, or cannot be written.
    """
    folder = Path(run_folder)
    values = read_values(folder)
    html = render_pate(values, public=True) if "teachers" in values else render(read_run(folder))
    page = folder / "report.html"
    try:
        write_whole(page, html)
    except OSError as error:
        raise InputError(
            f"run={str(folder)!r}: cannot write report.html ({error.strerror}). Check that you may write there."
        ) from error
    return page


def render(run: RunRecord) -> str:
    """The page of a run as text."""
    target = run.plan.get("epsilon")
    void = run.guarantee.epsilon is None
    accountant = run.guarantee.accountant.partition(" ")[0]  # "pld with group privacy for 4 examples"
    drawings = [
        accuracy_over_steps(run.history) or error_over_steps(run.history),
        epsilon_over_steps(run.history, target=target if isinstance(target, int | float) else None, void=void),
        epsilon_by_accountant(run.epsilon_by_accountant, chosen=accountant, void=void),
    ]
    return fill(
        "report.html",
        {
            "run": run,
            "banner": _banner(run),
            "headlines": _headlines(run),
            "drawings": [drawing for drawing in drawings if drawing is not None],
            "plan": [(label, display(run.plan[key])) for key, label in PLAN_KEYS.items() if key in run.plan],
            "provenance": _provenance(run),
        },
    )


def _banner(run: RunRecord) -> str:
    if run.status == "finished":
        return ""
    planned = run.plan.get("steps")
    of = f" of {planned:,}" if isinstance(planned, int) else ""
    where = "" if run.steps_done is None else f" after step {run.steps_done:,}{of}"
    verb = "was interrupted" if run.status == "interrupted" else "failed"
    return f"This run {verb}{where}. The statement covers the steps that drew noise, and they stay spent."


def _spread(run: RunRecord, deviation: str | None) -> str:
    if len(run.seeds) <= 1:
        return "one seed"
    return f"{'' if deviation is None else f'± {deviation} '}over {len(run.seeds)} seeds"


def _headlines(run: RunRecord) -> list[Headline]:
    guarantee = run.guarantee
    headlines = []
    if run.test_accuracy is not None:
        deviation = None if run.test_accuracy_std is None else f"{100 * run.test_accuracy_std:.2f}"
        headlines.append(Headline("Test accuracy", f"{100 * run.test_accuracy:.2f} %", _spread(run, deviation)))
    if run.test_mse is not None:
        deviation = None if run.test_mse_std is None else display(run.test_mse_std)
        headlines.append(Headline("Test squared error", display(run.test_mse), _spread(run, deviation)))
    epsilon = "∞" if guarantee.epsilon is None else display(guarantee.epsilon)
    detail = "no guarantee" if guarantee.epsilon is None else f"by {guarantee.accountant}"
    headlines.append(Headline("Epsilon", epsilon, detail))
    if guarantee.delta is not None:
        headlines.append(Headline("Delta", display(guarantee.delta)))
    if "noise_multiplier" in run.plan:
        multiplier = display(run.plan["noise_multiplier"])
        headlines.append(Headline("Noise multiplier", multiplier, "of the clipping norm"))
    steps = run.plan.get("steps") if run.steps_done is None else run.steps_done
    if steps is not None:
        unfinished = run.status != "finished" and "steps" in run.plan
        of = f"of {display(run.plan['steps'])}" if unfinished else ""
        headlines.append(Headline("Steps", display(steps), of))
    if run.seconds is not None:
        headlines.append(Headline("Time", duration(run.seconds)))
    return headlines


def _provenance(run: RunRecord) -> list[tuple[str, str]]:
    rows = [
        ("Run", run.name),
        ("Created", moment(run.created)),
        ("Command", run.command),
        ("Seeds", ", ".join(run.seeds)),
        ("Versions", display(run.versions)),
        ("Hardware", display(run.hardware)),
    ]
    return [(label, value) for label, value in rows if value]
