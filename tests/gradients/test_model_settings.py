"""Whatever of a model is changed between steps is seen, and what its own passes change is not taken for a change."""

import gc
import weakref

import pytest
import torch
from compiled_checks import check_against_eager, squares
from torch import Tensor, nn

from tacit.clipping import Flat
from tacit.gradients import clipped_grad, engines, model_settings
from tacit.gradients.model_settings import ModelSettings


class Configured(nn.Module):
    """Computes by all kinds of attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)
        self.activation, self.scales, self.config = torch.relu, (1.0, [1.0]), {"temperature": 1.0, "nested": {"a": 1}}
        self.shift, self.extra = torch.zeros(5), None

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.activation(self.first(x)) * self.scales[0] * self.scales[1][0] / self.config["temperature"]
        return self.second(hidden * self.config["nested"]["a"] + self.shift)


def double_outputs(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    return 2 * output


def double_inputs(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (2 * inputs[0],)


CHANGES = {
    "function": lambda model: setattr(model, "activation", torch.tanh),
    "tuple": lambda model: setattr(model, "scales", (3.0, [1.0])),
    "list in a tuple": lambda model: model.scales[1].__setitem__(0, 3.0),
    "dictionary": lambda model: model.config.update(temperature=0.25),
    "dictionary in a dictionary": lambda model: model.config["nested"].update(a=3),
    "tensor": lambda model: setattr(model, "shift", torch.ones(5)),
    "tensor in place": lambda model: model.shift.fill_(1.0),
    "hook": lambda model: model.first.register_forward_hook(double_outputs),
    "hook before": lambda model: model.first.register_forward_pre_hook(double_inputs),
    "forward": lambda model: setattr(model.first, "forward", lambda x: nn.functional.linear(x, model.first.weight)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_makes_another_program(traced, change):
    torch.manual_seed(0)
    grad, x = traced(Configured(), clipping=Flat(1e9)), torch.randn(6, 4)
    before = [check_against_eager(grad, x) for _ in range(2)][-1]
    change(grad.model)
    after = [check_against_eager(grad, x) for _ in range(2)][-1]
    assert not torch.allclose(before.unsafe_norms, after.unsafe_norms, rtol=1e-3)
    assert len(grad._engine._programs) == 2


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_has_another_number(change):
    model = Configured()
    settings = ModelSettings(model)
    before = settings.number()
    assert settings.number() == before
    change(model)
    after = settings.number()
    assert settings.number() == after != before


LAYOUTS = {
    "strides": lambda weight: setattr(weight, "data", weight.data.t().contiguous().t()),
    "shape": lambda weight: setattr(weight, "data", weight.data[:3]),
    "shape with strides": lambda weight: setattr(weight, "data", weight.data[:, :1].t()),
    "type": lambda weight: setattr(weight, "data", weight.data.double()),
    "training": lambda weight: weight.requires_grad_(False),
}


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
@pytest.mark.parametrize("change", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_tensor_that_is_changed_in_its_place_is_seen(change, kind):
    model = Configured()
    model.register_buffer("kept", torch.randn(5, 4))
    settings, tensor = ModelSettings(model), model.first.weight if kind == "parameter" else model.kept.requires_grad_()
    before, data = settings.number(), tensor.data
    change(tensor)
    assert tensor is (model.first.weight if kind == "parameter" else model.kept)
    after = settings.number()
    assert settings.number() == after != before
    tensor.data = data
    tensor.requires_grad_()
    assert settings.number() == before


def test_a_row_that_becomes_a_column_is_another_layout():
    """Both have strides 1 and 1, and as many numbers."""
    model = nn.Linear(1, 20)
    settings = ModelSettings(model)
    before = settings.number()
    model.weight.data = model.weight.data.t()
    assert settings.number() != before


@pytest.mark.parametrize("around", [torch.autocast("cpu", torch.bfloat16), torch.inference_mode(), torch.no_grad()])
def test_what_is_set_around_a_step_does_not_make_it_look_anew(around, monkeypatch):
    model = Configured()
    settings, looks = ModelSettings(model), []
    look = settings._look
    monkeypatch.setattr(settings, "_look", lambda: looks.append(True) or look())
    numbers = {settings.number()}
    for _ in range(3):
        with around:
            numbers.add(settings.number())
        numbers.add(settings.number())
    assert (len(numbers), len(looks)) == (1, 1)


@pytest.mark.parametrize("name", ["another", "extra"], ids=["one more", "one less"])
def test_the_last_object_that_comes_or_goes_is_seen(name):
    """All others are then where they were, and only their number differs."""
    model = nn.Identity()
    settings = ModelSettings(model)
    model.extra = None
    before = settings.number()
    if name == "extra":
        del model.extra
    else:
        model.another = None
    assert settings.number() != before


def test_what_is_put_back_has_its_number_again():
    model = Configured()
    settings, shift = ModelSettings(model), model.shift
    before = settings.number()
    model.scales, model.activation, model.shift = (2.0,), torch.tanh, torch.ones(5)
    handle = model.first.register_forward_hook(double_outputs)
    assert settings.number() != before
    model.scales, model.activation, model.shift = (1.0, [1.0]), torch.relu, shift
    handle.remove()
    assert settings.number() == before


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), (None, 0), ((1,), [1]), ("1", 1)])
def test_what_python_takes_for_equal_or_empty_is_told_apart(one, other):
    model = Configured()
    settings = ModelSettings(model)
    model.extra = one
    before = settings.number()
    model.extra = other
    assert settings.number() != before


def test_a_number_that_is_none_is_the_same_from_step_to_step():
    model = Configured()
    settings = ModelSettings(model)
    model.extra = float("nan")
    before = settings.number()
    model.extra = float("nan")
    assert settings.number() == before


def test_training_and_large_or_endless_containers_change_nothing():
    model = Configured()
    model.extra = [list(range(1000))]
    model.extra.append(model.extra)
    settings = ModelSettings(model)
    before = settings.number()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert settings.number() == before


def test_tensors_that_were_replaced_are_not_kept():
    model = Configured()
    settings, old = ModelSettings(model), weakref.ref(model.shift)
    settings.number()
    model.shift = torch.ones(5)
    settings.number()
    gc.collect()
    assert old() is None


def test_a_schedule_does_not_pile_up_settings(monkeypatch):
    monkeypatch.setattr(model_settings, "_REMEMBERED", 3)
    model = Configured()
    settings = ModelSettings(model)
    found = []
    for step in range(6):
        model.extra = step
        found.append(settings.number())
    assert len(set(found)) == 6
    assert len(settings._known) == 3


class Keeping(Configured):
    """Keeps what it computed for whoever asks, and what it needs again."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.positions: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.positions is None:
            self.positions = torch.arange(4.0)
        self.attention = x.detach().exp()
        self.hidden = self.first(x)
        self.seen = [self.hidden.detach()]
        return super().forward(x + self.positions)


