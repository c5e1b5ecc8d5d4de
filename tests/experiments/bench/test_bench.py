"""The benchmark measures what it says, on small shapes."""

import json
from pathlib import Path

import torch
from torch import nn

from sleepconv.experiments.bench import measure, peers
from sleepconv.experiments.bench import speeds as report
from sleepconv.models import resnet8, resnet20
from sleepconv.nn import to_locally_connected


def test_unfold_and_einsum_compute_what_the_layer_computes():
    layer = peers.layer_of_shape((3, 4, 3, 2, 7))
    x = torch.randn(2, 3, 7, 7)
    torch.testing.assert_close(peers.UnfoldEinsum2d(layer)(x), layer(x))


def test_the_unfolding_network_computes_what_ours_computes():
    local = to_locally_connected(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False)), torch.zeros(1, 3, 6, 6))
    x = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(peers.unfold_network(local)(x), local(x))


def test_the_passes_of_a_slept_layer_compute_the_same(monkeypatch):
    outputs = []
    monkeypatch.setattr(peers, "_inference_step", lambda layer, x: outputs.append(layer(x).detach()))
    peers.inference_steps(peers.layer_of_shape((3, 4, 3, 1, 7)), 2)
    local, on_grids, exported, _ = outputs
    torch.testing.assert_close(on_grids, local)
    torch.testing.assert_close(exported, local)


def test_a_race_times_every_contender():
    seconds = measure.race({"a": lambda: None, "b": lambda: torch.randn(100)}, rounds=2)
    assert seconds.keys() == {"a", "b"}
    assert all(0 < value < 1 for value in seconds.values())


def test_a_layers_memory_grows_with_its_batch():
    small, large = (measure.layer_memory((16, 16, 3, 1, 16), batch) for batch in (16, 512))
    assert large > small + 3 * 4 * 16 * 16**2 * 496 / 1e9


def test_resnet20_has_the_shapes_that_are_measured():
    convolutions = [m for m in resnet20().modules() if isinstance(m, nn.Conv2d)]
    shapes = {(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0]) for c in convolutions}
    assert shapes == {shape[:4] for shape in report.RESNET20}


def test_a_shape_with_groups_is_a_depthwise_layer():
    layer = peers.layer_of_shape((8, 8, 3, 1, 5, 8))
    assert layer.groups == 8
    assert layer.to_conv2d().groups == 8


def test_the_miniature_has_the_shapes_that_are_measured():
    convolutions = [m for m in resnet8().modules() if isinstance(m, nn.Conv2d) and m.kernel_size[0] == 3]
    shapes = {(c.in_channels, c.out_channels, c.kernel_size[0], c.stride[0]) for c in convolutions}
    assert shapes == {shape[:4] for shape in report.MINIATURE_SHAPES}


def test_the_page_shows_a_missing_peer_as_a_dash():
    seconds = {"sleepconv": 1.0, "convolution": 2.0, "unfold + einsum": 4.0}
    record = {
        "machine": {"processor": "p", "threads": 2, "torch": "t", "kernel": "k"},
        "matrix_product_gflops": 100.0,
        "layers": [{"shape": (3, 16, 3, 1, 32), "batch": 32, "seconds": seconds, "gflop": 10.0}],
        "other_layers": [{"shape": (96, 96, 7, 1, 16, 96), "batch": 32, "seconds": seconds, "gflop": 10.0}],
        "steps": [{"batch": 32, "seconds": seconds}],
        "memory": [{"batch": 32, "gigabytes": seconds}],
        "training": {
            "epoch ÷ convolution": 1.1,
            "loop ÷ bare step": 1.02,
            "checkpoint ÷ epoch": 0.01,
            "seconds to go on": 2.0,
        },
        "growth": [{"what": "batch", "value": 64, "milliseconds": 1.0, "megabytes": 2.0}],
    }
    page = report.as_markdown(record)
    assert "Inference" not in page  # records of earlier versions have none
    passes = {"on grids": 0.5, "on grids, exported": 2.0, "sleepconv": 1.0, "convolution": 0.25}
    inference = [{"shape": (3, 16, 3, 1, 32), "batch": 1, "seconds": passes}]
    with_inference = report.as_markdown(record | {"inference": inference})
    assert "| 3→16, 3×3, stride 1, 32×32 | 1 | 500.00 | 0.50 | 2.00 | 2.00 |" in with_inference
    assert "| **geometric mean** | 1 |  | **0.50** | **2.00** | **2.00** |" in with_inference
    assert "| 3→16, 3×3, stride 1, 32×32 | 32 | 1000.00 | 0.50 | 0.25 | – | 10% |" in page
    assert "| 96→96, depthwise 7×7, stride 1, 16×16 | 32 | 1000.00 | 0.50 |" in page
    assert "| time | 32 | 1.00 s | 0.50 | 0.25 |" in page


def test_the_page_that_is_checked_in_is_that_of_its_record():
    folder = Path(__file__).parents[3] / "benchmarks"
    assert (folder / "README.md").read_text() == report.as_markdown(json.loads((folder / "last.json").read_text()))
