"""The Triton kernel: where it is chosen, and what the compiler makes of it for GPUs that are not here."""

import json
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from sleepconv import kernels
from sleepconv.functional import lateral_grids, locally_connected2d
from sleepconv.kernels import batched, kernel_for, native, triton, use_kernel

pytest.importorskip("triton")
HERE = Path(__file__).parent
SHARED_MEMORY = {80: 166_912, 90: 232_448, 100: 232_448}  # bytes that one program can have, of NVIDIA's tables


class OnGPU:
    """All that ``kernel_for`` asks of a tensor."""

    device = torch.device("cuda")


def run_without_interpreter(*command: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, *command],
        env=os.environ | {"TRITON_INTERPRET": "0"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def outputs(tmp_path_factory, pytestconfig):
    """What the compiler reports of a few programs, or with --sweep of all; and last, what PyTorch's traces."""
    cores, cache = os.cpu_count() or 1, str(tmp_path_factory.mktemp("triton"))
    parts = [[str(n), str(cores)] for n in range(cores)] if pytestconfig.getoption("--sweep") else [[]]

    def lines(part: list[str]) -> list[str]:
        command = [str(HERE / "compile_programs.py"), *part]
        return run_without_interpreter(*command, TRITON_CACHE_DIR=cache, SLEEPCONV_KERNEL="triton").splitlines()

    with ThreadPoolExecutor(cores) as threads:
        return [json.loads(line) for part in threads.map(lines, parts) for line in part]


@pytest.fixture(scope="module")
def compiled(outputs):
    return [line for line in outputs if "pass" in line]


def test_every_program_compiles_for_every_target_without_spills(compiled):
    passes = {(line["pass"], line["target"]) for line in compiled if line["pass"] != "share"}
    assert passes == {(p, t) for p in ("forward", "input_gradient", "weight_gradient") for t in SHARED_MEMORY}
    assert [line for line in compiled if line["spilled"]] == []


def test_every_product_runs_on_tensor_cores(compiled):
    assert [line for line in compiled if line["pass"] != "share" and not line["tensor_cores"]] == []


def test_operands_are_copied_to_shared_memory_while_others_are_multiplied(compiled):
    # Not where there is only one block; and three channels in half precision do not fill the four bytes of such a copy.
    passes = [line for line in compiled if line["pass"] != "share" and line["blocks"] > 1 and line["shape"][0] > 3]
    assert passes
    assert [line for line in passes if not line["async_copies"]] == []


def test_shared_memory_stays_within_the_limit_of_the_target(compiled):
    assert [line for line in compiled if line["shared"] > SHARED_MEMORY[line["target"]]] == []


def test_compilation_traces_through_the_operators_into_the_programs(outputs):
    graph = outputs[-1]["graph"]
    assert graph.count("triton_kernel_wrapper_functional](") == 3  # forward and two gradients
    assert "sleepconv" not in graph  # no operator is left that the compiler cannot look into
    for output in ("y", "dx", "dw"):  # each program changes only what it computes
        assert f"tensors_to_clone: [{output}]" in graph


def test_triton_is_chosen_on_gpus():
    assert kernel_for(OnGPU()) is triton


def test_without_triton_a_gpu_falls_back_to_batched_and_says_so_once(monkeypatch):
    monkeypatch.setattr(triton, "unavailable", lambda: "Triton is not installed")
    monkeypatch.setattr(kernels, "_warned", set())
    with pytest.warns(RuntimeWarning, match="falls back to plain PyTorch.*Triton is not installed"):
        assert kernel_for(OnGPU()) is batched
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel_for(OnGPU()) is batched


def test_the_choice_of_a_user_overrides_on_gpus_and_on_the_cpu():
    with use_kernel("batched"):
        assert kernel_for(OnGPU()) is batched
    with use_kernel("triton"):
        assert kernel_for(torch.zeros(1)) is triton  # in the interpreter
    assert kernel_for(torch.zeros(1)) is native


def test_cpu_tensors_are_refused_without_the_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    with use_kernel("triton"), pytest.raises(ValueError, match="runs on NVIDIA and AMD GPUs only, got a tensor on cpu"):
        kernel_for(torch.zeros(1))


def test_gradients_flow_through_a_layer_that_triton_computes():
    x, weight = torch.randn(3, 4, 3, 3, requires_grad=True), torch.randn(3, 3, 5, 4, 3, 3, requires_grad=True)
    expected = torch.autograd.grad(locally_connected2d(x, weight, padding=1).square().sum(), (x, weight))
    with use_kernel("triton"):
        ours = torch.autograd.grad(locally_connected2d(x, weight, padding=1).square().sum(), (x, weight))
    for mine, exact in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-5, atol=1e-3)


def test_the_interpreter_leaves_products_in_bfloat16_to_batched():
    x, weight = torch.randn(2, 3, 4, 4).bfloat16(), torch.randn(4, 4, 2, 3, 3, 3).bfloat16()
    results = []
    for kernel in ("triton", "batched"):
        with use_kernel(kernel):
            results.append(locally_connected2d(x, weight, padding=1))
    assert torch.equal(*results)


def test_sharing_on_a_lattice_needs_no_tensor_of_indices(monkeypatch):
    monkeypatch.setattr(batched, "share_", lambda *_: pytest.fail("left to batched"))
    triton.share_(torch.randn(6, 5, 4), lateral_grids((6, 5), 3))
