"""What a compiler is asked to do, complete, so that it may be another process that does it."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import itertools
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
import torch.utils.deterministic
from torch import Tensor
from torch.fx import GraphModule

# How products are taken; a version of torch may lack some of these. The compiler's cache knows programs by them.
_PRODUCTS = (
    ("cuda", "fp32_precision"),
    ("cuda", "allow_fp16_reduced_precision_reduction"),
    ("cuda", "allow_bf16_reduced_precision_reduction"),
    ("mkldnn", "fp32_precision"),
)

_FILLS: Any = torch.utils.deterministic  # a module with a property

Layout = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]


@dataclasses.dataclass(frozen=True)
class CompilerSettings:
    """Settings of torch that programs depend on."""

    threads: int
    default_dtype: torch.dtype
    precision: str | None
    products: tuple[tuple[str, str, Any], ...]
    deterministic: bool
    deterministic_warns: bool
    deterministic_fills: bool

    @classmethod
    def now(cls) -> Self:
        """Those of this process."""
        return cls(
            torch.get_num_threads(),
            torch.get_default_dtype(),
            _if_told(torch.get_float32_matmul_precision),
            tuple(
                (backend, name, value)
                for backend, name in _PRODUCTS
                if (value := _if_told(functools.partial(getattr, _matmul(backend), name))) is not None
            ),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            bool(_FILLS.fill_uninitialized_memory),
        )

    def apply(self) -> None:
        """Makes them those of this process."""
        torch.set_num_threads(self.threads)
        torch.set_default_dtype(self.default_dtype)
        if self.precision is not None:
            torch.set_float32_matmul_precision(self.precision)
        for backend, name, value in self.products:
            setattr(_matmul(backend), name, value)
        torch.use_deterministic_algorithms(self.deterministic, warn_only=self.deterministic_warns)
        _FILLS.fill_uninitialized_memory = self.deterministic_fills


def _matmul(backend: str) -> Any:
    return getattr(getattr(torch.backends, backend), "matmul", None)


def _if_told(ask: Callable[[], Any]) -> Any:
    """What a setting says; None where this torch does not know it, or where two settings disagree about it."""
    with contextlib.suppress(AttributeError, RuntimeError):
        return ask()
    return None


@dataclasses.dataclass(frozen=True)
class Job:
    """A graph, the layouts of its arguments, and all that decides about its machine code."""

    graph: GraphModule
    layouts: tuple[Layout, ...]
    options: dict[str, Any]
    settings: CompilerSettings

    @classmethod
    def of(cls, graph: GraphModule, inputs: Sequence[Tensor], options: dict[str, Any]) -> Self:
        """The job for these arguments, with the settings of this process."""
        layouts = tuple((tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in inputs)
        return cls(graph, layouts, options, CompilerSettings.now())

    @property
    def device(self) -> torch.device:
        """Where the program runs."""
        return self.layouts[0][-1]

    def key(self) -> str:
        """The same for jobs with the same machine code; the values of tensors in the graph are part of that."""
        versions = (_own_code(), torch.__version__, torch.version.git_version)
        facts = (self.graph.code, self.layouts, self.options, self.settings, versions, _processor())
        digest = hashlib.sha256(repr(facts).encode())
        for name, value in itertools.chain(self.graph.named_parameters(), self.graph.named_buffers()):
            digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:32]

    def compile(self) -> Callable[..., Sequence[Tensor]]:
        """The program, by inductor in this process, or from its cache on disk.

        Inductor keeps a whole program only where there is a record of shapes, which stand-ins for the arguments bring.
        """
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()):
            stand_ins: list[Any] = [
                torch.empty_strided(shape, stride, dtype=dtype, device=device)
                for shape, stride, dtype, device in self.layouts
            ]
        with torch.no_grad():
            program: Callable[..., Sequence[Tensor]] = torch._inductor.compile(self.graph, stand_ins, self.options)
        return program


@functools.cache
def _own_code() -> str:
    """What decides here about a graph on its way to machine code: this room's files, or where there are none to read,
    the version that they came with.
    """
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # run from its source
        digest.update(importlib.metadata.version("tacit").encode())
    return digest.hexdigest()


def _processor() -> str:
    """What machine code is made for."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return platform.machine() + line
    return platform.machine() + platform.processor()
