"""AdamW with compact moments takes the steps of AdamW."""

import copy

import pytest
import torch
from torch import nn

import sleepconv
from sleepconv.optim import CompactAdamW, share_gradients
from sleepconv.optim.compact_adamw import _rounded_at_random
from sleepconv.testing import assert_convolutional

OPTIONS = {"lr": 1e-2, "betas": (0.8, 0.99), "weight_decay": 0.1}


def network():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, stride=2, padding=1))
    return sleepconv.to_locally_connected(layers, torch.zeros(1, 2, 8, 8))


def train(model, optimizer, steps=6):
    torch.manual_seed(1)
    for images in torch.randn(steps, 5, 2, 8, 8):
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def moments(optimizer):
    return sum(t.numel() * t.element_size() for state in optimizer.state.values() for t in state.values() if t.dim())


def test_sharing_steps_are_those_of_shared_gradients_and_a_sleep_after_each_step():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)
    sleep = sleepconv.Sleep(model, every=1)
    share_gradients(optimizer, sleep)
    sleep.attach(optimizer)
    expected = train(model, optimizer)
    compact = network()
    for ours, exact in zip(train(compact, CompactAdamW(compact, **OPTIONS)), expected, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-6)
    assert_convolutional(compact)


def test_without_sharing_the_steps_are_those_of_adamw():
    model, compact = network(), network()
    expected = train(model, torch.optim.AdamW(model.parameters(), **OPTIONS))
    for ours, exact in zip(train(compact, CompactAdamW(compact, share=False, **OPTIONS)), expected, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-6)


def test_moments_in_bfloat16_take_half_the_memory_and_lead_nearly_the_same_way():
    start, model, compact = network(), network(), network()
    exact = CompactAdamW(model, share=False, **OPTIONS)
    rounded = CompactAdamW(compact, share=False, moments_dtype=torch.bfloat16, **OPTIONS)
    pairs = zip(train(model, exact, 20), train(compact, rounded, 20), start.parameters(), strict=True)
    assert moments(exact) == 2 * moments(rounded)
    for expected, ours, before in pairs:
        assert (ours - expected).norm() < 0.05 * (expected - before).norm()


def test_shared_moments_have_one_filter_per_grid():
    model = network()
    optimizer = CompactAdamW(model)
    train(model, optimizer, 1)
    assert optimizer.state[model[0].weight]["exp_avg"].shape == (9, 4, 2, 3, 3)


def test_rounding_at_random_is_right_on_average():
    value = torch.full((100_000,), 1.0 + 2**-10)  # an eighth of the way between two numbers of bfloat16
    rounded = _rounded_at_random(value)
    assert rounded.unique().tolist() == [1.0, 1.0 + 2**-7]
    assert abs(rounded.double().mean() - value[0].double()) < 2e-5
    assert torch.equal(rounded, rounded.bfloat16().float())


def test_a_loaded_state_continues_to_the_same_weights():
    model, other = network(), network()
    optimizer = CompactAdamW(model, **OPTIONS)
    train(model, optimizer, 2)
    other.load_state_dict(model.state_dict())
    resumed = CompactAdamW(other, **OPTIONS)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for ours, exact in zip(train(other, resumed, 2), train(model, optimizer, 2), strict=True):
        assert torch.equal(ours, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loaded_moments_keep_their_dtype(dtype):
    model = network()
    optimizer = CompactAdamW(model, moments_dtype=dtype)
    train(model, optimizer, 1)
    resumed = CompactAdamW(model, moments_dtype=dtype)
    resumed.load_state_dict(optimizer.state_dict())
    train(model, resumed, 1)
    assert resumed.state[model[0].weight]["exp_avg"].dtype == dtype


def test_a_copy_continues_to_the_same_weights():
    model = network()
    optimizer = CompactAdamW(model, **OPTIONS)
    train(model, optimizer, 2)
    other, resumed = copy.deepcopy((model, optimizer))
    for ours, exact in zip(train(other, resumed, 2), train(model, optimizer, 2), strict=True):
        assert torch.equal(ours, exact)


def test_moments_of_every_neuron_are_refused_where_one_filter_per_grid_is_kept():
    model = network()
    adamw = torch.optim.AdamW(model.parameters())
    train(model, adamw, 1)
    with pytest.raises(ValueError, match=r"moments must have the shape \(9, 4, 2, 3, 3\), got \(8, 8, 4, 2, 3, 3\)"):
        CompactAdamW(model).load_state_dict(adamw.state_dict())
    CompactAdamW(model, share=False).load_state_dict(adamw.state_dict())


def test_parameters_in_place_of_the_model_are_refused():
    with pytest.raises(TypeError, match="takes the model, not its parameters, got generator"):
        CompactAdamW(network().parameters())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lr": -1.0}, "`lr` must be"),
        ({"betas": (0.9, 1.0)}, "`betas` must be two numbers"),
        ({"moments_dtype": torch.float16}, "`moments_dtype` must be torch.float32 or torch.bfloat16"),
    ],
)
def test_bad_options_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        CompactAdamW(network(), **options)


def test_checkpointed_layers_have_the_gradients_of_others():
    model, images = network(), torch.randn(3, 2, 8, 8)
    model(images).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    torch.utils.checkpoint.checkpoint(model, images, use_reentrant=False).square().sum().backward()
    for parameter, exact in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, exact)
