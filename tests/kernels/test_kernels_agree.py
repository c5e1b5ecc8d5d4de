"""Every kernel computes what the reference computes: values, all gradients, and sharing on grids."""

from dataclasses import replace
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sleepconv.functional import lateral_grids, leave_border_alone, share_weights_
from sleepconv.kernels import KERNELS, Geometry, native, triton, use_kernel
from sleepconv.kernels.native import InstructionSet

HERE = [name for name in KERNELS if name != "triton" or not triton.unavailable()]
FAST_KERNELS = [name for name in HERE if name != "reference"]
NEEDS_TRITON = pytest.mark.skipif(triton.unavailable() is not None, reason="needs Triton")
# Triton's programs compute in float32; its interpreter takes about a hundredth of a second for each.
PRECISE_KERNELS = ["batched", "native"]
TOLERANCES = {torch.float32: {"rtol": 1e-5, "atol": 1e-4}, torch.float64: {}}


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    axes = draw(st.integers(1, 3))

    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(axes))

    groups = draw(st.integers(1, 3))
    kernel, stride, dilation = sizes(1, 4), sizes(1, 3), sizes(1, 2)
    padding = tuple(draw(st.integers(0, k)) for k in kernel)
    output = sizes(1, 4)
    # Any input that these outputs can look at, from just one pixel to more than they reach.
    reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(output, stride, kernel, dilation, strict=True)]
    inputs = tuple(max(1, r - p - draw(st.integers(-2, p))) for r, p in zip(reach, padding, strict=True))
    channels = draw(st.sampled_from([(1, 1), (3, 5), (4, 16), (9, 8), (17, 33)]))
    batch = draw(st.sampled_from([1, 2, 7, 13]))
    return Geometry(
        batch,
        channels[0] * groups,
        channels[1] * groups,
        inputs,
        output,
        kernel,
        stride,
        padding,
        dilation,
        groups,
    )


def passes(kernel_name, x, weight, grad, geometry):
    kernel = KERNELS[kernel_name]
    return (
        kernel.forward(x, weight, geometry),
        kernel.input_gradient(grad, weight, geometry),
        kernel.weight_gradient(x, grad, geometry),
    )


def random_operands(geometry, dtype=torch.float64):
    return (torch.randn(shape, dtype=dtype) for shape in (geometry.x_shape, geometry.weight_shape, geometry.y_shape))


@pytest.mark.parametrize("kernel", PRECISE_KERNELS)
@settings(max_examples=60, deadline=None)
@given(geometry=geometries())
def test_every_kernel_computes_what_the_loop_computes(kernel, geometry):
    operands = list(random_operands(geometry))
    for ours, expected in zip(
        passes(kernel, *operands, geometry), passes("reference", *operands, geometry), strict=True
    ):
        torch.testing.assert_close(ours, expected)


def programs(g):
    """How many programs the three passes run."""
    return g.groups * (2 * g.positions + prod(g.input_size))


def assert_triton_agrees(dtype, geometry):
    operands = [t.to(dtype) for t in random_operands(geometry)]
    expected = passes("reference", *[t.double() for t in operands], geometry)
    for ours, exact in zip(passes("triton", *operands, geometry), expected, strict=True):
        assert ours.dtype == dtype
        assert_close_in(dtype, ours, exact)


# bfloat16 is only compiled for (test_triton.py): Triton's interpreter multiplies it wrongly.
@NEEDS_TRITON
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@settings(max_examples=20, deadline=None)
@given(geometry=geometries().filter(lambda g: programs(g) <= 60))
def test_the_gpu_programs_compute_what_the_loop_computes(dtype, geometry):
    assert_triton_agrees(dtype, geometry)


@NEEDS_TRITON
@pytest.mark.parametrize("channels", [(256, 3), (3, 256)])
def test_the_gpu_programs_take_many_channels_tap_by_tap(channels):
    assert_triton_agrees(torch.float32, Geometry(3, *channels, (3, 3), (2, 2), (3, 2), (2, 1), (1, 0), (1, 1), 1))


@NEEDS_TRITON
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@settings(max_examples=60, deadline=None)
@given(geometry=geometries())
def test_the_gpu_programs_compute_what_the_loop_computes_at_any_size(sweep, dtype, geometry):
    assert_triton_agrees(dtype, geometry)


