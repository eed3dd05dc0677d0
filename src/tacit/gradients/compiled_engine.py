"""Book-keeping whose whole step is compiled: the same function, as fast as the arithmetic allows.

Compiling takes seconds to a minute for each shape of batch, so it starts on request or when it will pay, runs beside
the training, and every step until then is an eager one. A model that cannot be compiled stays eager and says why.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.core.row_sums import RowSum
from tacit.gradients.batches import Rows, count_examples, form_of, gathered, leaves, numbers_in
from tacit.gradients.capturing import Replay
from tacit.gradients.compiling import Compilation, as_traced, can_compile, compiling, wait_for_compiler
from tacit.gradients.engines import BookkeepingEngine
from tacit.gradients.kept_memory import give_back_freed_memory
from tacit.gradients.layout_probe import PROBED
from tacit.gradients.model_state import generator_states, same_states, set_generator_states
from tacit.gradients.open_sums import Finished
from tacit.gradients.pieces import Pieces
from tacit.gradients.recorder import Step
from tacit.gradients.rounding import operand_error, product_settings
from tacit.gradients.tracing import Batch, trace

_TOLERANCE = 5e-2  # an activation next to zero may fall on its other side, and deep networks make much of that
_ROUGH_TOLERANCE = 0.5  # with operands cut to ten bits, gradients of deep networks differ visibly from pass to pass
_FINE = 1e-5
_NEGLIGIBLE = 1e-3  # of a gradient's norm
_LOOKS = (10, 100, 1000, 10_000)  # calls after which a program is compared again, the last one every so many
_GATHERED = 2**21  # bytes of rows that an eager step may gather at once on a CPU
_MOST_PIECES = 8
_SHAPES = 4  # programs at most; a lot of any other shape runs eagerly


@dataclasses.dataclass
class _Program:
    compilation: Compilation
    records: tuple[Tensor, ...]  # kept, so that no other tensors get their identity
    replay: Replay | None = None
    finish: "Finish | None" = None  # what the replay does to the sums
    trusted: bool = False
    calls: int = 0
    too_large: bool = False  # for a CUDA graph, which holds its memory for good

    @property
    def looks_next(self) -> bool:
        """Whether the next call is compared with the eager step."""
        coming = self.calls + 1
        return not self.trusted or coming in _LOOKS or coming % _LOOKS[-1] == 0

    def run(self, arguments: list[Tensor]) -> list[Tensor]:
        """All sums, and norms."""
        with as_traced(arguments[0].device):
            return self.compilation.trace.results.taken(self.compilation.program(arguments))

    def run_openly(self, arguments: list[Tensor]) -> list[Tensor]:
        """The same with places for the sums that are left open."""
        return self.compilation.trace.results.with_places(self.compilation.program(arguments))

    def named(self, results: list[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """Sums by name, and norms."""
        *sums, norms = results
        return dict(zip(self.compilation.trace.results.names, sums, strict=True)), norms


Finish = Callable[[dict[str, Tensor | RowSum], Tensor], Finished]
"""What is done to the sums of a step, given the place of the letter that comes with each launch; returns the result.

