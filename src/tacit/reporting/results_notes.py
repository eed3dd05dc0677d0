"""What a reader must know of published figures: numbered notes, the same in a table, its figure and the list below."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

# Recipes whose published setting takes long, and an epsilon that it has.
_TOO_LONG: Mapping[str, str] = {"noise-prior-cifar10": "1", "scale-cifar10": "8"}


@dataclasses.dataclass(frozen=True)
class Notes:
    """The notes on the published figures of one data set.

    Attributes:
        texts: note 1, note 2, and so on.
        numbers: of the note on a figure, by recipe, epsilon and accuracy.
    """

    texts: tuple[str, ...]
    numbers: Mapping[tuple[str, float | None, float], int]

    @classmethod
    def of(cls, published: Sequence[Row]) -> "Notes":
        """One note for all figures of a method about which the same is to be said, in the order of result files.

        What was published without privacy needs none.
        """
        groups: dict[tuple[str, str], list[Row]] = {}
        private = [figure for figure in published if figure["epsilon"] is not None]
        for figure in sorted(private, key=lambda figure: str(figure["recipe"])):
            if said := _said(figure):
                groups.setdefault((figure["method"], said), []).append(figure)
        texts = tuple(
            f"**{method}** at epsilon {_epsilons(figures)}: {said}." for (method, said), figures in groups.items()
        )
        numbers = {_key(figure): number for number, group in enumerate(groups.values(), 1) for figure in group}
        return cls(texts, numbers)

    def number(self, figure: Row) -> int | None:
        """Of the note on a published figure."""
        return self.numbers.get(_key(figure))

    def mark(self, row: Row) -> str:
        """What leads from the published figure beside a measurement to its note."""
        number = self.numbers.get((row["name"], row["published_epsilon"], row["published"]))
        return "" if number is None else f" [{number}]"

    def listed(self) -> str:
        """All of them, as they stand below a table."""
        lines = [f"{number}. {text}" for number, text in enumerate(self.texts, 1)]
        return "\n".join(["Notes on the published figures:\n", *lines]) + "\n" if lines else ""


def not_measured(rows: Sequence[Row]) -> str:
    """Why a recipe has no row of its published setting, where that takes long."""
    lines = []
    for name, epsilon in _TOO_LONG.items():
        settings = {row["knobs"].get("setting") for row in rows if row["name"] == name}
        if settings == {"own"}:
            lines.append(
                f"`{name}` was measured with our own, shorter setting alone. The published one takes more views of "
                "every image and more steps than ours, a seed of which takes minutes already; "
                f"`tacit recipe run {name} --set setting=published --set epsilon={epsilon}` runs it.\n"
            )
    return "\n".join(lines)


def _said(figure: Row) -> str:
    accountant = f"accounted by {figure['accountant']}" if figure.get("accountant") else ""
    return "; ".join(part for part in (figure.get("note"), accountant) if part)


def _epsilons(figures: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(f"{figure['epsilon']:g}" for figure in figures))


def _key(figure: Row) -> tuple[str, float | None, float]:
    return figure["recipe"], figure["epsilon"], figure["accuracy"]
