"""The contenders take the steps that they claim to take, on tiny models."""

import dataclasses
import types

import pytest
import torch

from tacit.benchmarking import noise_steps, plain, private_steps
from tacit.benchmarking.engines import CONTENDERS, chosen
from tacit.benchmarking.measuring import runs_once
from tacit.benchmarking.tasks import WORKLOADS, Size, make_task
from tacit.core.errors import InputError
from tacit.gradients import compiling

CPU = torch.device("cpu")
TINY = {
    "mlp": Size(4, width=8, depth=1),
    "cnn": Size(4),
    "wrn": Size(2, width=1, depth=1),
    "gpt": Size(2, width=64, depth=1, sequence=8, outputs=32),
    "gpt-2048": Size(2, width=64, depth=1, sequence=8, outputs=32),
    "vit": Size(2, width=64, depth=1),
    "lora": Size(2, width=64, depth=1, sequence=8, outputs=32),
    "lstm": Size(2, width=8, depth=2, sequence=4),
    "logistic": Size(4, width=16, outputs=2),
}


def tiny(name, precision="float32", **options):
    return make_task(name, CPU, precision, size=TINY[name], **options)


@pytest.fixture
def built(monkeypatch):
    """The models that contenders build, in order."""
    models = []
    original = type(tiny("mlp"))._seeded

    def remember(self, build):
        models.append(original(self, build))
        return models[-1]

    monkeypatch.setattr(type(tiny("mlp")), "_seeded", remember)
    return models


def test_every_workload_has_a_tiny_version_here():
    assert TINY.keys() == WORKLOADS.keys()


@pytest.mark.parametrize("name", WORKLOADS)
def test_losses_are_one_an_example_and_independent_of_the_batch(name):
    task = tiny(name)
    model = task.private_model()
    inputs, targets = task.batch
    losses = task.losses(model, inputs, targets)
    assert losses.shape == (task.size.batch,)
    alone = torch.cat([task.losses(model, inputs[i : i + 1], targets[i : i + 1]) for i in range(len(inputs))])
    torch.testing.assert_close(losses, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("engine", ["plain", "tacit-eager", "tacit-functional"])
def test_plain_and_private_steps_run_on_every_model(name, engine):
    lane = runs_once(tiny(name), CONTENDERS[engine])
    assert (lane.status, lane.reason) == ("ok", None)


@pytest.mark.parametrize("engine", ["plain", "tacit-eager"])
def test_a_step_moves_every_trained_parameter_and_no_other(engine, built):
    step = CONTENDERS[engine].prepare(tiny("lora"))
    (model,) = built
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for _ in range(2):  # an adapter's first factor has no gradient in the first step
        step()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]) != parameter.requires_grad, name


def test_contenders_start_from_equal_weights_and_records():
    first, second = tiny("mlp"), tiny("mlp")
    for a, b in zip(first.plain_model().parameters(), second.private_model().parameters(), strict=True):
        assert torch.equal(a, b)
    assert all(torch.equal(a, b) for a, b in zip(first.records, second.records, strict=True))


def test_building_a_task_leaves_the_random_state_alone():
    state = torch.get_rng_state()
    tiny("mlp").plain_model()
    assert torch.equal(torch.get_rng_state(), state)


