import pytest
import torch

from sleepconv import to_locally_connected
from sleepconv.experiments.training.checkpoints import write_tensors
from sleepconv.models import resnet20, three_layers
from sleepconv.sleep import Instant, compact_state, load_compact_state


def local() -> torch.nn.Module:
    return to_locally_connected(three_layers(), torch.zeros(1, 1, 12, 24))


def assert_same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for name, value in one.state_dict().items():
        assert value.numpy().tobytes() == other.state_dict()[name].numpy().tobytes(), name


def test_a_network_that_slept_is_saved_with_one_filter_per_grid_and_comes_back_exactly():
    asleep, other = Instant()(local()), local()
    state = compact_state(asleep)
    assert state["layers.0.0.weight@grids"].shape[0] == 9
    load_compact_state(other, state)
    assert_same(asleep, other)


def test_a_network_that_is_awake_is_saved_whole_and_comes_back_exactly():
    awake, other = local(), local()
    assert not any("@grids" in name for name in compact_state(awake))
    load_compact_state(other, compact_state(awake))
    assert_same(awake, other)


def test_one_differing_bit_keeps_a_layer_whole():
    asleep = Instant()(local())
    with torch.no_grad():
        asleep.layers[0][0].weight[0, 0, 0, 0, 0, 0] = -0.0
        asleep.layers[0][0].weight[0, 3, 0, 0, 0, 0] = 0.0
    assert "layers.0.0.weight" in compact_state(asleep)
    assert "layers.1.0.weight@grids" in compact_state(asleep)


def test_a_resnet20_that_slept_takes_ten_megabytes(tmp_path):
    model = Instant()(to_locally_connected(resnet20(), torch.zeros(1, 3, 32, 32)))
    write_tensors(tmp_path / "model.safetensors", compact_state(model), {})
    assert sum(p.numel() * 4 for p in model.parameters()) > 160e6
    assert (tmp_path / "model.safetensors").stat().st_size < 11e6


def test_weights_of_another_network_are_refused():
    with pytest.raises(ValueError, match="another network"):
        load_compact_state(local(), compact_state(three_layers(width=8)))
    with pytest.raises(ValueError, match="another network"):
        load_compact_state(three_layers(), compact_state(resnet20()))


def test_a_compiled_model_is_saved_under_the_names_of_the_plain_one():
    asleep, other = local(), local()
    Instant()(asleep)
    state = compact_state(torch.compile(asleep))
    assert "layers.0.0.weight@grids" in state
    load_compact_state(other, state)
    assert_same(asleep, other)
