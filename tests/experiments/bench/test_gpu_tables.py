"""The tables for GPUs: what is computed, and what would be measured, tried on the CPU."""

import pytest
import torch
from torch import nn

from sleepconv.cli import main
from sleepconv.experiments.bench import gpu, gpu_memory, roofline
from sleepconv.models import resnet18
from sleepconv.nn import to_locally_connected


def test_resnet18_has_the_shapes_of_the_roofline():
    convolutions = [m for m in resnet18(width=32).modules() if isinstance(m, nn.Conv2d)]
    shapes = {(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0]) for c in convolutions}
    assert shapes == {shape[:4] for shape in roofline.RESNET18}


@pytest.mark.parametrize("shape", [(64, 64, 3, 1, 8), (256, 256, 3, 1, 7)])
def test_arithmetic_takes_over_at_the_balanced_batch(shape):
    flops, bandwidth = roofline.GPUS["A100 (SXM, 80 GB)"]
    batch = roofline.balanced_batch(shape, flops, bandwidth)
    below, above = roofline.work(shape, int(0.9 * batch)), roofline.work(shape, int(1.1 * batch))
    assert below.flop / flops < below.bytes / bandwidth
    assert above.flop / flops > above.bytes / bandwidth


def test_the_work_of_a_layer_is_that_of_its_tensors():
    ins, outs, kernel, stride, side = shape = (16, 32, 3, 2, 32)
    layer = to_locally_connected(nn.Conv2d(ins, outs, kernel, stride, 1, bias=False), torch.zeros(1, ins, side, side))
    x = torch.zeros(4, ins, side, side)
    assert roofline.work(shape, 4).bytes == 3 * 2 * (x.numel() + layer(x).numel() + layer.weight.numel())


def test_no_layer_can_beat_its_convolution_and_the_page_says_that_it_is_computed():
    page = roofline.page()
    rows = [line.split("|")[5:8] for line in page.splitlines() if line.startswith(("| 1", "| 3"))]
    assert len(rows) >= 15
    assert all(float(ratio) >= 1 for row in rows for ratio in row)
    assert "not measured" in page


def test_the_checked_in_pages_are_the_computed_ones(pytestconfig):
    folder = pytestconfig.rootpath / "benchmarks"
    assert (folder / "roofline.md").read_text() == roofline.page()
    assert (folder / "gpu-memory.md").read_text() == gpu_memory.memory_sheet().markdown() + "\n"


def test_layers_are_measured_on_a_device_in_both_precisions():
    record = gpu.run("cpu", batches=[2], shapes=[(3, 4, 3, 1, 6)], rounds=1)
    assert [row["precision"] for row in record["layers"]] == ["bfloat16", "TF32"]
    for row in record["layers"]:
        assert row["seconds"].keys() == {"sleepconv", "convolution", "unfold + einsum", "batched"}
        assert all(seconds > 0 for seconds in row["seconds"].values())
    assert "geometric mean" in gpu.as_sheet(record).text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_one_clear_error(capsys):
    assert main(["bench", "--device", "cuda"]) != 0
    assert "finds no GPU" in capsys.readouterr().err


def test_memory_is_that_of_real_tensors():
    with torch.device("meta"):
        model = to_locally_connected(nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU()), torch.empty(2, 2, 9, 9))
        images = torch.empty(5, 2, 9, 9)
    weights = 9 * 9 * 4 * 2 * 9 + model[0].bias.numel()
    kept = 5 * 2 * 81 + 5 * 4 * 81  # the layer keeps its input, ReLU its output
    assert gpu_memory.training_memory(model, images) == gpu_memory.Memory(
        4 * weights, 4 * weights, 8 * weights, 4 * kept
    )
    half = gpu_memory.training_memory(model, images, autocast=True, moment_bytes=2)
    assert half.moments == 4 * weights
    assert half.activations == 2 * (kept + 9 * 9 * 4 * 2 * 9)  # and the weights in bfloat16
    shared = gpu_memory.training_memory(model, images, shared=True)
    assert shared.moments == 8 * (9 * 4 * 2 * 9 + model[0].bias.numel())


def test_blocks_that_are_computed_again_keep_only_what_they_get():
    with torch.device("meta"):
        blocks = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)) for _ in "abc"]
        model, images = nn.Sequential(*blocks), torch.empty(5, 4, 9, 9)
    image = 4 * 5 * 4 * 81
    assert gpu_memory.training_memory(model, images).activations == 6 * image
    assert gpu_memory.training_memory(model, images, blocks=blocks).activations == (3 + 1) * image
