"""What a run is, and what a state of it says of itself."""

import dataclasses
from typing import Any

from tacit.core.errors import InputError
from tacit.gradients.losses import LossFunction
from tacit.ledger import Account
from tacit.plan import DPSGD
from tacit.training.checkpoint import SCHEMA_VERSION
from tacit.training.execution import Execution
from tacit.training.fingerprint import Fingerprint, describe_code, digest_text, machine_fingerprint, plan_fingerprint
from tacit.training.run_state import RunState


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a run is, apart from what changes in it."""

    state: RunState
    plan: DPSGD
    loss_fn: LossFunction
    records: Any
    account: Account | None
    run: str
    execution: Execution

    @property
    def on_cpu(self) -> bool:
        """Whether the run is where the same sum comes out the same to the last bit."""
        return next(self.state.model.parameters()).device.type == "cpu"

    def fingerprint(self) -> Fingerprint:
        """The parts that need no key. With other ones it is another run; ``machine`` only decides about replaying."""
        return {
            **self.state.fingerprint(),
            "plan": plan_fingerprint(self.plan),
            "loss_fn": digest_text(describe_code(self.loss_fn)),
            "machine": machine_fingerprint(self.execution, self.plan, self.state.model),
        }


@dataclasses.dataclass(frozen=True)
class Header:
    """What a state says of itself, in plain JSON values.

    Attributes:
        run: a random name, by which the ledger's entries are found.
        stretch, first, earlier: as in `Position`.
        token: a random name of the stretch; empty in older states.
        step: how many steps of the plan are done.
        clean_record: the last record of the ledger's entry when the run stopped in order after this state, with no
            noise drawn since (0 without a ledger); None where the run went on, or may have.
        dataset, reservation: the ledger's account and entry.
        voids_guarantee, fast_randomness: whether the noise comes from a fixed seed, and whether in the fast mode.
        fingerprint: see `Facts.fingerprint`, and ``data`` and ``canaries``.
    """

    run: str
    stretch: int
    first: int
    earlier: tuple[int, ...]
    token: str
    step: int
    clean_record: int | None
    dataset: str | None
    reservation: int | None
    voids_guarantee: bool
    fast_randomness: bool
    fingerprint: Fingerprint

    @property
    def done(self) -> int:
        """How many steps of the stretch are done."""
        return self.step - self.first

    def to_json(self, state: Any) -> dict[str, Any]:
        """The header of a file with this state."""
        return {"schema": SCHEMA_VERSION, **dataclasses.asdict(self), "earlier": list(self.earlier), "state": state}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Header":
        """The header of a file; refuses values of a wrong kind."""
        try:
            # Older states have a mark in its place, which does not tell as much, and no token.
            values = {"clean_record": None, "token": "", **values}
            header = cls(**{field.name: values[field.name] for field in dataclasses.fields(cls)})
            header = dataclasses.replace(header, earlier=tuple(header.earlier))
            counts = [header.stretch, header.first, header.step, header.step - header.first, *header.earlier]
            counts += [number for number in (header.reservation, header.clean_record) if number is not None]
            good = (
                all(type(count) is int and count >= 0 for count in counts)
                and isinstance(header.voids_guarantee, bool)
                and isinstance(header.fast_randomness, bool)
                and isinstance(values["earlier"], list)
                and isinstance(header.run, str)
                and isinstance(header.token, str)
                and (header.dataset is None or isinstance(header.dataset, str))
                and isinstance(header.fingerprint, dict)
                and len(header.earlier) == header.stretch
            )
        except (KeyError, TypeError):
            good = False
        if not good:
            raise InputError(
                "checkpoint: its newest state has a header of no known form. Delete that file to fall back to the one "
                "before, or start a new run in another folder."
            )
        return header
