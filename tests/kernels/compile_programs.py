"""Compile the GPU kernels for GPUs that are not here, and print what the compiler says of each as a line of JSON.

    python tests/kernels/compile_programs.py          # one representative shape for each property
    python tests/kernels/compile_programs.py 0 2      # every layer of both networks of the paper, first of two parts

The last line has the graph that ``torch.compile`` hands to its backend for a layer and its gradients on a GPU.
Run it in a process of its own with SLEEPCONV_KERNEL=triton, without Triton's interpreter: ``test_triton.py`` starts it
and checks the lines.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import torch
import triton
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sleepconv import kernels
from sleepconv.experiments.bench.roofline import RESNET18, RESNET20
from sleepconv.functional import locally_connected2d
from sleepconv.kernels import Geometry, programs
from sleepconv.kernels.triton import arguments

PASSES = ["forward", "input_gradient", "weight_gradient"]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
TARGETS = [80, 90, 100]
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def representative() -> Iterator[tuple]:
    """Every pass for every target, with each precision, number of channels and configuration at least once."""
    narrow, strided, stem = (16, 16, 3, 1, 32), (128, 256, 3, 2, 14), (3, 32, 7, 2, 224)
    yield from product(PASSES, [80], ["fp32"], [narrow], [0])
    yield from product(PASSES, [90], ["fp16"], [strided], [1])
    yield from product(PASSES, [100], ["bf16"], [stem], [3])
    yield ("forward", 80, "bf16", (64, 64, 3, 1, 8), 2)
    # These spill if the assembler is left alone.
    yield from [
        ("forward", 100, "fp32", (64, 128, 1, 2, 28), 0),
        ("weight_gradient", 80, "fp32", (256, 256, 3, 1, 7), 3),
    ]


def everything() -> Iterator[tuple]:
    shapes = dict.fromkeys([*RESNET20, *RESNET18])
    return product(PASSES, TARGETS, DTYPES, shapes, range(len(programs.configurations())))


def compiled(name: str, target: int, dtype: str, shape: tuple[int, ...], config: int) -> dict:
    """Compile one pass of a layer for one GPU with one configuration."""
    ins, outs, kernel, stride, side = shape
    out = (side - 1) // stride + 1
    geometry = Geometry(
        256, ins, outs, (side,) * 2, (out,) * 2, (kernel,) * 2, (stride,) * 2, (kernel // 2,) * 2, (1, 1), 1
    )
    chosen, program = programs.configurations()[config], getattr(programs, name).fn
    constants = arguments(geometry, ins if name == "input_gradient" else outs, DTYPES[dtype]) | chosen.kwargs
    strides = torch.empty(geometry.weight_shape, device="meta").flatten(-2).flatten(0, 1).stride()
    numbers = dict(zip(program.arg_names[3:9], (geometry.batch, 256, *strides), strict=True))
    source = as_source(program, f"*{dtype}", 3, numbers, constants)
    inner = {
        "forward": kernel**2 * ins,
        "input_gradient": (-(-kernel // stride)) ** 2 * outs,
        "weight_gradient": geometry.batch,
    }
    facts = {"shape": shape, "dtype": dtype, "pass": name, "config": config}
    return facts | {"blocks": inner[name] / constants["BLOCK_K"]} | report(source, target, chosen)


def as_source(program, pointer: str, pointers: int, numbers: dict[str, int], constants: dict) -> ASTSource:
    """Describe a call as Triton's own launcher does: numbers that are 1 or multiples of 16 are known to be so."""
    signature, attributes = {}, {}
    constants = constants | {name: 1 for name, value in numbers.items() if value == 1}
    for index, name in enumerate(program.arg_names):
        known = "constexpr" if name in constants else "i32"
        signature[name] = pointer if index < pointers else known
        if index < pointers or (known == "i32" and numbers[name] % 16 == 0):
            attributes[(index,)] = [["tt.divisibility", 16]]
    return ASTSource(program, signature, constants, attributes)


def report(source: ASTSource, target: int, config: triton.Config) -> dict:
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages, "maxnreg": config.maxnreg}
    binary = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    ptx = binary.asm["ptx"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(binary.asm["cubin"])
        command = [str(TOOLS / "cuobjdump"), "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True)
    registers, stack, _, local = map(
        int, re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", usage.stdout + usage.stderr).groups()
    )
    return {
        "target": target,
        "registers": registers,
        "spilled": stack + local,  # what does not fit into registers is kept on the stack, in local memory
        "shared": binary.metadata.shared,
        "tensor_cores": len(re.findall(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)", ptx)),
        "async_copies": len(re.findall(r"\bcp\.async\.c[ag]\.", ptx)),
    }


def compiled_sharing(target: int, dtype: str) -> dict:
    sizes = {"A0": 1, "A1": 56, "A2": 56, "G0": 1, "G1": 3, "G2": 3, "NEURONS": 16, "BLOCK": 256}
    source = as_source(programs.share, f"*{dtype}", 1, {"size": 32 * 32 * 9}, sizes)
    return {"pass": "share", "dtype": dtype} | report(source, target, triton.Config({}))


class A100:
    """All that PyTorch asks of Triton's driver to find out which arguments a program changes."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 80, 32)


def traced() -> str:
    """Trace a layer and its gradients.

    There is no GPU here, and PyTorch without CUDA cannot differentiate fake tensors on one: fake tensors on the CPU
    take the way of those on a GPU.
    """
    triton.runtime.driver.set_active(A100())
    kernels._check_runs_on = lambda name, tensor: None
    with FakeTensorMode():
        x = torch.empty(16, 8, 6, 6, requires_grad=True)
        weight = torch.empty(6, 6, 4, 8, 3, 3, requires_grad=True)
        joint = aot_export_joint_simple(
            lambda x, weight: (locally_connected2d(x, weight, padding=1, position_major=True),),
            (x, weight),
            trace_joint=True,
        )
    return str(joint.graph)


def main(part: str = "0", parts: str = "") -> None:
    cases = [*everything(), *product(TARGETS, DTYPES)] if parts else [*representative(), (80, "bf16"), (100, "fp32")]
    for case in cases[int(part) :: int(parts or 1)]:
        line = compiled_sharing(*case) if len(case) == 2 else compiled(*case)
        sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.write(json.dumps({"graph": traced()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
