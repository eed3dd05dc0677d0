"""How a step runs: engine, physical batch, compilation. None of it changes the distribution of the result."""

import dataclasses
import math
import os
import time

import torch
from torch import nn

from tacit.core.errors import InputError
from tacit.core.validation import check_choice, check_count
from tacit.gradients import ClippedGrad
from tacit.gradients.compiling import can_compile
from tacit.gradients.engines import ENGINES
from tacit.gradients.losses import trainable
from tacit.gradients.strategies import check_strategy
from tacit.mechanisms import StepNoise
from tacit.models.recurrence import PrivateRecurrent
from tacit.plan import DPSGD

_LARGEST_CHUNK = 1024
_IN_CACHE = 6 * 2**20 // 4  # float32 numbers that a processor's cache holds
_MULTIPLE = 8  # what matrix units like
_ROWS_A_THREAD = 256
_WORTH_CALLING = 5e8  # multiplications of one pass
_SPREADS = 4  # standard deviations of a lot's size that a chunk holds beyond the mean
_FIRST_TIMED, _LAST_TIMED = 3, 8
_WORTH_COMPILING = {"cuda": 30.0, "cpu": 90.0}  # seconds that the remaining steps would take


@dataclasses.dataclass(frozen=True)
class Execution:
    """Knobs that change speed and memory and never the distribution of the result.

    Attributes:
        engine: ``auto``, ``bookkeeping``, ``functional`` or ``reference``.
        chunk_size: how many examples are worked on at once. By default a whole lot on a GPU. On the CPU at most 1024,
            as many as keep per-example gradients within a quarter of the memory if all of them are written out, from
            eight on no more than keep those of convolutions, which mostly are, within a processor's cache, and of
            sequences as many as give every thread 256 tokens, from which on more take memory and save no time. Where
            memory runs out it is halved.
        pad_chunks: pads every chunk to ``chunk_size`` with masked examples, so that all have one shape; compiled
            steps always do.
        preflight: compares the engine with the reference on three examples before the first step.
        compile: ``True`` compiles the step before it is taken, ``False`` never; by default compilation starts in
            the background where the steps that remain would take minutes, and eager steps go on until it is done.
        strategy: the way to every layer's norm (``keep``, ``gram``, …) in place of the fastest one.
    """

    engine: str = "auto"
    chunk_size: int | None = None
    pad_chunks: bool = False
    preflight: bool = True
    compile: bool | None = None
    strategy: str | None = None

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, {*ENGINES, "auto"})
        if self.chunk_size is not None:
            check_count("chunk_size", self.chunk_size)
        check_strategy(self.strategy)
        if self.compile not in (True, False, None):
            raise InputError(f"compile={self.compile!r}: must be True, False or None, which waits until it pays.")


def first_chunk_size(execution: Execution, plan: DPSGD, model: nn.Module, tokens: int = 1) -> int:
    """The physical batch to try first: one that nearly every lot fits into, or an even part of it; by eights.

    From public quantities alone, since it is shown: ``tokens`` is how many an example has, which its shape tells.
    """
    if execution.chunk_size is not None:
        return execution.chunk_size
    mean = plan.sampler.expected_batch_size(plan.examples)
    largest = plan.sampler.largest_batch_size(plan.examples)
    size = min(largest, math.ceil(mean + _SPREADS * math.sqrt(mean)))
    if not next(iter(trainable(model).values())).is_cuda:
        size = math.ceil(size / math.ceil(size / _at_once_on_cpu(model, tokens)))
    return size if size < _MULTIPLE else min(largest, math.ceil(size / _MULTIPLE) * _MULTIPLE)


def _at_once_on_cpu(model: nn.Module, tokens: int) -> int:
    trained = sum(parameter.numel() for parameter in trainable(model).values())
    convolving = sum(
        parameter.numel()
        for module in model.modules()
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
        for parameter in module.parameters()
        if parameter.requires_grad
    )
    in_cache = max(1, _IN_CACHE // max(1, convolving) // _MULTIPLE) * _MULTIPLE
    return max(1, min(_LARGEST_CHUNK, _memory_numbers() // trained, in_cache, _enough_of_tokens(model, tokens)))


def _enough_of_tokens(model: nn.Module, tokens: int) -> int:
    """Examples from which on products of matrices get no faster with more rows, and calls take no time beside them.

    A recurrent layer takes its time steps one after the other, so that examples are the only rows it has.
    """
    if tokens == 1 or any(isinstance(module, PrivateRecurrent) for module in model.modules()):
        return _LARGEST_CHUNK
    weights = sum(parameter.numel() for parameter in model.parameters())
    return math.ceil(max(_ROWS_A_THREAD * torch.get_num_threads(), _WORTH_CALLING / weights) / tokens)


def _memory_numbers() -> int:
    """How many float32 numbers a quarter of this machine's memory holds."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 // 4


class CompileWatch:
    """Starts the compilation of a run's step where it will pay."""

    def __init__(self, execution: Execution, grad: ClippedGrad, noise: StepNoise, steps: int) -> None:
        self._grad, self._noise, self._steps = grad, noise, steps
        self._open = execution.compile is None
        self._started = 0.0
        if execution.compile:
            self._start(wait=True)

    def after_step(self, done: int) -> None:
        """Times a few early steps, and compares the rest of the run with what compiling costs."""
        if not self._open or done not in (_FIRST_TIMED, _LAST_TIMED):
            return
        device = next(self._grad.model.parameters()).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if done == _FIRST_TIMED:
            self._started = time.perf_counter()
            return
        self._open = False
        rest = (time.perf_counter() - self._started) / (_LAST_TIMED - _FIRST_TIMED) * (self._steps - done)
        if rest > _WORTH_COMPILING.get(device.type, math.inf):
            self._start(wait=False)

    def _start(self, *, wait: bool) -> None:
        self._grad.start_compiling(wait=wait)
        device = next(self._grad.model.parameters()).device
        if device.type == "cpu" and can_compile(device):
            self._noise.compile(wait=wait)