@pytest.fixture(scope="module", autouse=True)
def quick_interpreter():
    """Triton's interpreter without its checks for overflow, which take a third of its time."""
    if triton.unavailable():
        yield
        return
    from triton.runtime.interpreter import interpreter_builder as interpreter

    before, interpreter.options = interpreter.options, replace(interpreter.options, sanitize_overflow=False)
    yield
    interpreter.options = before


@pytest.fixture(scope="session")
def sweep(pytestconfig):
    if not pytestconfig.getoption("--sweep"):
        pytest.skip("takes minutes; --sweep runs it")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kernel", PRECISE_KERNELS)
def test_lower_precisions_agree_with_the_loop_in_float64(kernel, dtype):
    geometry = Geometry(5, 6, 18, (5, 7), (5, 7), (3, 3), (1, 1), (1, 1), (1, 1), 2)
    operands = [t.to(dtype) for t in random_operands(geometry)]
    expected = passes("reference", *[t.double() for t in operands], geometry)
    for ours, exact in zip(passes(kernel, *operands, geometry), expected, strict=True):
        assert ours.dtype == dtype
        assert_close_in(dtype, ours, exact)


def assert_close_in(dtype, ours, exact):
    tolerance = 30 * torch.finfo(dtype).eps
    torch.testing.assert_close(ours.double(), exact, rtol=tolerance, atol=tolerance * exact.abs().max().item())


@pytest.mark.parametrize("instruction_set", [s for s in InstructionSet if s <= native.instruction_set()])
@pytest.mark.parametrize("batch", [1, 3, 31, 130])
@pytest.mark.parametrize("channels", [(1, 1), (3, 16), (16, 7), (40, 24)])
def test_every_instruction_set_handles_sizes_that_no_vector_divides(monkeypatch, instruction_set, batch, channels):
    monkeypatch.setattr(native, "instruction_set", lambda: instruction_set)
    geometry = Geometry(batch, *channels, (4, 5), (4, 3), (3, 3), (1, 2), (1, 1), (1, 1), 1)
    for dtype in (torch.float32, torch.float64):
        operands = list(random_operands(geometry, dtype))
        expected = passes("batched", *[t.double() for t in operands], geometry)
        for ours, exact in zip(passes("native", *operands, geometry), expected, strict=True):
            torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("instruction_set", [s for s in InstructionSet if s <= native.instruction_set()])
@pytest.mark.parametrize("batch", [16, 28, 48])
def test_small_batches_of_wide_layers_agree_with_batched(monkeypatch, instruction_set, batch):
    monkeypatch.setattr(native, "instruction_set", lambda: instruction_set)
    for groups, kernel, stride in [(1, (3, 3), (1, 2)), (2, (1, 2), (1, 1))]:
        output = tuple((5 + 2 - k) // s + 1 for k, s in zip(kernel, stride, strict=True))
        geometry = Geometry(batch, 40, 34, (5, 5), output, kernel, stride, (1, 1), (1, 1), groups)
        operands = list(random_operands(geometry))
        for ours, exact in zip(
            passes("native", *operands, geometry), passes("batched", *operands, geometry), strict=True
        ):
            torch.testing.assert_close(ours, exact)


@pytest.mark.parametrize("instruction_set", [s for s in InstructionSet if s <= native.instruction_set()])
@pytest.mark.parametrize("channels", [16, 19, 33])
@pytest.mark.parametrize("batch", [1, 17])
def test_depthwise_layers_agree_with_batched(monkeypatch, instruction_set, channels, batch):
    monkeypatch.setattr(native, "instruction_set", lambda: instruction_set)
    for sizes in [
        ((9, 9), (9, 9), (7, 7), (1, 1), (3, 3), (1, 1)),
        ((9, 7), (4, 4), (3, 2), (2, 2), (0, 1), (1, 1)),
        ((2, 6, 5), (2, 4, 3), (1, 2, 2), (1, 1, 1), (0, 0, 0), (1, 2, 2)),
    ]:
        for dtype in (torch.float32, torch.float64):
            geometry = Geometry(batch, channels, channels, *sizes, channels)
            operands = list(random_operands(geometry, dtype))
            expected = passes("batched", *[t.double() for t in operands], geometry)
            for ours, exact in zip(passes("native", *operands, geometry), expected, strict=True):
                torch.testing.assert_close(ours.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 20])
