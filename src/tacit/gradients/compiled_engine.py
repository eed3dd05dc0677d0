"""Book-keeping whose whole step is compiled: the same function, as fast as the arithmetic allows.

Compiling takes seconds to a minute for each shape of batch, so it starts on request or when it will pay, runs beside
the training, and every step until then is an eager one. A model that cannot be compiled stays eager and says why.
"""

import contextlib
import dataclasses
import time
from collections.abc import Hashable, Iterator, Mapping

import torch
from torch import Tensor

from tacit.core.errors import UnsupportedError
from tacit.gradients.batches import Rows, count_examples, form_of, leaves, numbers_in
from tacit.gradients.compiling import Compilation, Replay, can_compile
from tacit.gradients.engines import BookkeepingEngine
from tacit.gradients.model_state import generator_states
from tacit.gradients.rounding import operand_bits, operand_error
from tacit.gradients.tracing import Batch, Program, trace

_TOLERANCE = 5e-2  # an activation next to zero may fall on its other side, and deep networks make much of that
_ROUGH_TOLERANCE = 0.5  # with operands cut to ten bits, gradients of deep networks differ visibly from pass to pass
# Seconds. A longer program hides its launches by itself, and a graph would keep its memory apart from everything else.
_WORTH_CAPTURING = 0.02
_FINE = 1e-5
_LOOKS = (10, 100, 1000)  # calls after which a program is compared again, the last one every so many
_SHAPES = 4  # programs at most; a lot of any other shape runs eagerly


@dataclasses.dataclass
class _Program:
    compilation: Compilation
    records: tuple[Tensor, ...]  # kept, so that no other tensors get their identity
    replay: Replay | None = None
    trusted: bool = False
    captures: bool | None = None
    calls: int = 0


class CompiledEngine:
    """Runs compiled programs where there are any, and the eager engine otherwise."""

    name = BookkeepingEngine.name

    def __init__(self, eager: BookkeepingEngine) -> None:
        self.eager = eager
        self.state = "eager, since nothing was compiled yet"
        self._programs: dict[Hashable, _Program] = {}
        self._asked, self._wait, self._refused = False, False, False
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
            result = self._eagerly(batch, mask)  # finds layouts and times the ways to each norm
            if len(self._programs) < _SHAPES:
                program = self._compile(form, batch, mask)
            if program is None or not program.compilation.ready:
                return result
        if program.compilation.failure is not None:
            self._refuse(program.compilation.failure)
        if not program.compilation.ready:
            return self._eagerly(batch, mask)
        program.calls += 1
        if not program.trusted or program.calls in _LOOKS or program.calls % _LOOKS[-1] == 0:
            return self._check(program, batch, mask)
        return self._run(program, batch, mask)

    def _eagerly(self, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        return self.eager(batch.gather() if isinstance(batch, Rows) else batch, mask)

    def _check(self, program: _Program, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """A program's first result must be the eager one, up to rounding, and some later ones.

        Numbers that the loss function reads from elsewhere are frozen in a program; where they change, it is given up.
        """
        before = generator_states()
        expected, norms = self._eagerly(batch, mask)
        drew = any(not torch.equal(*states) for states in zip(before, generator_states(), strict=True))
        sums, found = self._run(program, batch, mask)
        rough = program.compilation.trace.half_precision or operand_error(torch.float32, convolution=True) > _FINE
        tolerance = _ROUGH_TOLERANCE if rough else _TOLERANCE
        if drew:  # the two differ by chance, but no example adds more than its bound
            agree = _distance(sums, {}) <= self.eager.largest_norm * float(mask.sum()) * (1 + _TOLERANCE)
        else:
            agree = bool(torch.allclose(found[mask], norms[mask], rtol=tolerance, equal_nan=True))
            agree &= _distance(sums, expected) <= tolerance * _distance(expected, {})
        program.trusted = agree and bool(mask.any())
        if not agree:
            self._refuse("its result is not that of the eager step, so it depends on more than the batch and the model")
            self._programs.clear()
        return (sums, found) if agree else (expected, norms)

    def _compile(self, form: Hashable, batch: Batch, mask: Tensor) -> _Program | None:
        device = mask.device
        gathered = batch.gather() if isinstance(batch, Rows) else batch
        ways = self.eager.ways(gathered, count_examples(gathered))
        try:
            if len(ways) != 1:
                raise UnsupportedError("the model takes several ways through its code")
            if not can_compile(device):
                raise UnsupportedError(f"no compiler for {device.type}: install Triton for GPUs, g++ for the CPU")
            if isinstance(batch, Rows):
                batch = Rows(batch.tensors, batch.index.to(device))
            traced = trace(*self.eager.parts, ways[0], (batch, mask))
        except UnsupportedError as error:
            self._refuse(str(error))
            return None
        inputs = [*traced.staying(batch), *traced.moving(batch, mask)]
        records = batch.tensors if isinstance(batch, Rows) else ()
        program = _Program(Compilation(traced, inputs, wait=self._wait), records)
        self._programs[form] = program
        return program

    def _refuse(self, reason: str) -> None:
        self._refused = True
        self.state = f"eager, because it could not be compiled: {reason}"

    def _run(self, program: _Program, batch: Batch, mask: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        traced = program.compilation.trace
        staying, moving = traced.staying(batch), traced.moving(batch, mask)
        if mask.is_cuda and program.captures is None:
            program.captures = _seconds(program.compilation.program, [*staying, *moving]) < _WORTH_CAPTURING
        if program.captures:
            if program.replay is None or not program.replay.fits(staying):
                program.replay = None  # frees its memory before the next one takes as much
                program.replay = Replay(program.compilation.program, staying, moving)
            results = program.replay(moving, constant=mask if mask is self.full_mask else None)
        else:
            device = mask.device
            results = program.compilation.program([*staying, *(t.to(device, non_blocking=True) for t in moving)])
        self.state = "compiled, in one CUDA graph" if program.captures else "compiled"
        *sums, norms = results
        return dict(zip(traced.names, sums, strict=True)), norms

    def _form(self, batch: Batch, mask: Tensor) -> Hashable:
        kind = mask.device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        modes, bits = self.eager.settings(), operand_bits()
        if isinstance(batch, Rows):
            return len(mask), modes, tuple(id(tensor) for tensor in batch.tensors), autocast, bits
        layouts = tuple((leaf.shape, leaf.stride(), leaf.device) for leaf in leaves(batch))
        return len(mask), modes, form_of(batch, len(mask)), tuple(numbers_in(batch)), layouts, autocast, bits


def _seconds(program: Program, inputs: list[Tensor]) -> float:
    """One run of a program on the GPU, after one to warm up."""
    device = inputs[0].device
    inputs = [tensor.to(device) for tensor in inputs]
    program(list(inputs))
    torch.cuda.synchronize(device)
    started = time.perf_counter()
    program(list(inputs))
    torch.cuda.synchronize(device)
    return time.perf_counter() - started


def _distance(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> float:
    """The L2 distance of two sums; what is missing is zero."""
    parts = [torch.linalg.vector_norm(value - second.get(name, 0)) for name, value in first.items()]
    return float(torch.stack(parts).norm())
