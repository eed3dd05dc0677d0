"""How a step runs changes what it costs and nothing else: physical batches, memory that runs out, compilation."""

import types
from typing import Any

import numpy as np
import pytest
import torch
from private_checks import cross_entropy, flat, network, no_gradient, plan, records, updates
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tacit.core import Budget
from tacit.core.errors import InputError
from tacit.core.randomness import Randomness
from tacit.gradients import ClippedGrad, clipped_grad, compiled_engine, compiling
from tacit.gradients.engines import BookkeepingEngine
from tacit.gradients.pieces import out_of_memory
from tacit.ledger import Ledger
from tacit.mechanisms import StepNoise
from tacit.models import PrivateGRU
from tacit.sampling import Poisson, TruncatedPoisson
from tacit.training import Execution, Private, execution, fit
from tacit.training.execution import CompileWatch, first_chunk_size
from tacit.training.tally import Tally

CPU_MESSAGE = "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate"


# The first physical batch.


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        ("poisson", 96),  # 64 and four standard deviations, in steps of eight
        ("fixed-size", 64),
        ("shuffled", 64),
    ],
)
def test_the_first_chunk_holds_nearly_every_lot(sampler, expected):
    the_plan = plan(expected_batch_size=64, examples=1024, sampler=sampler)
    assert first_chunk_size(Execution(), the_plan, network()) == expected == -(-expected // 8) * 8


def test_nearly_every_poisson_lot_fits_into_the_first_chunk():
    for mean, examples in ((8, 100), (64, 10_000), (500, 60_000)):
        the_plan = plan(expected_batch_size=mean, examples=examples)
        size = first_chunk_size(Execution(), the_plan, network())
        randomness = Randomness(unsafe_seed=1)
        lots = [len(the_plan.sampler.indices(step, examples, randomness)) for step in range(300)]
        assert np.mean(np.array(lots) <= size) > 0.99
        assert size < mean + 4 * mean**0.5 + 8


def test_a_truncated_sampler_limits_the_chunk():
    sampler = TruncatedPoisson(sampling_rate=64 / 1024, examples=1024, max_batch_size=70)
    the_plan = plan(expected_batch_size=63, examples=1024, sampler=sampler)
    assert first_chunk_size(Execution(), the_plan, network()) == 70


def test_the_first_chunk_is_at_least_one_and_an_even_part_of_a_large_lot(monkeypatch):
    assert first_chunk_size(Execution(), plan(expected_batch_size=1, examples=1), network()) == 1
    large = plan(expected_batch_size=50_000, examples=60_000, sampler="fixed-size")
    assert first_chunk_size(Execution(), large, network()) == 1024
    two = plan(expected_batch_size=1100, examples=60_000, sampler="fixed-size")
    assert first_chunk_size(Execution(), two, network()) == 552  # two halves of 550, in steps of eight
    with torch.device("meta"):
        wide = nn.Linear(20_000, 20_000)
    monkeypatch.setattr(execution, "_memory_numbers", lambda: 10**9)
    assert first_chunk_size(Execution(), large, wide) == 2  # 4e8 numbers an example
    monkeypatch.setattr(execution, "_memory_numbers", lambda: 10**8)
    assert first_chunk_size(Execution(), large, wide) == 1
    assert first_chunk_size(Execution(chunk_size=7), large, wide) == 7


def test_gradients_of_convolutions_stay_within_the_cache_of_a_processor():
    large = plan(expected_batch_size=1024, examples=60_000, sampler="fixed-size")
    convolving = nn.Sequential(nn.Conv2d(3, 32, 3), nn.Flatten(), nn.LazyLinear(10))
    convolving(torch.zeros(1, 3, 40, 40))  # a wide head, whose gradients are never written out
    size = first_chunk_size(Execution(), large, convolving)
    assert size == 1024  # 900 numbers an example
    convolving[0] = nn.Conv2d(3, 512, 5)
    size = first_chunk_size(Execution(), large, convolving)
    assert size == 40
    assert size * 38_912 < execution._IN_CACHE < 2 * size * 38_912
    convolving[0] = nn.Conv2d(3, 2**15, 5)
    assert first_chunk_size(Execution(), large, convolving) == 8  # and no fewer
    convolving[0] = weight_norm(nn.Conv2d(3, 2**10, 5))
    assert first_chunk_size(Execution(), large, convolving) == 16  # 79,000 numbers, rounded down
    convolving[0].requires_grad_(False)
    assert first_chunk_size(Execution(), large, convolving) == 1024
    assert first_chunk_size(Execution(chunk_size=600), large, convolving) == 600


def test_a_chunk_of_sequences_holds_enough_tokens_for_every_thread(monkeypatch):
    """No fewer where the model is so small that calling it takes longer, and all where time steps follow each other."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    lot = plan(expected_batch_size=64, examples=1024, sampler="fixed-size")
    large, small = nn.Linear(1024, 1024), nn.Linear(100, 100)
    assert first_chunk_size(Execution(), lot, large, tokens=1) == 64
    assert first_chunk_size(Execution(), lot, large, tokens=32) == 16
    assert first_chunk_size(Execution(), lot, large, tokens=500) == 2
    assert first_chunk_size(Execution(), lot, large, tokens=10_000) == 1
    assert first_chunk_size(Execution(), lot, small, tokens=500) == 64
    assert first_chunk_size(Execution(chunk_size=20), lot, large, tokens=500) == 20
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert first_chunk_size(Execution(), lot, large, tokens=32) == 64
    recurrent = nn.ModuleList([large, PrivateGRU(4, 4)])
    assert first_chunk_size(Execution(), lot, recurrent, tokens=500) == 64


def test_a_run_counts_the_tokens_of_its_records(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    lot = plan(expected_batch_size=4, examples=8, sampler="fixed-size")

    def run(places: tuple[int, ...]) -> Private:
        model = nn.Linear(1024, 1024)
        losses = lambda model, x: model(x).square().flatten(1).mean(1)  # noqa: E731
        run = Private(model, losses, torch.optim.SGD(model.parameters(), lr=0.1), lot)
        run.step(next(run.batches((torch.randn(8, *places, 1024),))))
        return run

    assert "; 4 examples at once" in run(()).engine
    assert "; 2 examples at once" in run((240,)).engine  # two times 240 tokens, and nearly 500 are worth a call
    assert "; 2 examples at once" in run((3, 80)).engine


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_size": 0}, "chunk_size=0"),
        ({"chunk_size": -3}, "chunk_size=-3"),
        ({"chunk_size": 2.5}, "chunk_size=2.5"),
        ({"engine": "fast"}, "engine='fast'"),
        ({"strategy": "fast"}, "strategy='fast': must be one of keep, gram, tile, keep-grouped, keep-kernel"),
        ({"compile": "yes"}, "compile='yes': must be True, False or None"),
        ({"compile": 3}, "compile=3"),
    ],
)
def test_bad_input_is_named_with_its_value(options, message):
    with pytest.raises(InputError, match=message):
        Execution(**options)


# Memory that runs out.


class Scarce:
    """An engine that has memory for so many examples at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int, error: Exception | None = None) -> None:
        self.sizes: list[int] = []
        self.most, self.error = most, error or torch.OutOfMemoryError("CUDA out of memory")
        self.real = BookkeepingEngine.__call__
        monkeypatch.setattr(BookkeepingEngine, "__call__", lambda engine, batch, mask: self(engine, batch, mask))

    def __call__(self, engine: BookkeepingEngine, batch: Any, mask: torch.Tensor) -> Any:
        self.sizes.append(len(mask))
        if len(mask) > self.most:
            raise self.error
        return self.real(engine, batch, mask)


