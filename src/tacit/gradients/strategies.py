"""Which way to a norm a layer takes: formulas guess, timings decide, and what they decided is kept on disk.

The choice never changes the result, only what it costs. A layer is known by its kind, shapes, precision and device; the
first step that meets an unknown one runs every way that is not hopeless a few times and notes the fastest, where memory
that a way keeps counts as time. On a GPU the compiled step's time is asked for, also where steps are eager. What was
timed on a CPU that was busy with other work holds for this process alone: on disk it would outlast that work.
"""

import contextlib
import functools
import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tacit.core.errors import InputError
from tacit.gradients.contributions import Contribution, Convolved, Direct, Outer
from tacit.gradients.kernels import triton_is_installed
from tacit.gradients.rounding import operand_bits
from tacit.gradients.ways import Measured, Way, cheapest, guess, is_precise, ways_for

STRATEGIES = ("keep", "gram", "tile", "keep-grouped", "keep-kernel", "gram-kernel", "group", "product", "patches")
_WORTH_TIMING = 1e7  # multiplications; below that a wrong guess costs less than the timing
_HOPELESS = 12  # times the best guess
_KEPT_AT_MOST = {"cuda": 1.5, "cpu": 4.0}  # times the numbers that the layer's input and output gradient hold
# Of a way's time, for each time that it keeps as many numbers as these: memory is dear too, and most so on a GPU.
_PRICE = {"cuda": 0.45, "cpu": 0.15}
_REPEATS, _MORE_REPEATS = 3, 6
_RUNS = {"cuda": 3, "cpu": 1}
_DISTURBED = 0.05  # of a run's time that its threads stood in line for a processor
_TIMING = 5  # which ways there are and how they are timed; what was timed otherwise is timed again
_BYTES_A_SECOND = {"cuda": 3e12, "cpu": 5e9}  # of memory; roughly


def check_strategy(name: str | None) -> str | None:
    """A name of `STRATEGIES`, or ``None`` for the fastest."""
    if name is not None and name not in STRATEGIES:
        raise InputError(f"strategy={name!r}: must be one of {', '.join(STRATEGIES)}. Leave it out for the fastest.")
    return name


class Strategies:
    """Chooses and runs ways.

    Args:
        forced: the way to take wherever a layer has it and rounding leaves it precise, such as ``gram`` or ``keep``;
            by default the fastest.
    """

    def __init__(self, forced: str | None = None) -> None:
        self._forced = check_strategy(forced)

    def measure(self, use: Contribution) -> Measured:
        """The norms by the way chosen for this layer."""
        ways = ways_for(use)
        return ways[self._choose(use, ways)].measure(use)

    def _choose(self, use: Contribution, ways: dict[str, Way]) -> str:
        if self._forced in ways and is_precise(use, self._forced):
            return self._forced
        if len(ways) == 1:
            return next(iter(ways))
        key, alike, fake = _key(use), _key(use, counted=False), _is_fake(use)
        chosen = _memory().get(key, _for_now.get(key, ""))
        if chosen not in ways and fake:  # nothing to be timed: as it was for another number of examples
            chosen = _for_now.get(alike, "")
        if chosen not in ways:
            chosen = cheapest(use)
            if fake or _examples(use) * guess(use, ways[chosen]) < _WORTH_TIMING:
                return chosen
            chosen, undisturbed = _fastest(use, _promising(use, ways))
            if undisturbed:
                _remember(key, chosen)
            else:
                _for_now[key] = chosen
        if not fake:
            _for_now[alike] = chosen
        return chosen


def _promising(use: Contribution, ways: dict[str, Way]) -> dict[str, Way]:
    limit = _HOPELESS * min(guess(use, way) for way in ways.values())
    found = {
        name: way
        for name, way in ways.items()
        if guess(use, way) <= limit
        and _kept_share(use, way) <= _KEPT_AT_MOST[_operands(use)[0].device.type]
        and (not way.kernel or (_operands(use)[0].is_cuda and triton_is_installed()))
        and is_precise(use, name)
    }
    return found or {cheapest(use): ways[cheapest(use)]}


def _fastest(use: Contribution, ways: dict[str, Way]) -> tuple[str, bool]:
    """Each way in turn, several times over; the least time wins, raised by the price of what is kept.

    Returns its name, and whether all had a time without others in between.
    """
    if len(ways) == 1:
        return next(iter(ways)), True
    device = _operands(use)[0].device
    works = {name: work for name, way in ways.items() if (work := _prepare(use, way)) is not None}
    seconds: dict[str, float] = dict.fromkeys(ways, math.inf)
    disturbed = set(works)
    for turn in range(_MORE_REPEATS):
        if turn >= _REPEATS and not disturbed:
            break
        for name, work in works.items():
            taken, waited = _seconds(work, device)
            seconds[name] = min(seconds[name], taken)
            if waited <= _DISTURBED * taken:
                disturbed.discard(name)
    costs = {
        name: (seconds[name] + _reading_seconds(use, way)) * (1 + _PRICE[device.type] * _kept_share(use, way))
        for name, way in ways.items()
    }
    return min(costs, key=lambda name: costs[name]), not disturbed