@pytest.mark.parametrize("batch", [32, 37])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (9, 4)])
def test_native_results_do_not_depend_on_the_thread_count(size, batch, groups):
    geometry = Geometry(batch, 20, 40 // min(groups, 2), size, size, (3, 3), (1, 1), (1, 1), (1, 1), groups)
    operands = list(random_operands(geometry, torch.float32))
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(passes("native", *operands, geometry))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        for ours, expected in zip(other, results[0], strict=True):
            assert torch.equal(ours, expected)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "sliced", "expanded"])
@pytest.mark.parametrize("kernel", FAST_KERNELS)
def test_any_memory_layout_of_the_input_gives_the_same_result(kernel, layout):
    geometry = Geometry(6, 5, 7, (6, 4), (6, 4), (3, 3), (1, 1), (1, 1), (1, 1), 1)
    x, weight, grad = random_operands(geometry, torch.float32 if kernel == "triton" else torch.float64)
    if layout == "channels_last":
        x, grad = (t.to(memory_format=torch.channels_last) for t in (x, grad))
    elif layout == "sliced":
        x, grad = (torch.randn(12, *t.shape[1:], 2, dtype=t.dtype)[::2, ..., 1] for t in (x, grad))
        weight = torch.randn(*weight.shape[:2], *reversed(weight.shape[2:]), dtype=x.dtype).permute(0, 1, 5, 4, 3, 2)
    elif layout == "expanded":
        grad = torch.randn(7, 1, 1, dtype=grad.dtype).expand_as(grad)
    for ours, expected in zip(
        passes(kernel, x, weight, grad, geometry), passes("reference", x, weight, grad, geometry), strict=True
    ):
        torch.testing.assert_close(ours, expected, **TOLERANCES[x.dtype])


SHARED_GRIDS = {
    "sequence": lateral_grids((7,), 3),
    "image": lateral_grids((7, 5), 3),
    "strided image": lateral_grids((9, 4), (3, 2), stride=2),
    "volume": lateral_grids((3, 5, 4), 2),
    "tokens": torch.zeros(11, dtype=torch.int64),
    "lone neurons": lateral_grids((1, 5), 3),
    "border left out": leave_border_alone(lateral_grids((9, 7), 3), (slice(1, 8), slice(1, 6))),
    "no lattice": torch.tensor([[5, 2, 2], [2, 5, 5]]),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("grids", SHARED_GRIDS.values(), ids=SHARED_GRIDS)
@pytest.mark.parametrize("kernel", FAST_KERNELS)
def test_every_kernel_shares_as_the_loop_in_float64_does(kernel, grids, dtype):
    for filters in [(), (1,), (5, 3, 3), (4099,)]:
        weight = torch.randn(*grids.shape, *filters, dtype=torch.float64).to(dtype)
        exact = weight.double()
        KERNELS["reference"].share_(exact, grids)
        KERNELS[kernel].share_(weight, grids)
        torch.testing.assert_close(weight.double(), exact, rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("kernel", HERE)
def test_any_memory_layout_of_the_weight_is_shared_in_place(kernel):
    grids = lateral_grids((6, 5), 2)
    memory = torch.randn(4, 12, 5)
    weight = memory.permute(1, 2, 0)[::2]
    expected, rest = weight.clone(), memory[:, 1::2].clone()
    KERNELS["reference"].share_(expected, grids)
    KERNELS[kernel].share_(weight, grids)
    torch.testing.assert_close(weight, expected)
    assert torch.equal(memory[:, 1::2], rest)
    assert weight._version > 0


@pytest.mark.parametrize("kernel", HERE)
def test_the_chosen_kernel_shares(kernel, monkeypatch):
    called = []
    for name, module in KERNELS.items():
        monkeypatch.setattr(module, "share_", lambda weight, grids, name=name: called.append(name))
    with use_kernel(kernel):
        share_weights_(torch.randn(6, 6, 2), lateral_grids((6, 6), 3))
    assert called == [kernel]