def private(**options: Any) -> Private:
    model = network()
    return Private(
        model,
        options.pop("loss_fn", cross_entropy),
        torch.optim.SGD(model.parameters(), lr=1.0),
        options.pop("plan", plan(expected_batch_size=16, steps=3)),
        randomness=Randomness(unsafe_seed=7),
        execution=Execution(preflight=False, **options.pop("execution", {})),
        **options,
    )


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(CPU_MESSAGE)], ids=repr)
@pytest.mark.parametrize("pad_chunks", [True, False])
def test_out_of_memory_halves_the_chunk_with_the_same_result(error, pad_chunks, monkeypatch):
    the_plan = plan(expected_batch_size=16, steps=3)  # rate 1: all sixteen records in each lot
    expected = list(updates(the_plan, loss_fn=cross_entropy))
    scarce = Scarce(monkeypatch, 5, error)
    options = Execution(preflight=False, pad_chunks=pad_chunks)
    found = list(updates(the_plan, loss_fn=cross_entropy, execution=options))
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(flat(one), flat(two), rtol=1e-9, atol=1e-12)
    assert scarce.sizes == [16, 8, *[4] * 4 * 3]  # halved twice in the first step, and kept


@pytest.mark.parametrize("engine", ["functional", "reference"])
def test_every_engine_says_that_memory_ran_out(engine):
    the_plan = plan(expected_batch_size=16, steps=1)
    expected = list(updates(the_plan, loss_fn=cross_entropy))
    failures = [torch.OutOfMemoryError("CUDA out of memory")]

    def scarce(model, x, y):
        if failures:
            raise failures.pop()
        return cross_entropy(model, x, y)

    found = list(updates(the_plan, loss_fn=scarce, execution=Execution(engine=engine, preflight=False)))
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(flat(one), flat(two), rtol=1e-9, atol=1e-12)


