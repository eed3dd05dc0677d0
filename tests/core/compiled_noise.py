"""Compiles the noise kernel for GPUs, in a process of its own where no interpreter is on, and saves the assembly.

The interpreter accepts what the compiler refuses, and Triton's compiler needs no GPU. Called as
``python compiled_noise.py OUT.json``; the keys are ``capability pointer count``, or ``capability many`` for
the kernel that serves many tensors, ``capability many rows`` where it takes sums too, with ``fast`` behind them where
the words are Philox's.
"""

import json
import sys
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from tacit.core.kernels.chacha_normal import _add_normal_kernel, _add_normals_kernel

KINDS = (("*fp32", "i32"), ("*bf16", "i64"))
# Capability, whether the words are Philox's, kinds of tensors, and rows of sums that the kernel for many takes.
MODES = ((80, False, KINDS[:1], (16,)), (90, False, KINDS, (0, 16)), (90, True, KINDS[:1], (0, 16)))


def _assembly(fast: bool, capability: int, pointer: str, count: str) -> str:
    words = dict.fromkeys(("nonce0", "nonce1", "nonce2"), "i32")
    signature = {"values": pointer, "count": count, "scale": "fp32", "key": "*i32", **words}
    return _compiled(_add_normal_kernel, signature, capability, fast)


def _assembly_for_many(fast: bool, capability: int, rows: int = 0) -> str:
    signature = {"table": "*i64", "owners": "*i32", "scale": "fp32", "divisor": "fp32", "key": "*i32"}
    return _compiled(_add_normals_kernel, signature, capability, fast, row_count=rows, row_type=tl.bfloat16, unit=1)


def _compiled(kernel: Any, signature: dict[str, str], capability: int, fast: bool, **others: Any) -> str:
    constants = {"fast": fast, **others}
    signature = {**signature, **dict.fromkeys(constants, "constexpr")}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4}).asm["ptx"]


def main(out_file: str) -> None:
    found = {}
    for capability, fast, kinds, many in MODES:
        mode = " fast" if fast else ""
        found |= {f"{capability} {' '.join(kind)}{mode}": _assembly(fast, capability, *kind) for kind in kinds}
        for rows in many:
            name = f"{capability} many{' rows' if rows else ''}{mode}"
            found[name] = _assembly_for_many(fast, capability, rows=rows)
    Path(out_file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
