"""The compiled step gives the eager step's results, whatever happens to model and batch.

Two programs are really compiled here.
"""

import copy
import threading

import pytest
import torch
from compiled_checks import (
    BOUND,
    a_network,
    check_against_eager,
    check_equal,
    cross_entropy,
    eager_twin,
    images,
    squares,
    wait_for_programs,
)
from torch import nn

from tacit.clipping import Flat
from tacit.gradients import ClippedGrad, clipped_grad, compiled_engine, compiling
from tacit.gradients.compiling import can_compile

needs_compiler = pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="no compiler for C++")


@pytest.fixture(scope="module")
def compiled() -> ClippedGrad:
    grad = clipped_grad(a_network(), cross_entropy, clipping=Flat(BOUND), engine="bookkeeping")
    grad.start_compiling(wait=True)
    grad(*images())
    return grad


@pytest.fixture
def program(compiled, monkeypatch) -> ClippedGrad:
    """The compiled one with a fresh state of the model; no further shape is compiled."""
    monkeypatch.setattr(compiled_engine, "_SHAPES", 1)
    compiled.model.load_state_dict(a_network().state_dict())
    return compiled


@needs_compiler
class TestRealProgram:
    def test_equals_eager_with_and_without_mask(self, program):
        for seed in range(3):
            x, y = images(seed=seed)
            check_against_eager(program, x, y)
            check_against_eager(program, x, y, mask=torch.tensor([True, False, True, True, False, True]))

    def test_tells_how_long_it_took(self, program):
        assert program.compile_seconds > 0
        assert eager_twin(program).compile_seconds == 0

    def test_equals_the_reference(self, program):
        expected = clipped_grad(program.model, cross_entropy, clipping=Flat(BOUND), engine="reference")(*images())
        check_equal(program(*images()), expected)

    def test_pitfall_04_a_lot_without_examples_is_exactly_zero(self, program):
        found = program(*images(), mask=torch.zeros(6, dtype=torch.bool))
        assert all(bool((value == 0).all()) for value in found.grads.values())
        empty = program(*(column[:0] for column in images()))
        assert all(bool((value == 0).all()) for value in empty.grads.values())

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e38])
    @pytest.mark.parametrize("counts", [True, False])
    def test_pitfall_05_examples_that_are_not_finite_add_zero(self, program, value, counts):
        x, y = images()
        x[2] = value
        mask = torch.ones(6, dtype=torch.bool)
        mask[2] = counts
        found = check_against_eager(program, x, y, mask=mask)
        assert all(bool(torch.isfinite(grad).all()) for grad in found.grads.values())

    def test_one_example_keeps_the_bound(self, program):
        for i in range(6):
            sums = program(*images(), mask=torch.arange(6) == i).grads
            length = sum(float(value.double().square().sum()) for value in sums.values()) ** 0.5
            assert 0 < length <= BOUND * (1 + 1e-11)

    def test_parameters_and_buffers_changed_in_place_are_seen(self, program):
        before = program(*images())
        with torch.no_grad():
            program.model.first.weight.mul_(3).add_(0.1)
            program.model.scale.mul_(0.5)
            program.model.frozen.bias.add_(0.3)
        after = check_against_eager(program, *images())
        assert not torch.allclose(before.unsafe_norms, after.unsafe_norms)

    def test_an_optimizer_trains_with_it_as_with_the_eager_step(self, program):
        twin = clipped_grad(
            copy.deepcopy(program.model), cross_entropy, clipping=program.clipping, engine="bookkeeping"
        )
        for grad in (program, twin):
            optimizer = torch.optim.SGD(grad.model.parameters(), lr=0.5, momentum=0.9)
            for step in range(4):
                sums = grad(*images(seed=step)).grads
                for name, parameter in grad.model.named_parameters():
                    parameter.grad = sums.get(name)
                optimizer.step()
        for name, value in twin.model.state_dict().items():
            torch.testing.assert_close(program.model.state_dict()[name], value, rtol=1e-4, atol=1e-5)

    def test_equal_gradients_have_tensors_of_their_own(self, program):
        """Noise is added in place: two parameters in one tensor would share it, and have it twice."""
        sums = program(*images()).grads
        torch.testing.assert_close(sums["first.weight"], sums["second.weight"])
        places = [value.untyped_storage().data_ptr() for value in sums.values()]
        assert len(set(places)) == len(places)
        kept = {name: value.clone() for name, value in sums.items()}
        program(*images(seed=5))
        for name, value in kept.items():
            assert torch.equal(sums[name], value), name

    def test_frozen_parameters_have_no_sum(self, program):
        assert not any(name.startswith("frozen") for name in program(*images()).grads)

    def test_another_shape_runs_eagerly_and_right(self, program):
        for count in (1, 5, 7):
            check_equal(program(*images(count)), eager_twin(program)(*images(count)))
        check_against_eager(program, *images())

    def test_chunks_add_up(self, program):
        x, y = images(14)
        chunks = [((x[i : i + 6], y[i : i + 6]), None) for i in range(0, 14, 6)]
        total = program.accumulate(chunks)
        expected = eager_twin(program)(x, y).grads
        for name, value in expected.items():
            torch.testing.assert_close(total[name], value, rtol=1e-5, atol=1e-5)

    def test_for_a_while_nothing_is_compiled(self, program):
        x, y = images()
        with program.eagerly():
            assert not program.compiles
            check_equal(program(x, y), eager_twin(program)(x, y))
        assert program.compiles


@needs_compiler
def test_dropout_in_the_background(monkeypatch):
    """Eager until the program is ready; then masks are new in every step and one for norm and sum."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    grad = clipped_grad(model, squares, clipping=Flat(1e9), engine="bookkeeping")
    start, real = threading.Event(), compiling.compile_graph

    def late(trace, inputs, *, apart):
        start.wait(60)
        return real(trace, inputs, apart=apart)

    monkeypatch.setattr(compiling, "compile_graph", late)
    grad.start_compiling(wait=False)
    grad(torch.randn(4, 8))  # nothing is compiled before a batch with examples that differ
    x = torch.randn(1, 8).expand(4, -1).contiguous()
    for _ in range(3):
        assert bool(torch.isfinite(grad(x).unsafe_norms).all())
        assert grad.compilation.startswith("eager")
    start.set()
    wait_for_programs(grad)
    grad(x)
    outs = [grad(x) for _ in range(4)]
    assert grad.compilation == "compiled"
    norms = torch.stack([out.unsafe_norms.flatten() for out in outs])
    assert len(norms.unique()) == norms.numel()  # every example and step has a mask of its own
    for i in range(4):
        out = grad(x, mask=torch.arange(4) == i)
        length = sum(float(value.double().square().sum()) for value in out.grads.values()) ** 0.5
        assert length == pytest.approx(float(out.unsafe_norms[i]), rel=1e-4)
    model.eval()
    monkeypatch.setattr(compiled_engine, "_SHAPES", 1)
    assert float(grad(x).unsafe_norms.std()) < 1e-5  # another mode is another program
