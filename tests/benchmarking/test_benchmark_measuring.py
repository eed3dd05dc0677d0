"""Turns, medians, refusals and memory, with contenders that take no time."""

import sys

import pytest
import torch

from tacit.benchmarking import measuring, memory
from tacit.benchmarking.contenders import AsynchronousStep, Contender, DescribedStep, RefusedError
from tacit.benchmarking.measuring import Deadline, Lane, Stages, measure, silent
from tacit.benchmarking.stepping import rows_of
from tacit.benchmarking.tasks import Size, make_task

TINY = Size(4, width=3, depth=1)


@pytest.fixture
def task():
    return make_task("mlp", torch.device("cpu"), size=TINY)


def noting(name, log, **options):
    def prepare(task):
        log.append(f"{name} built")
        return lambda: log.append(name)

    return Contender(name, prepare, **options)


def run(task, contenders, *, rounds=3, seconds=None):
    return measure(task, contenders, rounds=rounds, deadline=Deadline.after(seconds), progress=silent)


@pytest.fixture
def one_step_a_block(monkeypatch):
    monkeypatch.setattr(measuring, "_MOST_STEPS_A_BLOCK", 1)


def test_contenders_take_turns_after_all_are_built(task, one_step_a_block):
    log = []
    run(task, [noting("a", log), noting("b", log)])
    warm_up = ["a built", "a", "a", "b built", "b", "b"]
    assert log == [*warm_up, *["a", "b"] * 3]


def test_a_contender_that_fails_leaves_the_others_their_turns(task, one_step_a_block):
    log = []

    def refuse(task):
        raise RefusedError("needs\na GPU")

    def break_later(task):
        steps = iter(range(3))
        return lambda: next(steps)

    def run_out(task):
        raise torch.OutOfMemoryError("no room")

    contenders = [
        Contender("refuses", refuse),
        noting("a", log),
        Contender("breaks", break_later),
        Contender("large", run_out),
    ]
    refused, fine, broken, large = run(task, contenders)
    assert (refused.status, refused.reason) == ("refused", "needs a GPU")
    assert (broken.status, broken.reason, broken.ms) == ("refused", "StopIteration:", None)
    assert (large.status, large.ms) == ("out of memory", None)
    assert fine.status == "ok"
    assert len(fine.seconds) == 3


def test_control_c_is_no_refusal(task):
    def interrupted(task):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(task, [Contender("a", interrupted)])


def test_the_median_over_rounds_counts():
    lane = Lane(noting("a", []), seconds=[0.001, 0.5, 0.002])
    assert lane.ms == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("seconds", "number", "share", "expected"),
    [
        ([], 0, 0.0, True),
        ([5.0], 1, 9.0, False),
        ([5.0], 1, 10.0, True),
        ([5.0], 1, None, True),
        ([0.1, 0.1], 2, 0.0, True),
        ([0.1, 0.1, 0.1], 3, 0.0, False),
    ],
)
def test_rounds_are_dropped_and_contenders_are_not(seconds, number, share, expected):
    assert Lane(noting("a", []), seconds=seconds).has_turn(number, share) is expected


def test_a_spent_budget_still_gives_every_contender_a_figure(task):
    lanes = run(task, [noting("a", []), noting("b", [])], rounds=50, seconds=1e-9)
    assert all(lane.ms is not None for lane in lanes)
    assert all(len(lane.seconds) < 50 for lane in lanes)


def test_a_deadline_is_shared_evenly():
    assert Deadline.after(None).share(3).left() is None
    assert Deadline.after(30).share(3).left() == pytest.approx(10, abs=0.1)
    assert Deadline.after(0.0).share(3).left() <= 0


def test_steps_that_only_start_their_work_are_waited_for(task):
    log = []

    class Starts(AsynchronousStep):
        def __call__(self):
            log.append("step")

        def wait(self):
            log.append("wait")

    run(task, [Contender("a", lambda task: Starts())], rounds=1)
    assert log[:3] == ["wait", "step", "wait"]
    assert log[-1] == "wait"


def test_other_peoples_output_stays_off_standard_output(task, capsys):
    def prepare(task):
        sys.stdout.write("hello from a library")
        return lambda: None

    run(task, [Contender("a", prepare)], rounds=1)
    assert capsys.readouterr().out == ""


def test_steps_that_can_say_how_they_are_taken_are_asked(task):
    class Speaks(DescribedStep):
        def __call__(self):
            pass

        def describe(self):
            return "in one chunk"

    (lane,) = run(task, [Contender("a", lambda task: Speaks())], rounds=1)
    assert lane.detail == "in one chunk"
    assert rows_of(task, [lane])[0]["detail"] == "in one chunk"


def test_stages_add_up_to_the_whole():
    seen = []
    stages = Stages(lambda text, share: seen.append((text, share)), 2)
    stages.next()("a", 0.5)
    stages.next()("b", 0.5)
    assert seen == [("a", 0.25), ("b", 0.75)]


def test_ratios_are_to_eager_to_the_fastest_and_to_the_own_framework(task):
    def lane(name, ms, **options):
        return Lane(noting(name, [], **options), seconds=[] if ms is None else [ms / 1e3])

    rows = rows_of(
        task,
        [
            lane("plain", 4.0, kind="plain"),
            lane("plain-graph", 2.0, kind="plain"),
            lane("jax", 1.0, kind="plain", framework="jax"),
            lane("tacit", 3.0),
            lane("jax-privacy", 6.0, framework="jax"),
            lane("never-ran", None),
        ],
    )
    found = {row["engine"]: (row["ratio"], row["ratio_fastest"], row["ratio_own"]) for row in rows}
    assert found["plain"] == (1.0, 2.0, 1.0)
    assert found["tacit"] == (0.75, 1.5, 0.75)
    assert found["jax-privacy"] == (1.5, 3.0, 6.0)
    assert found["never-ran"] == (None, None, None)


def test_memory_counts_what_graphs_hold_for_themselves(monkeypatch):
    mib = memory.MIB
    state = {"allocated": 10 * mib, "peak": 25 * mib, "segments": []}

    def segment(total, allocated, pool=(0, 0), device=0):
        return {"total_size": total * mib, "allocated_size": allocated * mib, "segment_pool_id": pool, "device": device}

    state["segments"] = [segment(40, 10), segment(6, 6, (0, 1))]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: state["allocated"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: state["peak"])
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: state["segments"])
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *device: None)
    monkeypatch.setattr(memory, "_make_workspaces", lambda device: None)
    before = memory.MemoryBefore.now(torch.device("cuda", 0))
    state["segments"] = [*state["segments"], segment(8, 1, (0, 2)), segment(99, 0, (0, 3), device=1)]
    assert before.peak_mib() == 15 + 7
    assert memory.MemoryBefore.now(torch.device("cpu")) is None
