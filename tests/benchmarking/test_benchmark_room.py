"""Records that would not fit into memory are refused before they are made."""

import pytest
import torch

from tacit.benchmarking import StepSettings, room, stepping
from tacit.benchmarking.tasks import WORKLOADS, make_task
from tacit.core.errors import InputError

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_bytes_of_a_record_are_those_of_a_task(name):
    size = WORKLOADS[name].small.along("batch", 2)
    records = make_task(name, CPU, size=size, lean=True).records
    assert WORKLOADS[name].bytes_a_record(size) * 2 == sum(part.nbytes for part in records)


@pytest.mark.parametrize("batch", [10**9, 10**10, 10**400], ids=["large", "larger", "no float"])
def test_a_batch_beyond_the_memory_of_the_machine_is_refused_before_its_records_are_made(batch, monkeypatch):
    monkeypatch.setattr(room, "make_task", lambda *arguments, **options: pytest.fail("records were made"))
    with pytest.raises(InputError, match=rf"^batch={batch}: the records of mlp .* MiB.*Choose a batch well below \d+"):
        StepSettings(models=("mlp",), device="cpu", batch=batch)


def test_the_largest_batch_is_what_memory_holds_and_half_of_it_where_an_axis_is_to_be_doubled(monkeypatch):
    size = WORKLOADS["mlp"].small
    monkeypatch.setattr(room, "memory_of", lambda device: 4 * 3144 * 100)
    room.check_room("mlp", size.along("batch", 100), CPU)
    with pytest.raises(InputError, match="below 100"):
        room.check_room("mlp", size.along("batch", 101), CPU)
    StepSettings(models=("mlp",), device="cpu", batch=50, growth=True)
    with pytest.raises(InputError, match=r"batch=51: .* below 50"):
        StepSettings(models=("mlp",), device="cpu", batch=51, growth=True)


@pytest.mark.parametrize(
    "error", [RuntimeError("DefaultCPUAllocator: can't allocate memory"), torch.OutOfMemoryError()]
)
def test_memory_that_others_have_taken_is_a_refusal_too(error, monkeypatch):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(room, "make_task", fail)
    with pytest.raises(InputError, match=r"batch=8: .* Choose a smaller batch"):
        stepping.benchmark_step(StepSettings(models=("mlp",), engines=("plain",), device="cpu", batch=8))


def test_other_errors_of_a_task_pass(monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("a fault")

    monkeypatch.setattr(room, "make_task", fail)
    with pytest.raises(RuntimeError, match="a fault"):
        room.make_task_in_room("mlp", CPU, "float32", WORKLOADS["mlp"].small)


@pytest.mark.parametrize(("limit", "expected"), [("12345\n", 12345), ("max\n", None), (None, None)])
def test_a_container_may_have_less_than_its_machine(limit, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "_CONTAINER_LIMIT", tmp_path / "memory.max")
    whole = room.memory_of(CPU)
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit, encoding="ascii")
    assert room.memory_of(CPU) == (expected or whole)
