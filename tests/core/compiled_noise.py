"""Compiles the noise kernel for GPUs, in a process of its own where no interpreter is on, and saves the assembly.

The interpreter accepts what the compiler refuses, and Triton's compiler needs no GPU. Called as
``python compiled_noise.py OUT.json``; the keys are ``capability pointer count``.
"""

import itertools
import json
import sys
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget

from tacit.core.kernels.chacha_normal import _add_normal_kernel

CAPABILITIES = (80, 90)
KINDS = (("*fp32", "i32"), ("*bf16", "i64"))


def _assembly(capability: int, pointer: str, count: str) -> str:
    words = dict.fromkeys(("nonce0", "nonce1", "nonce2"), "i32")
    signature = {"values": pointer, "count": count, "scale": "fp32", "key": "*i32", **words}
    source = triton.compiler.ASTSource(fn=_add_normal_kernel, signature=signature, constexprs={})
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4}).asm["ptx"]


def main(out_file: str) -> None:
    cases = [(capability, *kind) for capability, kind in itertools.product(CAPABILITIES, KINDS)]
    Path(out_file).write_text(json.dumps({" ".join(map(str, case)): _assembly(*case) for case in cases}))


if __name__ == "__main__":
    main(*sys.argv[1:])
