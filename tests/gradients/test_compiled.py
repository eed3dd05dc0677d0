"""The compiled step: the eager step's results, whatever happens to model and batch, and the eager step where it fails.

Two programs are really compiled here. Where only what is around a program is tested, the traced graph itself stands for
it and runs operation by operation.
"""

import copy
import threading

import pytest
import torch
from torch import Tensor, nn

from tacit.clipping import Flat, PerLayer
from tacit.core.errors import UnsupportedError
from tacit.gradients import ClippedGrad, ClippedSum, clipped_grad, compiled_engine, compiling
from tacit.gradients.batches import Rows
from tacit.gradients.compiled_engine import CompiledEngine
from tacit.gradients.compiling import can_compile

# torch's compiler imports parts of torch that warn.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
]

BOUND = 0.5
needs_compiler = pytest.mark.skipif(not can_compile(torch.device("cpu")), reason="no compiler for C++")


class Network(nn.Module):
    """A convolution, a layer norm, a frozen layer, two layers that run side by side, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 3, 3)
        self.norm = nn.LayerNorm(12)
        self.frozen = nn.Linear(12, 12).requires_grad_(False)
        self.first, self.second = nn.Linear(12, 4), nn.Linear(12, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.frozen(self.norm(torch.tanh(self.convolution(x)).flatten(1))))
        return (self.first(x) + self.second(x)) * self.scale


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def squares(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).flatten(1).square().sum(1)


def a_network() -> Network:
    torch.manual_seed(0)
    return Network()


def images(count: int = 6, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, 4, 4, generator=generator), torch.randint(0, 4, (count,), generator=generator)


def eager_twin(grad: ClippedGrad) -> ClippedGrad:
    return clipped_grad(grad.model, grad.loss_fn, clipping=grad.clipping, engine="bookkeeping")


def check_equal(found: ClippedSum, expected: ClippedSum, tolerance: float = 1e-5) -> None:
    assert found.grads.keys() == expected.grads.keys()
    for name, value in expected.grads.items():
        torch.testing.assert_close(found.grads[name], value, rtol=tolerance, atol=tolerance, msg=name)
    torch.testing.assert_close(found.unsafe_norms, expected.unsafe_norms, rtol=1e-4, atol=1e-6, equal_nan=True)


def check_against_eager(grad: ClippedGrad, *batch: Tensor, mask: Tensor | None = None) -> ClippedSum:
    found = grad(*batch, mask=mask)
    assert grad.compilation == "compiled"
    check_equal(found, eager_twin(grad)(*batch, mask=mask))
    return found


# One real program, for all that may happen to it.


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

    def late(trace, inputs):
        start.wait(60)
        return real(trace, inputs)

    monkeypatch.setattr(compiling, "compile_graph", late)
    grad.start_compiling(wait=False)
    x = torch.randn(1, 8).expand(4, -1).contiguous()
    for _ in range(3):
        assert bool(torch.isfinite(grad(x).unsafe_norms).all())
        assert grad.compilation.startswith("eager")
    start.set()
    (found,) = grad._engine._programs.values()
    found.compilation._thread.join()
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


# What is around a program, with the traced graph in its place.


def graph_itself(trace, inputs):
    return lambda arguments: list(trace.graph(*arguments))


@pytest.fixture
def traced(monkeypatch):
    """Makes `clipped_grad`s whose programs are traced and not compiled."""
    monkeypatch.setattr(compiling, "compile_graph", graph_itself)
    monkeypatch.setattr(compiled_engine, "can_compile", lambda device: True)

    def make(model: nn.Module, loss_fn=squares, clipping=None, *, wait: bool = True) -> ClippedGrad:
        grad = clipped_grad(model, loss_fn, clipping=clipping or Flat(BOUND), engine="bookkeeping")
        grad.start_compiling(wait=wait)
        return grad

    return make


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


def test_records_that_stay_are_gathered_by_the_step(traced):
    grad = traced(a_network(), cross_entropy)
    x, y = images(20)
    for rows in ([3, 3, 7, 19], [0, 1, 2, 3], [5, 4, 3, 2]):
        index = torch.tensor(rows)
        for mask in (None, torch.tensor([True, True, False, True])):
            found = grad.accumulate([(Rows((x, y), index), mask)])
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


class Branching(nn.Module):
    """Decides by a value, and never otherwise than here."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer(x)
        return out if float(out.detach().abs().max()) < 1e9 else torch.tanh(out)


