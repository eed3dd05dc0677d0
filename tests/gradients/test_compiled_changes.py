"""The traced graph equals the reference, and serves only the model and batch it was made for: every change is seen."""

import numpy as np
import pytest
import torch
from compiled_checks import (
    Network,
    a_network,
    check_against_eager,
    check_equal,
    cross_entropy,
    eager_twin,
    images,
    squares,
)
from rounding_checks import convolution_precision, matmul_precision
from torch import Tensor, nn

from tacit.clipping import Flat, PerLayer
from tacit.gradients import clipped_grad, compiled_engine
from tacit.gradients.batches import Rows


@pytest.mark.parametrize("clipping", [Flat(0.3), Flat(1e9), PerLayer(0.4)], ids=repr)
def test_the_graph_equals_the_reference(traced, clipping):
    grad = traced(a_network().double(), cross_entropy, clipping)
    x, y = images()
    mask = torch.tensor([True, False, True, True, False, True])
    grad(x.double(), y)
    found = grad(x.double(), y, mask=mask)
    assert grad.compilation == "compiled"
    reference = clipped_grad(grad.model, cross_entropy, clipping=clipping, engine="reference")
    check_equal(found, reference(x.double(), y, mask=mask), tolerance=1e-9)


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize("products", [True, False], ids=["products", "convolutions"])
def test_another_precision_makes_another_program(traced, products, gathered):
    """A program has the margins of the precision that it was traced with."""
    grad = traced(a_network(), cross_entropy)
    x, y = images(6)
    batch = (x, y) if gathered else Rows((x, y), np.arange(6))
    programs = []
    for lower in (False, True, False):
        matmul, conv = ("high", "ieee") if products else ("highest", "tf32")
        with (
            matmul_precision(matmul if lower else "highest"),
            convolution_precision(conv if lower else "ieee"),
        ):
            for _ in range(2):
                grad.accumulate([(batch, None)])
        programs.append(len(grad._engine._programs))
    assert programs == [1, 2, 2]


def test_records_that_stay_are_gathered_by_the_step(traced):
    grad = traced(a_network(), cross_entropy)
    x, y = images(20)
    for rows in ([3, 3, 7, 19], [0, 1, 2, 3], [5, 4, 3, 2]):
        index = torch.tensor(rows)
        for mask in (None, torch.tensor([True, True, False, True])):
            found = grad.accumulate([(Rows((x, y), index.numpy()), mask)])
            expected = eager_twin(grad).accumulate([((x[index], y[index]), mask)])
            for name, value in expected.items():
                torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
    assert grad.compilation == "compiled"


def test_every_mode_is_a_program_of_its_own(traced):
    grad = traced(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)))
    x = torch.randn(5, 4)
    grad(x)
    grad.model.eval()
    check_equal(grad(x), eager_twin(grad)(x))
    check_equal(grad(x), eager_twin(grad)(x))
    assert len(grad._engine._programs) == 2
    grad.model.train()
    grad(x)
    assert len(grad._engine._programs) == 2


def test_at_most_so_many_shapes_are_compiled(traced):
    grad = traced(nn.Linear(4, 3))
    for count in range(1, 9):
        x = torch.randn(count, 4)
        check_equal(grad(x), eager_twin(grad)(x))
    assert len(grad._engine._programs) == compiled_engine._SHAPES
    grad.forget_programs()
    assert not grad._engine._programs
    check_equal(grad(x), eager_twin(grad)(x))


def test_a_thawed_layer_is_noticed(traced):
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    grad, x = traced(model), torch.randn(5, 4)
    assert set(grad(x).grads) == set(grad(x).grads) == {"1.weight", "1.bias"}


def rebind_buffer(model: Network) -> None:
    model.scale = torch.full((4,), 0.1)


def rebind_parameter(model: Network) -> None:
    model.first.weight = nn.Parameter(5 * torch.ones(4, 12))


def load_by_assignment(model: Network) -> None:
    torch.manual_seed(9)
    model.load_state_dict(Network().state_dict(), assign=True)


@pytest.mark.parametrize("change", [rebind_buffer, rebind_parameter, load_by_assignment])
def test_tensors_that_take_another_place_are_seen(traced, change):
    grad = traced(a_network(), cross_entropy)
    for _ in range(2):
        check_against_eager(grad, *images())
    change(grad.model)
    check_equal(grad(*images()), eager_twin(grad)(*images()))


def test_a_layer_in_the_place_of_another_is_seen(traced):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    grad = traced(model, cross_entropy)
    x, y = torch.randn(6, 3), torch.randint(2, (6,))
    for _ in range(3):
        check_against_eager(grad, x, y)
    model[1] = nn.Tanh()
    for _ in range(3):
        check_against_eager(grad, x, y)


def test_a_schedule_in_the_models_own_numbers_is_seen(traced):
    class Annealed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.temperature = nn.Linear(4, 3), 1.0

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) / self.temperature

    grad, x = traced(Annealed(), clipping=Flat(1e9)), torch.randn(5, 4)
    for temperature in (1.0, 1.0, 2.0):
        grad.model.temperature = temperature
        check_equal(grad(x), eager_twin(grad)(x))


def test_numbers_in_a_batch_are_seen(traced):
    grad = traced(nn.Linear(4, 3), lambda model, x, factor: factor * squares(model, x), Flat(1e9))
    x = torch.randn(5, 4)
    for factor in (1.0, 1.0, 0.5):
        check_equal(grad(x, factor), eager_twin(grad)(x, factor))


def test_a_model_in_another_precision_is_another_program(traced):
    grad, (x, y) = traced(a_network(), cross_entropy), images()
    check_against_eager(grad, x, y)
    grad.model.double()
    check_equal(grad(x.double(), y), eager_twin(grad)(x.double(), y))


def test_a_model_that_lies_otherwise_in_memory_is_another_program(traced):
    grad, (x, y) = traced(a_network(), cross_entropy), images()
    for _ in range(2):
        check_against_eager(grad, x, y)
    grad.model.to(memory_format=torch.channels_last)
    for _ in range(2):
        check_against_eager(grad, x, y)
    assert len(grad._engine._programs) == 2
    grad.model.to(memory_format=torch.contiguous_format)
    check_against_eager(grad, x, y)
    assert len(grad._engine._programs) == 2


def test_numbers_of_tokens_do_not_hide_a_models_precision(traced):
    model = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(1), nn.Linear(40, 4))
    grad = traced(model, cross_entropy)
    x, y = torch.randint(20, (6, 5)), torch.randint(4, (6,))
    for _ in range(2):
        check_against_eager(grad, x, y)
    model.double()
    for _ in range(2):
        check_against_eager(grad, x, y)
    assert len(grad._engine._programs) == 2


def test_a_buffer_of_another_type_is_another_program(traced):
    grad, (x, y) = traced(a_network(), cross_entropy), images()
    for _ in range(2):
        check_against_eager(grad, x, y)
    grad.model.scale = torch.full((1,), 0.1, dtype=torch.float64)
    for _ in range(2):
        check_against_eager(grad, x, y)
    assert len(grad._engine._programs) == 2