def test_the_whole_compiled_step_equals_the_eager_one(built, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    task = tiny("mlp")
    for prepare in (plain.eager_step, plain.compiled_step):
        step = prepare(task)
        step()
        step()
    eager, whole = built
    for a, b in zip(eager.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.equal(next(eager.parameters()), next(task.plain_model().parameters()))


@pytest.mark.parametrize(
    ("engine", "engine_last"),
    [("plain-graph", "plain-graph-channels-last"), ("plain-parts-graph", "plain-parts-channels-last")],
)
def test_plain_steps_that_convolve_are_compiled_in_both_layouts(engine, engine_last, monkeypatch):
    """tacit's program has the channels last on a GPU: a plain step that may not would be handicapped."""
    given = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: given.append(options["options"]) or function)
    monkeypatch.setattr(plain, "captured", lambda step, device: step)
    last = CONTENDERS[engine_last]
    for contender in (CONTENDERS[engine], last):
        lane = runs_once(tiny("cnn"), contender)
        assert (lane.status, contender.kind) == ("ok", "plain")
    assert given == [None, {"force_layout_optimization": True}]
    assert runs_once(tiny("mlp"), last).reason == "has no convolutions, whose channels could be last"
    assert last in chosen(None, torch.device("cuda"))


def test_a_plain_step_shares_launches_too(monkeypatch):
    given = []
    monkeypatch.setattr(torch, "compile", lambda function, **options: given.append(options["options"]) or function)
    monkeypatch.setattr(plain, "captured", lambda step, device: step)
    contender = CONTENDERS["plain-graph-shared-launches"]
    lane = runs_once(tiny("mlp"), contender)
    assert (lane.status, contender.kind, given) == ("ok", "plain", [plain._SHORT_PROGRAM])
    assert contender in chosen(None, torch.device("cuda"))


def test_plain_steps_are_offered_what_tacit_asks_for():
    graph = torch.fx.symbolic_trace(torch.nn.Sequential())
    place = graph.graph.placeholder("x")
    graph.graph.call_function(torch.ops.aten.convolution.default, (place,))
    trace = types.SimpleNamespace(half_precision=False, graph=graph)
    assert compiling._options(trace, torch.device("cuda")) == plain._CHANNELS_LAST | plain._SHORT_PROGRAM


def test_the_hand_written_peer_moves_by_the_clipped_sum_and_noise(built, monkeypatch):
    from tacit.benchmarking.peers import per_example
    from tacit.clipping import Flat
    from tacit.gradients import clipped_grad

    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(per_example, "NOISE_MULTIPLIER", 0.0)
    monkeypatch.setattr(per_example, "CLIP", 0.1)
    task = tiny("cnn")
    step = per_example.vmap_step(task)
    step()
    start = task.private_model()
    expected = clipped_grad(start, task.losses, clipping=Flat(0.1), engine="reference")(*task.batch).grads
    moved = dict(built[0].named_parameters())
    for name, parameter in start.named_parameters():
        by = (parameter - moved[name]) * task.size.batch / plain.LEARNING_RATE
        torch.testing.assert_close(by, expected[name], rtol=1e-2, atol=1e-3)


def test_a_lean_task_holds_one_batch_and_is_worked_on_in_one_chunk(monkeypatch):
    seen = []
    original = private_steps.Private

    def spy(*arguments, **options):
        seen.append(options["execution"].chunk_size)
        return original(*arguments, **options)

    monkeypatch.setattr(private_steps, "Private", spy)
    lean = tiny("mlp", lean=True)
    assert len(lean.records[0]) == lean.size.batch
    assert runs_once(lean, CONTENDERS["tacit-eager"]).status == "ok"
    assert seen == [lean.size.batch]


def test_a_lean_batch_that_had_to_be_halved_did_not_fit():
    task = tiny("mlp", lean=True)
    step = CONTENDERS["tacit-eager"].prepare(task)
    step()
    step._private._chunk_size = task.size.batch // 2  # as after running out of memory
    lane = runs_once(task, dataclasses.replace(CONTENDERS["tacit-eager"], prepare=lambda _: step))
    assert (lane.status, lane.ms) == ("out of memory", None)


def test_bfloat16_is_for_products_and_not_for_losses():
    task = tiny("mlp", "bfloat16")
    seen = []
    inputs, targets = task.batch
    model = task.plain_model()

    def spy(x):
        seen.append(model(x).dtype)
        return model(x)

    assert task.losses(spy, inputs, targets).dtype == torch.float32
    assert seen == [torch.bfloat16]


def test_engines_that_cannot_run_here_give_their_reason():
    refused = runs_once(tiny("mlp"), chosen(["plain-graph"], CPU)[1])
    assert (refused.status, refused.reason) == ("refused", "needs a GPU")


def test_a_peer_that_is_not_installed_is_refused_if_asked_for_and_left_out_otherwise(monkeypatch):
    from tacit.benchmarking import engines

    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda name: None)
    assert not any(contender.needs for contender in chosen(None, CPU))
    lane = runs_once(tiny("mlp"), chosen(["opacus-ghost"], CPU)[1])
    assert (lane.status, lane.reason) == ("refused", "opacus is not installed")


def test_on_a_cpu_nothing_compiles_unless_asked_to():
    assert not any(contender.compiles for contender in chosen(None, CPU))
    assert [contender.name for contender in chosen(["plain-compiled", "plain-compiled"], CPU)] == [
        "plain",
        "plain-compiled",
    ]


def test_a_size_grows_along_one_axis():
    size = Size(4, width=8, depth=1)
    assert size.axes() == ("batch", "width", "depth")
    assert size.along("width", 16) == dataclasses.replace(size, width=16)


@pytest.mark.parametrize(
    ("name", "precision", "size", "part"),
    [
        ("llm", "float32", None, "model='llm'"),
        ("mlp", "int4", None, "precision='int4'"),
        ("mlp", "tf32", None, "precision='tf32'"),
        ("mlp", "float32", Size(0, width=1, depth=1), "batch=0"),
    ],
)
def test_bad_tasks_are_refused(name, precision, size, part):
    with pytest.raises(InputError, match=part):
        make_task(name, CPU, precision, size=size)


@pytest.mark.parametrize("fast", [False, True])
def test_the_noise_alone_is_that_of_the_parameters_that_train(fast, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        noise_steps.StepNoise,
        "apply_",
        lambda self, sums, source, step: drawn.append((sum(v.numel() for v in sums.values()), source.fast, step)),
    )
    task = tiny("lora")
    trained = sum(p.numel() for p in task.private_model().parameters() if p.requires_grad)
    step = noise_steps.noise_step(fast=fast)(task)
    step()
    step()
    assert drawn == [(trained, fast, 0), (trained, fast, 1)]


@pytest.mark.parametrize("engine", ["tacit-noise", "tacit-noise-fast"])
def test_the_noise_alone_is_measured_where_it_is_asked_for(engine):
    assert runs_once(tiny("mlp"), CONTENDERS[engine]).status == "ok"
    assert [contender.name for contender in chosen([engine], CPU)] == ["plain", engine]
    assert engine not in {contender.name for contender in chosen(None, CPU)}