def test_a_program_takes_the_whole_lot_where_eager_steps_need_pieces(monkeypatch):
    """What is compiled needs less memory than the eager steps before it, and those that it is compared with."""

    def as_it_was_traced(trace, inputs, *, apart):
        return lambda arguments: list(trace.graph(*arguments))

    monkeypatch.setattr(compiling, "compile_graph", as_it_was_traced)
    the_plan = plan(expected_batch_size=16, steps=3)
    expected = list(updates(the_plan, loss_fn=cross_entropy))
    scarce = Scarce(monkeypatch, 5)
    found = list(updates(the_plan, loss_fn=cross_entropy, execution=Execution(preflight=False, compile=True)))
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(flat(one), flat(two), rtol=1e-9, atol=1e-12)
    assert scarce.sizes == [8, *[4] * 4, *[4] * 4]  # by halves before the program, and beside its first result


def test_the_chunk_is_halved_to_one_and_then_memory_is_really_out(monkeypatch):
    scarce = Scarce(monkeypatch, 0)
    run = private(execution={"chunk_size": 7})
    lot = next(run.batches(records()))
    with pytest.raises(torch.OutOfMemoryError):
        run.step(lot)
    assert scarce.sizes == [7, 4, 2, 1]
    assert run.steps_done == run.steps_begun == 0


def test_memory_that_runs_out_late_in_a_lot_counts_no_example_twice(monkeypatch):
    """The third chunk fails; what the first two had added is dropped."""
    the_plan = plan(expected_batch_size=16, steps=1, noise_multiplier=0)
    (expected,) = updates(the_plan, loss_fn=cross_entropy)
    real, calls = BookkeepingEngine.__call__, []

    def third_fails(engine, batch, mask):
        calls.append(len(mask))
        if len(calls) == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(engine, batch, mask)

    monkeypatch.setattr(BookkeepingEngine, "__call__", third_fails)
    (found,) = updates(the_plan, loss_fn=cross_entropy, execution=Execution(preflight=False, chunk_size=4))
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-9, atol=1e-12)
    assert calls == [4, 4, 4, *[2] * 8]


def test_planted_a_retry_that_keeps_what_was_added_is_rejected(monkeypatch):
    """A sum that survives the failure would hold the first chunks twice."""
    kept: dict[str, torch.Tensor] = {}

    def leaky(self, chunks):
        for batch, mask in chunks:
            sums, _ = self._add({}, batch, self._full_mask(batch) if mask is None else mask)
            for name, value in sums.items():
                kept[name] = kept.get(name, 0) + value
        return kept

    monkeypatch.setattr(ClippedGrad, "accumulate", leaky)
    with pytest.raises(AssertionError):
        test_memory_that_runs_out_late_in_a_lot_counts_no_example_twice(monkeypatch)


def test_other_errors_pass_through(monkeypatch):
    scarce = Scarce(monkeypatch, 0, RuntimeError("expected scalar type Float but found Double"))
    run = private()
    lot = next(run.batches(records()))
    with pytest.raises(RuntimeError, match="expected scalar type"):
        run.step(lot)
    assert scarce.sizes == [16]
    assert not out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert out_of_memory(RuntimeError(CPU_MESSAGE))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)  # what this torch says
    assert out_of_memory(caught.value)
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))


def test_a_retry_draws_and_reserves_nothing_twice(monkeypatch, tmp_path):
    """Lots, noise and the ledger are those of a run with memory enough."""
    drawn: list[tuple[int, ...]] = []
    real = Poisson.indices

    def indices(self, step, examples, randomness):
        found = real(self, step, examples, randomness)
        drawn.append((step, *found.tolist()))
        return found

    monkeypatch.setattr(Poisson, "indices", indices)
    results, spent = [], []
    for scarce in (False, True):
        path = tmp_path / f"{scarce}.db"
        account = Ledger.create(path, dataset="d", budget=Budget(1e6, 1e-4)).account("d")
        with monkeypatch.context() as patch:
            if scarce:
                Scarce(patch, 3)
            run = private(plan=plan(expected_batch_size=8, steps=4), account=account)
            for lot in run.batches(records()):
                before = run.steps_begun
                run.step(lot)
                assert run.steps_begun == before + 1
        results.append(torch.cat([p.detach().flatten() for p in run.model.parameters()]))
        spent.append(account.spent())
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-12)
    assert drawn[:4] == drawn[4:]
    assert len(drawn) == 8
    assert spent[0] == spent[1]


def test_memory_that_runs_out_after_the_reservation_is_not_retried(monkeypatch):
    """The noise of a step is drawn once; whatever fails from there on ends the step, and it counts as spent."""
    run = private()
    calls = []

    def fails(*arguments):
        calls.append(arguments)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(run._noise, "apply_", fails)
    lot = next(run.batches(records()))
    with pytest.raises(torch.OutOfMemoryError):
        run.step(lot)
    assert len(calls) == 1
    assert (run.steps_begun, run.steps_done) == (1, 0)