def _kept_share(use: Contribution, way: Way) -> float:
    """What a way keeps until the sum, by what the layer's input and output gradient hold anyway."""
    return way.cost(use).kept * _examples(use) / max(sum(operand.numel() for operand in _operands(use)), 1)


def _prepare(use: Contribution, way: Way) -> Callable[[], object] | None:
    """Norms and, where nothing is kept, the weighted sum; as one launch on a GPU, since a compiled step is one.

    What is kept is read once more for the sum, whoever does it: `_reading_seconds` stands for that. On a GPU it stands
    for the norm as well, which compiled code takes at the speed of memory, and torch's own kernel far below it.
    """
    weights = torch.ones(_examples(use), dtype=torch.float64, device=_operands(use)[0].device)

    def work() -> object:
        measured = way.measure(use)
        kept = isinstance(measured.source, Direct)
        return measured.squared, None if kept else measured.source.weighted_sum(weights)

    write = way.write
    try:
        work()  # all of it, which has to fit into memory
        if not weights.is_cuda:
            return work
        return _captured(work if write is None else lambda: write(use))
    except torch.OutOfMemoryError:
        return None


def _captured(work: Callable[[], object]) -> Callable[[], object]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def _seconds(work: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """A run's time, and for how long a thread of this process stood in line for a processor meanwhile, on average."""
    _wait(device)
    before, start = _in_line(), time.perf_counter()
    for _ in range(_RUNS[device.type]):
        work()
    _wait(device)
    taken, after = time.perf_counter() - start, _in_line()
    waited = sum(after[thread] - before[thread] for thread in before.keys() & after.keys())
    in_turn = waited / torch.get_num_threads() if device.type == "cpu" else 0.0
    return taken / _RUNS[device.type], in_turn / _RUNS[device.type]


def _in_line() -> dict[str, float]:
    """For how many seconds each thread of this process was ready to run and did not; none where no system tells."""
    found: dict[str, float] = {}
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
                found[thread.name] = int((thread / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    return found


def _reading_seconds(use: Contribution, way: Way) -> float:
    operand = _operands(use)[-1]  # the first may be numbers of tokens
    size = way.cost(use).kept * _examples(use) * operand.element_size()
    times = 2 if operand.is_cuda and way.write is not None else 1
    return times * size / _BYTES_A_SECOND[operand.device.type]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _examples(use: Contribution) -> int:
    return use.examples


def _operands(use: Contribution) -> tuple[Tensor, ...]:
    if isinstance(use, Outer):
        return use.left, use.right
    return (use.input, use.grad) if isinstance(use, Convolved) else (use.grads,)


def _is_fake(use: Contribution) -> bool:
    return any(isinstance(t, torch._subclasses.FakeTensor) for t in _operands(use))


def _key(use: Contribution, *, counted: bool = True) -> str:
    """What a layer is known by, with the number of its examples, up to the next power of two, or without.

    Lots differ in size from step to step, and each size would be timed anew.
    """
    operands = _operands(use)
    device = operands[0].device
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu x{torch.get_num_threads()}"
    examples = (_examples(use) - 1).bit_length() if counted else None
    shapes = [(tuple(t.shape[1:]), tuple(t.stride()), str(t.dtype)) for t in operands]
    extra = use.geometry if isinstance(use, Convolved) else None
    facts = (_TIMING, type(use).__name__, examples, shapes, extra, where, torch.__version__, operand_bits())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def cache_folder() -> Path:
    """Where timings are kept: ``$TACIT_CACHE``, or ``tacit`` in the user's cache folder."""
    given = os.environ.get("TACIT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "tacit"


@functools.cache
def _memory() -> dict[str, str]:
    return _kept()


def _kept() -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((cache_folder() / "strategies.json").read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return {str(key): str(name) for key, name in found.items()}
    return {}


_for_now: dict[str, str] = {}  # choices of this process that were timed beside other work


def _remember(key: str, name: str) -> None:
    """Notes a choice for this and later processes; a cache that cannot be written is no reason to stop."""
    _memory()[key] = name
    noted = _kept() | _memory()  # others may have noted theirs since
    path = cache_folder() / "strategies.json"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(noted, indent=0, sort_keys=True), encoding="utf-8")
        scratch.replace(path)