def test_a_model_that_branches_on_values_stays_eager_and_says_why(traced):
    grad, x = traced(Branching()), torch.randn(5, 4)
    for _ in range(3):
        check_equal(grad(x), eager_twin(grad)(x))
    assert grad.compilation.startswith("eager, because it could not be compiled: model: cannot be compiled (")
    assert "set compile=False" in grad.compilation
    assert not grad.compiles


def test_without_a_compiler_steps_stay_eager(traced, monkeypatch):
    monkeypatch.setattr(compiled_engine, "can_compile", lambda device: False)
    grad, x = traced(nn.Linear(4, 3)), torch.randn(5, 4)
    check_equal(grad(x), eager_twin(grad)(x))
    assert grad.compilation.endswith("no compiler for cpu: install Triton for GPUs, g++ for the CPU")


def test_can_compile_looks_for_a_compiler(monkeypatch):
    monkeypatch.setattr(compiling.shutil, "which", lambda name: None)
    assert not can_compile(torch.device("cpu"))
    monkeypatch.setattr(compiling.shutil, "which", lambda name: f"/bin/{name}" if name == "clang++" else None)
    assert can_compile(torch.device("cpu"))
    assert not can_compile(torch.device("meta"))


@pytest.mark.parametrize("wait", [True, False])
def test_a_compilation_that_fails_leaves_the_eager_step(traced, monkeypatch, wait):
    def fails(trace, inputs):
        raise RuntimeError("the compiler broke\nwith many lines")

    monkeypatch.setattr(compiling, "compile_graph", fails)
    grad, x = traced(nn.Linear(4, 3), wait=wait), torch.randn(5, 4)
    for _ in range(3):
        check_equal(grad(x), eager_twin(grad)(x))
        for found in grad._engine._programs.values():
            found.compilation._thread.join()
    assert grad.compilation == "eager, because it could not be compiled: the compiler broke"


def spoil(change):
    """A program whose sums or norms are changed on their way."""

    def compile_graph(trace, inputs):
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


def test_planted_wrong_sums_are_found_out_after_a_lot_without_examples(traced, monkeypatch):
    monkeypatch.setattr(compiling, "compile_graph", spoil(PLANTED["twice"]))
    grad, batch = traced(a_network(), cross_entropy), images()
    grad(*batch, mask=torch.zeros(6, dtype=torch.bool))
    check_equal(grad(*batch), eager_twin(grad)(*batch))


def test_planted_wrong_norms_are_found_out(traced, monkeypatch):
    def compile_graph(trace, inputs):
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

    def compile_graph(trace, inputs):
        model.factor = 3.0
        return graph_itself(trace, inputs)

    monkeypatch.setattr(compiling, "compile_graph", compile_graph)
    grad, x = traced(model, clipping=Flat(1e9)), torch.randn(5, 4)
    grad(x)
    check_equal(grad(x), eager_twin(grad)(x))
    assert grad.compilation.startswith("eager")


@pytest.mark.parametrize("engine", ["functional", "reference"])
def test_other_engines_are_not_compiled(engine):
    grad = clipped_grad(nn.Linear(4, 3), squares, clipping=Flat(BOUND), engine=engine)
    grad.start_compiling(wait=True)
    grad.forget_programs()
    with grad.eagerly():
        grad(torch.randn(2, 4))
    assert grad.compilation == "eager"
    assert not grad.compiles


def test_nothing_is_compiled_unless_asked(monkeypatch):
    monkeypatch.setattr(compiling, "compile_graph", lambda trace, inputs: pytest.fail("compiled"))
    grad = clipped_grad(nn.Linear(4, 3), squares, clipping=Flat(BOUND))
    for _ in range(3):
        grad(torch.randn(5, 4))
    assert grad.compilation == "eager, since nothing was compiled yet"
    assert isinstance(grad._engine, CompiledEngine)


def test_a_model_that_mixes_examples_is_refused_as_before(traced):
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out = self.layer(x)
            return out - out.mean(0)

    with pytest.raises(UnsupportedError):
        traced(Mixing())(torch.randn(5, 4))