class Counting(Configured):
    """Counts its calls, as for a schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


@pytest.mark.parametrize("build", [Keeping, Counting])
def test_what_a_pass_keeps_or_counts_is_no_change_of_the_model(monkeypatch, build):
    probed: list[int] = []
    real = engines.probe
    monkeypatch.setattr(engines, "probe", lambda *given: probed.append(1) or real(*given))
    grad = clipped_grad(build(), squares, clipping=Flat(1.0), engine="bookkeeping")
    for _ in range(6):
        grad(torch.randn(6, 4))
    assert len(probed) <= 2


def test_a_count_that_someone_else_changes_is_seen():
    model = Counting()
    settings = ModelSettings(model)
    with settings.noting():
        model(torch.randn(2, 4))
    before, probed = settings.number(), settings.number_for_probe()
    model.calls += 1
    assert settings.number() != before
    assert settings.number_for_probe() == probed
    model.extra = 7
    assert settings.number_for_probe() != probed


def test_a_model_that_keeps_something_is_compiled_once(traced):
    grad, x = traced(Keeping()), torch.randn(6, 4)
    for _ in range(4):
        check_against_eager(grad, x)
    assert len(grad._engine._programs) == 1


def test_a_buffer_without_strides_does_not_disturb(traced):
    model = nn.Linear(4, 3)
    model.register_buffer("neighbours", torch.eye(4).to_sparse())
    grad, x = traced(model), torch.randn(6, 4)
    for _ in range(3):
        check_against_eager(grad, x)
    assert grad.compilation == "compiled"