# Compilation, with the traced graph in the program's place.


@pytest.fixture
def traced(monkeypatch):
    monkeypatch.setattr(compiling, "compile_graph", lambda trace, _, apart: lambda given: list(trace.graph(*given)))
    monkeypatch.setattr(compiled_engine, "can_compile", lambda device: True)


def test_a_compiled_run_is_an_eager_run(traced):
    the_plan = plan(steps=5)
    eager = list(updates(the_plan, loss_fn=cross_entropy, execution=Execution(compile=False)))
    compiled = list(updates(the_plan, loss_fn=cross_entropy, execution=Execution(compile=True)))
    for one, two in zip(compiled, eager, strict=True):
        torch.testing.assert_close(flat(one), flat(two), rtol=1e-9, atol=1e-12)


def test_a_compiled_run_says_so_and_pads_every_chunk(traced):
    run = private(plan=plan(steps=3), execution={"compile": True, "chunk_size": 6})
    for lot in run.batches(records()):
        run.step(lot)
    assert "; compiled; 6 examples at once" in run.engine
    assert len(run._grad._engine._programs) == 1


def test_how_long_the_program_took_is_told_of_runs_that_end_and_of_others(traced):
    found = {}
    for compile_ in (True, False):
        model = network()
        optimizer, how = torch.optim.SGD(model.parameters(), lr=0.1), Execution(compile=compile_)
        tally = Tally(plan(steps=2), past_unknown=False)
        run = {"optimizer": optimizer, "execution": how, "opened": tally.open}
        ended = fit(model, cross_entropy, records(), plan(steps=2), **run)
        assert ended.compile_seconds == tally.latest.compile_seconds == tally.results()[0].compile_seconds
        found[compile_] = ended.compile_seconds
    assert found[True] > found[False] == 0


def test_memory_that_runs_out_in_a_compiled_run_forgets_its_programs(traced, monkeypatch):
    expected = list(updates(plan(expected_batch_size=16), loss_fn=cross_entropy))
    Scarce(monkeypatch, 5)
    found = list(updates(plan(expected_batch_size=16), loss_fn=cross_entropy, execution=Execution(compile=True)))
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(flat(one), flat(two), rtol=1e-9, atol=1e-12)


class Clock:
    """Seconds that pass by the step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds
        monkeypatch.setattr(execution, "time", types.SimpleNamespace(perf_counter=lambda: self.now))

    def run(self, watch: CompileWatch, steps: int) -> None:
        for done in range(1, steps + 1):
            self.now += self.seconds
            watch.after_step(done)


def watched(monkeypatch, steps: int, seconds: float, compile_: bool | None = None) -> list[tuple[int, bool]]:
    """When compilation started, and whether steps wait for it."""
    grad = clipped_grad(network(), no_gradient, clipping=plan().clipping)
    started: list[tuple[int, bool]] = []
    clock = Clock(monkeypatch, seconds)
    monkeypatch.setattr(grad, "start_compiling", lambda *, wait: started.append((round(clock.now / seconds), wait)))
    monkeypatch.setattr(execution, "can_compile", lambda device: False)
    watch = CompileWatch(Execution(compile=compile_), grad, StepNoise(plan().mechanism(1.0), 8), steps)
    clock.run(watch, min(steps, 50))
    return started


@pytest.mark.parametrize(
    ("steps", "seconds", "expected"),
    [
        (1008, 0.1, [(8, False)]),  # 100 seconds are left
        (808, 0.1, []),  # 80
        (1_000_000, 1e-5, []),
        (10, 3600.0, [(8, False)]),
        (8, 3600.0, []),  # nothing is left
        (5, 3600.0, []),
    ],
)
def test_compilation_starts_in_the_background_where_the_rest_is_long(steps, seconds, expected, monkeypatch):
    assert watched(monkeypatch, steps, seconds) == expected


def test_compilation_that_was_asked_for_starts_at_once_and_one_that_was_forbidden_never(monkeypatch):
    assert watched(monkeypatch, 10, 1e-3, True) == [(0, True)]
    assert watched(monkeypatch, 1000, 3600.0, False) == []


def test_the_preflight_compiles_nothing(traced, monkeypatch):
    shapes = []
    real = compiled_engine.CompiledEngine._compile

    def noted(self, form, batch, mask):
        shapes.append(len(mask))
        return real(self, form, batch, mask)

    monkeypatch.setattr(compiled_engine.CompiledEngine, "_compile", noted)
    model = network()
    run = Private(
        model,
        cross_entropy,
        torch.optim.SGD(model.parameters(), lr=0.1),
        plan(steps=2),
        execution=Execution(compile=True, chunk_size=5),
    )
    for lot in run.batches(records()):
        run.step(lot)
    assert set(shapes) <= {5}
