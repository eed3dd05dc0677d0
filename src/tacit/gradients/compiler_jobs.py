"""What a compiler is asked to do, complete, so that it may be another process that does it."""

import contextlib
import dataclasses
import hashlib
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.fx import GraphModule

# Of products on a GPU; a version of torch may lack some of them. The compiler's cache knows programs by them.
_PRODUCTS = ("fp32_precision", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")

Layout = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]


@dataclasses.dataclass(frozen=True)
class CompilerSettings:
    """Settings of torch that programs depend on."""

    threads: int
    precision: str
    products: tuple[tuple[str, Any], ...]
    deterministic: bool

    @classmethod
    def now(cls) -> Self:
        """Those of this process."""
        return cls(
            torch.get_num_threads(),
            torch.get_float32_matmul_precision(),
            tuple((name, value) for name in _PRODUCTS if (value := _of_products(name)) is not None),
            torch.are_deterministic_algorithms_enabled(),
        )

    def apply(self) -> None:
        """Makes them those of this process."""
        torch.set_num_threads(self.threads)
        torch.set_float32_matmul_precision(self.precision)
        for name, value in self.products:
            setattr(torch.backends.cuda.matmul, name, value)
        torch.use_deterministic_algorithms(self.deterministic)


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
        """The same for jobs with the same machine code."""
        facts = (self.graph.code, self.layouts, self.options, self.settings)
        digest = hashlib.sha256(repr((facts, torch.__version__, torch.version.git_version, _processor())).encode())
        for name, value in self.graph.named_buffers():
            digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
            digest.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
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


def _of_products(name: str) -> Any:
    with contextlib.suppress(AttributeError, RuntimeError):  # unknown to this torch, or told by two that disagree
        return getattr(torch.backends.cuda.matmul, name)
    return None


def _processor() -> str:
    """What machine code is made for."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return platform.machine() + line
    return platform.machine() + platform.processor()
