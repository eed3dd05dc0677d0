"""A program with a wrong result is found out by comparison with the eager step, and not used."""

import pytest
import torch
from compiled_checks import (
    a_network,
    check_equal,
    cross_entropy,
    eager_twin,
    graph_itself,
    images,
)
from torch import Tensor, nn

from tacit.clipping import Flat
from tacit.gradients import compiling


def spoil(change):
    """A program whose sums or norms are changed on their way."""

    def compile_graph(trace, inputs, *, apart):
        def call(arguments):
            *sums, norms = trace.graph(*arguments)
            return [*change(list(sums)), norms]

        return call

    return compile_graph


PLANTED = {
    "twice": lambda sums: [2 * value for value in sums],
    "one-layer-twice": lambda sums: [sums[0], *(2 * value for value in sums[1:])],
    "sign": lambda sums: [-value for value in sums],
    "zero": lambda sums: [torch.zeros_like(value) for value in sums],
    "not-a-number": lambda sums: [torch.full_like(sums[0], torch.nan), *sums[1:]],
    "a-tenth-more": lambda sums: [1.1 * value for value in sums],
}


@pytest.mark.parametrize("name", list(PLANTED))
def test_planted_wrong_sums_are_found_out(traced, monkeypatch, name):
    """The norms are right; the sums are not."""
    monkeypatch.setattr(compiling, "compile_graph", spoil(PLANTED[name]))
    grad, batch = traced(a_network(), cross_entropy), images()
    for _ in range(3):
        check_equal(grad(*batch), eager_twin(grad)(*batch))
    assert "its result is not that of the eager step" in grad.compilation
    assert not grad.compiles


def test_planted_wrong_sums_of_a_model_with_dropout_are_found_out(traced, monkeypatch):
    """No example's clipped gradient is longer than the bound, whatever its dropout mask."""
    monkeypatch.setattr(compiling, "compile_graph", spoil(PLANTED["twice"]))
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    grad, x = traced(model, clipping=Flat(1e-3)), torch.randn(1, 8)
    grad(x)
    length = sum(float(value.double().square().sum()) for value in grad(x).grads.values()) ** 0.5
    assert length <= 1e-3


def test_what_is_drawn_after_a_program_was_found_out_is_not_what_the_eager_step_drew(traced, monkeypatch):
    def twice_with_draws_of_its_own(trace, inputs, *, apart):
        def call(arguments):
            with torch.random.fork_rng(devices=[]):
                *sums, norms = trace.graph(*arguments)
            return [*(2 * value for value in sums), norms]

        return call

    monkeypatch.setattr(compiling, "compile_graph", twice_with_draws_of_its_own)
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    grad, x = traced(model, clipping=Flat(1e-3)), torch.randn(1, 8)
    ends = []
    for each in (grad, eager_twin(grad)):
        torch.manual_seed(3)
        sums = each(x)
        ends.append((sums, torch.get_rng_state()))
    assert "its result is not that of the eager step" in grad.compilation
    check_equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])


def test_planted_wrong_sums_are_found_out_after_a_lot_without_examples(traced, monkeypatch):
    monkeypatch.setattr(compiling, "compile_graph", spoil(PLANTED["twice"]))
    grad, batch = traced(a_network(), cross_entropy), images()
    grad(*batch, mask=torch.zeros(6, dtype=torch.bool))
    check_equal(grad(*batch), eager_twin(grad)(*batch))


def test_planted_wrong_norms_are_found_out(traced, monkeypatch):
    def compile_graph(trace, inputs, *, apart):
        return lambda arguments: [*trace.graph(*arguments)[:-1], 1.1 * trace.graph(*arguments)[-1]]

    monkeypatch.setattr(compiling, "compile_graph", compile_graph)
    grad, batch = traced(a_network(), cross_entropy), images()
    check_equal(grad(*batch), eager_twin(grad)(*batch))
    assert "its result is not that of the eager step" in grad.compilation


def test_a_hidden_input_is_found_out_by_the_first_comparison(traced, monkeypatch):
    """What the model reads besides its own tensors is fixed in the graph; it changed while the program was made."""

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.factor = nn.Linear(4, 3), 1.0

        def forward(self, x: Tensor) -> Tensor:
            return self.factor * self.layer(x)

    model = Hidden()

    def compile_graph(trace, inputs, *, apart):
        model.factor = 3.0
        return graph_itself(trace, inputs, apart=apart)

    monkeypatch.setattr(compiling, "compile_graph", compile_graph)
    grad, x = traced(model, clipping=Flat(1e9)), torch.randn(5, 4)
    grad(x)
    check_equal(grad(x), eager_twin(grad)(x))
    assert grad.compilation.startswith("eager")


def test_rounding_of_gradients_next_to_nothing_is_no_difference(traced, monkeypatch):
    """Examples whose loss has gone to zero: of their gradients two programs agree on no digit."""
    weights = torch.tensor([1.0, *[1e-7] * 5])

    def compile_graph(trace, inputs, *, apart):
        def call(arguments):
            *sums, norms = trace.graph(*arguments)
            return [*(value + 1e-9 for value in sums), norms * torch.where(weights < 1, 3, 1)[:, None]]

        return call

    monkeypatch.setattr(compiling, "compile_graph", compile_graph)
    grad, batch = traced(a_network(), lambda model, x, y, w: w * cross_entropy(model, x, y)), images()
    for _ in range(3):
        grad(*batch, weights)
    assert grad.compilation == "compiled"
