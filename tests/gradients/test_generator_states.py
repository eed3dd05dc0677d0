"""torch's generators are seeded, read, put back and compared."""

import sys
import traceback

import torch

from tacit.gradients.model_state import (
    generator_states,
    preserved_generators,
    same_states,
    seed_generators,
    set_generator_states,
)


def drawn() -> list[torch.Tensor]:
    """From every generator that there is."""
    devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return [torch.rand(5, device=device).cpu() for device in devices]


def test_a_seed_gives_what_it_gives_in_torch():
    for seed in (0, 7, 2**56 - 1):
        seed_generators(seed)
        found = drawn()
        torch.manual_seed(seed)
        assert same_states(found, drawn())


def test_no_stack_is_written_down(monkeypatch):
    """It takes longer than a pass over a small model, of which a probe does dozens."""
    drawn()  # a GPU that is not in use yet would be seeded later
    monkeypatch.setattr(traceback, "format_stack", lambda *_: sys.exit("a stack"))
    seed_generators(3)


def test_states_are_told_apart_and_put_back():
    before = generator_states()
    first = drawn()
    assert not same_states(before, generator_states())
    set_generator_states(before)
    assert same_states(before, generator_states())
    assert same_states(first, drawn())


def test_a_seed_within_is_forgotten_outside():
    before = generator_states()
    with preserved_generators():
        seed_generators(11)
        assert not same_states(before, generator_states())
    assert same_states(before, generator_states())
