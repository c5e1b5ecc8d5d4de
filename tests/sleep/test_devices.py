"""Sleep on another device than the CPU."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from sleepconv import Sleep, to_locally_connected
from sleepconv.functional import lateral_grids, share_weights_, weight_snr
from sleepconv.nn import LocallyConnected1d, PerPatchLinear
from sleepconv.sleep import Circuit, Hebbian, Instant
from sleepconv.testing import assert_convolutional, assert_grid_equivariant

RULES = {
    "instant": Instant(),
    "interior": Instant(border="interior"),
    "one grid": Hebbian(steps=2, target=-1.0),
    "one grid, with momentum and noise": Hebbian(steps=2, momentum=0.5, noise=0.01),
    "independent": Hebbian(steps=2, patterns="independent", inhibition=10.0),
    "layer by layer": Hebbian(steps=2, patterns="layer_by_layer"),
    "layer by layer, in turn": Hebbian(steps=1, patterns="layer_by_layer", border="interior", in_turn=True),
    "circuit": Circuit(presentations=2, presentation_ms=10.0, rate=1e-3),
}


def network():
    between = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 4, 3, stride=2, padding=1, groups=2))
    convolutional = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1, bias=False), between)
    return to_locally_connected(convolutional, torch.randn(1, 2, 15))


def test_the_pretended_device_keeps_cudas_rule(on_another_device):
    with on_another_device(nn.Linear(3, 4)) as there:
        assert there.weight.device != torch.device("cpu")
        for mixed in (lambda: there.weight + torch.ones(3), lambda: there.weight.index_select(0, torch.arange(2))):
            with pytest.raises(RuntimeError, match="on one device"):
                mixed()
        assert (there.weight * torch.tensor(2.0))[torch.arange(2)].cpu().shape == (2, 3)


@pytest.mark.parametrize("default", ["cpu", "privateuseone"])
@pytest.mark.parametrize("name", RULES)
def test_every_rule_learns_on_another_device_what_it_learns_on_the_cpu(name, default, on_another_device):
    here, start = network(), network()
    start.load_state_dict(here.state_dict())
    Sleep(here, every=1, rule=RULES[name], statistics=True).step()
    assert not torch.equal(here[0].weight, start[0].weight)
    with on_another_device(start) as there, torch.device(default):
        Sleep(there, every=1, rule=RULES[name], statistics=True).step()
        for ours, expected in zip(there.parameters(), here.parameters(), strict=True):
            assert ours.device != expected.device
            torch.testing.assert_close(ours.cpu(), expected)


@pytest.mark.parametrize("name", ["instant", "interior"])
def test_a_sleep_does_not_wait_for_the_device(name, on_another_device):
    with on_another_device(network()) as there:
        sleep = Sleep(there, every=1, rule=RULES[name])
        with Waits() as waits:
            sleep.step()
        assert waits.calls == []
        with Waits() as waits:
            sleep.snrs()
        assert waits.calls  # numbers for a report do wait


class Waits(TorchDispatchMode):
    """Lists the operations that bring numbers from the pretended device to the CPU."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        from_there = bool(args) and isinstance(args[0], torch.Tensor) and args[0].device.type == "privateuseone"
        result = function(*args, **(kwargs or {}))
        if from_there and not (isinstance(result, torch.Tensor) and result.device == args[0].device):
            self.calls.append(function)
        return result


def test_tokens_share_on_another_device(on_another_device):
    with on_another_device(PerPatchLinear(3, 2, num_patches=4)) as there:
        Hebbian(steps=20, patterns="independent")(there)
        assert_convolutional(there, tolerance=0.1)


def test_grids_may_lie_on_another_device_than_the_weights(on_another_device):
    layer = LocallyConnected1d(2, 3, 3, input_size=9)
    expected = share_weights_(layer.weight.detach().clone(), layer.grids)
    with on_another_device(layer), torch.device("privateuseone"):
        grids = lateral_grids(layer.output_size, 3)
        assert grids.device != layer.weight.device
        before = weight_snr(layer.weight, grids)
        share_weights_(layer.weight, grids)
        assert weight_snr(layer.weight, grids) > before
    assert torch.equal(layer.weight, expected)


def test_a_layers_grids_lie_on_the_cpu_whatever_the_default_device_is(on_another_device):
    layer = LocallyConnected1d(2, 3, 3, input_size=9)
    with on_another_device(layer) as there, torch.device("privateuseone"):
        assert layer.grids.device == there.grids.device == torch.device("cpu")
        assert_grid_equivariant(Instant()(layer))
    with torch.device("meta"):
        assert_convolutional(LocallyConnected1d.from_conv1d(nn.Conv1d(2, 3, 3, device="cpu"), 9))
