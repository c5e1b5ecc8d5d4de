"""Five kinds of model go all the way: converted, trained, put to sleep, exported, and back as equal convolutions."""

import subprocess
import sys
import warnings
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sleepconv
from sleepconv.nn import LocallyConnected2d, PerPatchLinear

X = torch.randn(2, 3, 16, 16)


def vgg():
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(True), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5)),
        *(nn.Linear(8 * 16, 12), nn.ReLU(True), nn.Linear(12, 5)),
    )


def alexnet():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 5, stride=2, padding=2), nn.ReLU(), nn.LocalResponseNorm(3), nn.MaxPool2d(3, 2, padding=1)),
        *(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 5)),
    )


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.expand, self.project = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gain = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gain * self.project(F.gelu(self.expand(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext():
    stem, head = nn.Conv2d(3, 6, 2, stride=2), [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)]
    return nn.Sequential(stem, ConvNeXtBlock(6), *head)


class CORnetBlock(nn.Module):
    """As in CORnet-S: the convolutions are used several times, and one of them, once more, at a smaller size."""

    def __init__(self, ins, outs, times=2):
        super().__init__()
        self.enter, self.skip = nn.Conv2d(ins, outs, 1, bias=False), nn.Conv2d(outs, outs, 1, stride=2, bias=False)
        self.conv1, self.norm1 = nn.Conv2d(outs, 2 * outs, 1, bias=False), nn.BatchNorm2d(2 * outs)
        self.conv2 = nn.Conv2d(2 * outs, 2 * outs, 3, stride=2, padding=1, bias=False)
        self.conv3, self.norm3 = nn.Conv2d(2 * outs, outs, 1, bias=False), nn.BatchNorm2d(outs)
        self.times = times

    def forward(self, x):
        x = self.enter(x)
        for time in range(self.times):
            skip = self.skip(x) if time == 0 else x
            self.conv2.stride = (2, 2) if time == 0 else (1, 1)
            x = F.relu(self.norm1(self.conv1(x)))
            x = F.relu(self.norm3(self.conv3(self.conv2(x))) + skip)
        return x


def cornet():
    stem = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*stem, CORnetBlock(4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.merge, self.head = nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(4, 5, 1)

    def forward(self, x):
        high = F.relu(self.down1(x))
        low = F.relu(self.norm(self.down2(F.max_pool2d(high, 2))))
        return self.head(F.relu(self.merge(torch.cat([high, self.up(low)], 1)))).mean((2, 3))


MODELS = {"VGG": vgg, "AlexNet": alexnet, "ConvNeXt": convnext, "CORnet-S": cornet, "U-Net": UNet}
# What is named as still shared, and how many layers are converted.
LEFT = {
    "ConvNeXt": ("linear layers share weights between positions.*: 1.expand, 1.project", 2),
    "CORnet-S": (r"different sizes: 2.conv1 \(\(8, 8\) and \(16, 16\)\), 2.conv2 \(.*\)$", 4),
    "U-Net": ("transposed convolution.*: up", 4),
}


@cache
def converted(name):
    """The model in eval mode without its weight sharing, after two steps of training and a sleep; and the warnings."""
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        local = sleepconv.to_locally_connected(MODELS[name](), X, pointwise=name == "ConvNeXt")
    optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
    sleepconv.Sleep(local, every=2).attach(optimizer)
    before = [parameter.detach().clone() for parameter in local.parameters()]
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(local(X), torch.tensor([1, 2])).backward()
        optimizer.step()
    assert all((parameter != old).any() for parameter, old in zip(local.parameters(), before, strict=True))
    return local.eval(), [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", MODELS)
def test_a_converted_model_computes_what_the_model_does(name):
    model = MODELS[name]().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        local = sleepconv.to_locally_connected(model, X, copy_weights=True, pointwise=True)
    torch.testing.assert_close(local(X), model(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LEFT)
def test_what_stays_shared_is_named_and_all_else_is_converted(name):
    says, layers = LEFT[name]
    with pytest.warns(UserWarning, match=says):
        local = sleepconv.to_locally_connected(MODELS[name](), X)
    assert sum(isinstance(module, LocallyConnected2d) for module in local.modules()) == layers


def test_pointwise_layers_get_a_matrix_per_position_on_request():
    local, said = converted("ConvNeXt")
    assert not said
    assert isinstance(local[1].expand, PerPatchLinear)
    assert local[1].expand.weight.shape == (64, 24, 6)
    assert "num_patches=(8, 8)" in repr(local[1].expand)
    with pytest.raises(ValueError, match=r"tokens of shape \(8, 8, 6\), but got shape \(2, 8, 9, 6\)"):
        local[1].expand(torch.randn(2, 8, 9, 6))


@pytest.mark.parametrize("name", MODELS)
def test_after_a_sleep_it_comes_back_as_convolutions_with_equal_outputs(name):
    local, _ = converted(name)
    sleepconv.testing.assert_convolutional(local)
    compact = sleepconv.to_grid_convolutional(local)
    assert not any(isinstance(module, (LocallyConnected2d, PerPatchLinear)) for module in compact.modules())
    for images in (X, X[:1]):
        with torch.no_grad():
            torch.testing.assert_close(compact(images), local(images), rtol=1e-5, atol=1e-5)


LOAD = """
import sys
sys.modules["sleepconv"] = None  # an import would fail
import torch
for name, (x, y) in torch.load("expected.pt").items():
    torch.testing.assert_close(torch.export.load(f"{name}.pt2").module()(x), y, rtol=1e-5, atol=1e-5)
"""


def test_exported_they_run_in_a_process_without_sleepconv(tmp_path):
    models = {name: sleepconv.to_grid_convolutional(converted(name)[0]) for name in MODELS}
    programs = {name: torch.export.export(model, (X,)) for name, model in models.items()}
    local, _ = converted("VGG")  # without convolutions, through the decomposition of our operator
    programs["local"] = torch.export.export(local, (X,)).run_decompositions(sleepconv.functional.decompositions())
    for name, program in programs.items():
        torch.export.save(program, tmp_path / f"{name}.pt2")
    expected = {name: (X, model(X).detach()) for name, model in (models | {"local": local}).items()}
    torch.save(expected, tmp_path / "expected.pt")
    command = [sys.executable, "-c", LOAD]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", ["local", "compact"])
def test_onnx_gets_plain_operations_and_computes_the_same_for_any_batch(kind):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    from onnx.reference import ReferenceEvaluator

    model = sleepconv.to_locally_connected(nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU()), X)
    if kind == "compact":
        model = sleepconv.to_grid_convolutional(sleepconv.sleep.Instant()(model))
    model, batch = model.eval(), ({0: torch.export.Dim("batch")},)
    program = torch.onnx.export(model, (X,), dynamo=True, verbose=False, dynamic_shapes=batch).model_proto
    onnx.checker.check_model(program)
    assert {node.domain for node in program.graph.node} == {""}
    images = torch.cat([X, X])
    (y,) = ReferenceEvaluator(program).run(None, {program.graph.input[0].name: images.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), model(images).detach(), rtol=1e-5, atol=1e-5)