Sums that are left open are its to take.
"""
Launch = Callable[[bytes], None]
"""Runs a program and its finish with such a letter: eight words, on the device as int32."""
_BLANK = bytes(32)


class Captured(NamedTuple):
    """A lot's sum and its finish as one launch.

    Attributes:
        launch: runs them.
        finished: what ``finish`` returned when the program was captured: the memory that the launch writes to, which
            belongs to the program, as there may be several.
        draws: whether the program draws from torch's generators.
    """

    launch: Launch
    finished: Finished
    draws: bool


class CompiledEngine:
    """Runs compiled programs where there are any, and the eager engine otherwise."""

    name = BookkeepingEngine.name

    def __init__(self, eager: BookkeepingEngine) -> None:
        self.eager = eager
        self.state = "eager, since nothing was compiled yet"
        self._programs: dict[Hashable, _Program] = {}
        self._asked, self._wait, self._refused = False, False, False
        self._pieces = Pieces()
        self.full_mask: Tensor | None = None

    def start(self, *, wait: bool) -> None:
        """From now on shapes are compiled as they come; ``wait`` makes the first batch of a shape wait for it."""
        self._asked, self._wait = True, wait

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Eager steps for a while, for batches that will not come again."""
        asked, self._asked = self._asked, False
        try:
            yield
        finally:
            self._asked = asked

    def forget(self) -> None:
        """Drops all programs and their memory."""
        self._programs.clear()
        self._pieces = Pieces()

    @property
    def seconds(self) -> float:
        """How long the programs that there are took to compile, together."""
        found = (program.compilation for program in self._programs.values())
        return sum(compilation.seconds for compilation in found if compilation.ready)

    @property
    def asked(self) -> bool:
        """Whether shapes are compiled as they come."""
        return self._asked and not self._refused

    def lends(self, value: Tensor) -> bool:
        """Whether the next call may overwrite this tensor."""
        return any(program.replay is not None and program.replay.holds(value) for program in self._programs.values())

    def __call__(self, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        if not self._asked or self._refused or not len(mask):
            return self._eagerly(batch, mask)
        form = self._form(batch, mask)
        program = self._programs.get(form)
        if program is None:
            before = generator_states()
            result = self._eagerly(batch, mask)  # finds layouts and times the ways to each norm
            form = self._form(batch, mask)  # a first pass may fill what the model keeps for the next ones
            program = self._programs.get(form)
            if program is None and len(self._programs) < _SHAPES and self._settled(batch, mask):
                program = self._compile(form, batch, mask)
            if program is None or not program.compilation.ready:
                return result
            del result  # as large as the model, and taken again to compare with
            set_generator_states(before)
        if program.compilation.failure is not None and not program.compilation.try_again():
            self._refuse(program.compilation.failure)
        if not program.compilation.ready:
            return self._eagerly(batch, mask)
        looks = program.looks_next
        program.calls += 1
        return self._check(program, batch, mask) if looks else self._replayed(program, batch, mask)

    def captured(self, batch: Batch, mask: Tensor, finish: Finish) -> Captured | None:
        """One launch that runs the program on this batch and ``finish`` on its sums, and nothing before it is called.

        None where the ordinary way must be taken: no GPU, no
        program that is trusted yet, or one to be compared with the eager step. ``finish`` is captured once for a
        program, and again only where another one is given.
        """
        if not self.asked or not mask.is_cuda or not mask.numel():
            return None
        program = self._programs.get(self._form(batch, mask))
        if program is None or program.looks_next or program.too_large:
            return None
        program.calls += 1
        launch = self._prepared(program, batch, mask, finish)
        assert program.replay is not None
        return Captured(launch, program.replay.finished, program.replay.draws)

    def _eagerly(self, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """In pieces where a program is to come, which needs less memory; who stays eager is told that it ran out.

        On a CPU that is one half after the other, which hardly takes longer, or smaller parts, eighths at least, where
        rows are wide and a half of them would be more than the program holds; a GPU takes the whole while it fits.
        """
        if not self.asked:
            return self.eager(gathered(batch), mask)
        half, least = (math.ceil(len(mask) / parts) for parts in (2, _MOST_PIECES))
        most = min(half, max(least, batch.rows_in(_GATHERED))) if isinstance(batch, Rows) else half
        return self._pieces(self.eager, batch, mask, most=None if mask.is_cuda else most)

    def _check(self, program: _Program, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """A program's first result must be the eager one, up to rounding, and some later ones.

        Numbers that the loss function reads from elsewhere are frozen in a program; where they change, it is given up.
        """
        before = generator_states()
        expected, norms = self._eagerly(batch, mask)
        if self._pieces.needed:  # as large as the model: not beside a program that memory just holds
            expected = {name: value.cpu() for name, value in expected.items()}
        if not mask.is_cuda:
            give_back_freed_memory()  # of the eager step, before the program takes its own
        after = generator_states()
        drew = not same_states(before, after)
        set_generator_states(before)  # the program draws what it would have drawn without the comparison
        sums, found = self._plainly(program, batch, mask)
        rough = program.compilation.trace.half_precision or operand_error(torch.float32, convolution=True) > _FINE
        tolerance = _ROUGH_TOLERANCE if rough else _TOLERANCE
        if drew:  # the two differ by chance, but no example adds more than its bound
            agree = _distance(sums, {}) <= self.eager.largest_norm * float(mask.sum()) * (1 + _TOLERANCE)
        else:
            # What is small beside the others' gradients is rounding, as where an example's loss has gone to zero.
            largest = float(torch.where(torch.isfinite(norms), norms, 0.0).amax())
            least = _NEGLIGIBLE * min(largest, self.eager.largest_norm)
            agree = bool(
                torch.allclose(found[mask], norms[mask], rtol=tolerance, atol=tolerance * least, equal_nan=True)
            )
            agree &= _distance(sums, expected) <= tolerance * (_distance(expected, {}) + least)
        program.trusted = agree and bool(mask.any())
        if program.trusted and not mask.is_cuda:
            give_back_freed_memory(collect=True)  # of the comparison, and at first of trace and compiler
        if not agree:
            set_generator_states(after)
            self._refuse("its result is not that of the eager step, so it depends on more than the batch and the model")
            self._programs.clear()
        return (sums, found) if agree else ({name: value.to(mask.device) for name, value in expected.items()}, norms)

    def _compile(self, form: Hashable, batch: Batch, mask: Tensor) -> _Program | None:
        if self._wait:
            wait_for_compiler()
        elif compiling():
            return None  # in a later step
        device = mask.device
        ways = self._ways(batch)
        try:
            if len(ways) != 1:
                raise UnsupportedError("the model takes several ways through its code")
            if not can_compile(device):
                raise UnsupportedError(f"no compiler for {device.type}: install Triton for GPUs, g++ for the CPU")
            if device.type == "cpu":
                give_back_freed_memory()  # of the eager step
            traced = trace(*self.eager.parts, ways[0], (batch, mask)).leaving_sums_open()
        except UnsupportedError as error:
            self._refuse(str(error))
            return None
        inputs = [*traced.staying(batch), *traced.moving(batch, mask)]
        records = batch.tensors if isinstance(batch, Rows) else ()
        program = _Program(Compilation(traced, inputs, wait=self._wait), records)
        self._programs[form] = program
        return program

    def _ways(self, batch: Batch) -> list[list[Step]]:
        """Found already by the eager step, for batches of any size; a few rows tell which."""
        own = _few_rows(batch)
        return self.eager.ways(own, count_examples(own))

    def _settled(self, batch: Batch, mask: Tensor) -> bool:
        """Whether a program may stand for the eager step, which probes again until it has had examples that differ.

        Programs do not probe, so there is none before. A program for one example has none to mix it with.
        """
        own = _few_rows(batch)
        return len(mask) == 1 or self.eager.settled(own, count_examples(own))

    def _refuse(self, reason: str) -> None:
        self._refused = True
        self.state = f"eager, because it could not be compiled: {reason}"

    def _plainly(self, program: _Program, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The program, launch by launch."""
        trace = program.compilation.trace
        self.state = "compiled"
        return program.named(program.run([*trace.staying(batch), *trace.moving(batch, mask)]))

    def _replayed(self, program: _Program, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """The program from its CUDA graph on a GPU where memory holds one; where a graph was captured with a finish, a
        second one would take as much memory again for the rare lot that is not finished at once.
        """
        if mask.is_cuda and program.finish is None and not program.too_large:
            with contextlib.suppress(torch.OutOfMemoryError):
                self._prepared(program, batch, mask, None)(_BLANK)
                assert program.replay is not None
                return program.named(program.replay.results)
        return self._plainly(program, batch, mask)

    def _prepared(self, program: _Program, batch: Batch, mask: Tensor, finish: Finish | None) -> Launch:
        trace = program.compilation.trace
        moving, addresses = trace.packed(batch, mask), trace.addresses(batch)
        replay = program.replay
        if replay is None or program.finish != finish or replay.addresses != addresses:
            replay = program.replay = None  # frees its memory before the next one takes as much

            def finish_named(results: list[Tensor], letter: Tensor) -> Finished:
                assert finish is not None
                return finish(trace.results.read(results), letter)

            run, end = (program.run, None) if finish is None else (program.run_openly, finish_named)
            try:
                replay = Replay(run, trace.staying(batch), moving, _BLANK, end)
            except torch.OutOfMemoryError:
                program.too_large = True
                raise
            program.replay, program.finish = replay, finish
        self.state = "compiled, in one CUDA graph"
        return functools.partial(replay, moving, mask if mask is self.full_mask else None)

    def _form(self, batch: Batch, mask: Tensor) -> Hashable:
        kind, examples = "cuda" if mask.is_cuda else mask.device.type, mask.numel()
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        modes, precision = self.eager.settings(), product_settings(kind)
        if isinstance(batch, Rows):
            return examples, modes, tuple(map(id, batch.tensors)), autocast, precision
        layouts = tuple((leaf.shape, leaf.stride(), leaf.device) for leaf in leaves(batch))
        return examples, modes, form_of(batch, examples), tuple(numbers_in(batch)), layouts, autocast, precision


def _few_rows(batch: Batch) -> tuple[Any, ...]:
    """As many rows as tell a batch's form, gathered."""
    few = Rows(batch.tensors, batch.index[:PROBED]) if isinstance(batch, Rows) else batch
    rows: tuple[Any, ...] = gathered(few)
    return rows


def _distance(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> float:
    """The L2 distance of two sums; what is missing is zero."""
    parts = [torch.linalg.vector_norm(value - _beside(value, second.get(name))) for name, value in first.items()]
    return float(torch.stack(parts).norm())


def _beside(value: Tensor, other: Tensor | None) -> Tensor | int:
    return 0 if other is None else other.to(value.device)
