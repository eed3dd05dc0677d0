"""torch's generators are seeded, read, put back and compared."""

import traceback

import pytest
import torch

from tacit.gradients.model_state import (
    generator_states,
    preserved_generators,
    same_states,
    seed_generators,
    set_generator_states,
)


def drawn() -> list[list[float]]:
    """The next numbers of every generator that there is."""
    devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return [torch.rand(5, device=device).tolist() for device in devices]


@pytest.mark.parametrize("seed", [0, 7, 2**56 - 1])
def test_a_seed_gives_what_it_gives_in_torch(seed):
    seed_generators(seed)
    found = drawn()
    torch.manual_seed(seed)
    assert found == drawn()


def test_no_stack_is_written_down(monkeypatch):
    """That takes longer than a pass over a small model, and a probe seeds before each of its passes."""
    drawn()  # a GPU that is not in use yet would be seeded later
    monkeypatch.setattr(traceback, "format_stack", lambda *_: pytest.fail("a stack was written down"))
    seed_generators(3)


def test_states_are_told_apart_and_put_back():
    before = generator_states()
    first = drawn()
    assert not same_states(before, generator_states())
    set_generator_states(before)
    assert same_states(before, generator_states())
    assert first == drawn()


def test_a_seed_within_is_forgotten_outside():
    before = generator_states()
    with preserved_generators():
        seed_generators(11)
        assert not same_states(before, generator_states())
    assert same_states(before, generator_states())
