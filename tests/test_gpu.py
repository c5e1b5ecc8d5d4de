"""What only a GPU can show; ``make test-gpu`` runs it there. Everywhere else these tests are skipped."""

import pytest
import torch
import torch.nn.functional as F

import sleepconv
from sleepconv.functional import lateral_grids, share_weights_
from sleepconv.kernels import KERNELS, Geometry, kernel_for, triton

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
GEOMETRIES = {
    "ResNet20": Geometry(64, 16, 16, (32, 32), (32, 32), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    "strided": Geometry(33, 128, 256, (14, 14), (7, 7), (3, 3), (2, 2), (1, 1), (1, 1), 1),
    "stem": Geometry(8, 3, 32, (56, 56), (28, 28), (7, 7), (2, 2), (3, 3), (1, 1), 1),
    "groups and dilation": Geometry(5, 6, 18, (9, 7), (9, 7), (3, 3), (1, 1), (2, 2), (2, 2), 2),
    "sequence": Geometry(7, 9, 8, (21,), (11,), (5,), (2,), (2,), (1,), 1),
    "volume": Geometry(4, 8, 16, (5, 6, 4), (5, 3, 4), (3, 2, 3), (1, 2, 1), (1, 0, 1), (1, 1, 1), 1),
    "depthwise": Geometry(16, 96, 96, (16, 16), (16, 16), (7, 7), (1, 1), (3, 3), (1, 1), 96),
}


@pytest.fixture(autouse=True)
def exact_float32(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def local_network():
    """ResNet20 without sharing, on the GPU."""
    return sleepconv.to_locally_connected(sleepconv.models.resnet20(), torch.zeros(2, 3, 32, 32)).cuda()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_triton_computes_what_plain_pytorch_computes_in_float64(geometry, dtype):
    shapes = (geometry.x_shape, geometry.weight_shape, geometry.y_shape)
    x, weight, grad = (torch.randn(shape, device="cuda").to(dtype) for shape in shapes)
    for name, operands in {
        "forward": (x, weight),
        "input_gradient": (grad, weight),
        "weight_gradient": (x, grad),
    }.items():
        ours = getattr(triton, name)(*operands, geometry)
        exact = getattr(KERNELS["batched"], name)(*[t.double() for t in operands], geometry)
        tolerance = 30 * torch.finfo(dtype).eps
        torch.testing.assert_close(ours.double(), exact, rtol=tolerance, atol=tolerance * exact.abs().max().item())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_triton_shares_as_the_cpu_does(dtype):
    grids, weight = lateral_grids((9, 7), 3), torch.randn(9, 7, 16, 5, 3, 3).to(dtype)
    on_gpu = share_weights_(weight.cuda(), grids)
    torch.testing.assert_close(on_gpu.cpu(), share_weights_(weight, grids), rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_triton_is_chosen():
    assert kernel_for(torch.zeros(1, device="cuda")) is triton


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_compiled_network_has_the_gradients_of_the_plain_one(dtype):
    torch.manual_seed(0)
    model, images = local_network().eval(), torch.randn(16, 3, 32, 32, device="cuda")
    gradients = []
    for run in (model, torch.compile(model)):
        model.zero_grad()
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            run(images).square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=0.1, atol=30 * torch.finfo(dtype).eps)


def test_a_sleeping_step_does_not_wait_for_the_gpu():
    model = local_network()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    sleepconv.Sleep(model, every=1).attach(optimizer)
    images, labels = torch.randn(16, 3, 32, 32, device="cuda"), torch.zeros(16, dtype=torch.int64, device="cuda")

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()  # compiles and tunes
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_step_can_be_captured_as_a_cuda_graph():
    model = local_network()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    sleep = sleepconv.Sleep(model, every=1)
    images, labels = torch.randn(16, 3, 32, 32, device="cuda"), torch.zeros(16, dtype=torch.int64, device="cuda")

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        sleep.step()
        return loss

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            first = step().item()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for _ in range(10):
        graph.replay()
    assert loss.item() < first
    assert all(snr > 1e6 for snr in sleep.snrs().values())
