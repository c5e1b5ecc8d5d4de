"""Memory is known before it is allocated, and a conversion that needs too much of it says so."""

import json
import warnings

import pytest
import torch
from torch import nn

from sleepconv import to_locally_connected
from sleepconv.cli import main
from sleepconv.memory import machine_memory
from sleepconv.models import resnet8
from sleepconv.nn import memory_table

X = torch.randn(4, 3, 16, 16)


def test_weights_gradients_and_moments_are_those_that_training_makes():
    model = to_locally_connected(resnet8(), X)
    table = memory_table(model, X)
    optimizer = torch.optim.AdamW(model.parameters())
    model(X).sum().backward()
    optimizer.step()
    bytes_of = {
        "weights": sum(p.numel() * 4 for p in model.parameters()),
        "gradient": sum(p.grad.numel() * 4 for p in model.parameters()),
        "moments": sum(t.numel() * 4 for s in optimizer.state.values() for t in s.values() if t.dim()),
    }
    assert {name: sum(getattr(layer, name) for layer in table) for name in bytes_of} == bytes_of


def test_activations_are_what_autograd_keeps():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 256, 2))
    table = {layer.name: layer.activations for layer in memory_table(model, X)}
    # The convolution keeps its input, the ReLU its output, which the linear layer only views.
    assert table == {"0": X.numel() * 4, "1": 4 * 8 * 256 * 4, "3": 0}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(X)
    for parameter in model.parameters():
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    assert sum(kept.values()) == sum(table.values())


def test_frozen_layers_have_no_gradient_and_the_model_stays_as_it_was():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)).eval()
    model[0].requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, *_, last = memory_table(model, X, moments=1)
    assert (first.gradient, first.moments, last.moments) == (0, 0, last.weights)
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}


def test_a_conversion_that_needs_too_much_memory_says_what_to_do():
    with torch.device("meta"):
        model, x = nn.Sequential(nn.Conv2d(3, 512, 3), nn.Conv2d(512, 512, 3)), torch.empty(1, 3, 512, 512)
    with pytest.warns(
        UserWarning, match=r"need \d+\.\d GB with gradients.*most is in 1 \(.*keep_first.*stride.*groups"
    ):
        to_locally_connected(model, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_locally_connected(model, x[..., :8, :8])


def test_the_machine_has_memory():
    assert (machine_memory() or 2**30) >= 2**28


def test_size_shows_a_network_without_allocating_it(capsys):
    assert main(["size", "resnet20", "--input", "3", "512", "512", "--batch", "64", "--json"]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert sum(row["weights"] for row in rows) > 4e10
    assert rows[0]["total"] == sum(rows[0][name] for name in ("weights", "gradient", "moments", "activations"))
    assert "Leave large layers as they are" in err


def test_size_takes_models_of_ones_own_and_what_stays_shared(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_small_models.py").write_text(
        "from torch import nn\n"
        "def net(): return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1))\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["size", "my_small_models:net", "--input", "3", "8", "8", "--keep-first", "1", "--exclude", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["weights", "0", "1", "2", "total"]
    weights = [float(line.split()[1]) for line in lines[1:4]]  # MB
    assert weights == [0.0, 0.01, 0.0]  # 3·4·9, 16·4·4·9 and 4·4 weights


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("size resnet21 --input 3 32 32", "did you mean 'resnet20'"),
        ("size sleepconv.models:no_such --input 3 32 32", "has no 'no_such'"),
        ("size no_such_module:net --input 3 32 32", "No module named 'no_such_module'"),
        ("size resnet8 --input 4 32 32", r"resnet8 does not run on an input of shape (1, 4, 32, 32)"),
        ("size resnet8 --input 3 32 32 --batch 0", "must be at least 1"),
    ],
)
def test_size_says_what_is_wrong(command, says, capsys):
    assert main(command.split()) == 1
    assert says in capsys.readouterr().err
