"""With what they learn in common, neurons that share learn as the filters of a convolution do."""

import pytest
import torch
from torch import Tensor, nn

from sleepconv import Sleep, to_locally_connected
from sleepconv.functional import lateral_grids
from sleepconv.nn import LocallyConnected2d
from sleepconv.optim import (
    SlowMomentum,
    gradient_coherence,
    scaled_groups,
    share_gradients,
    share_moments,
)
from sleepconv.sleep import Instant

STEPS = 5


class PhaseConvolution(nn.Module):
    """A convolution with one filter per grid: all of them everywhere, and each position takes its own."""

    def __init__(self, local: LocallyConnected2d) -> None:
        super().__init__()
        self.grids, self.padding = local.grids, local.padding
        firsts = [(self.grids == grid).nonzero()[0].tolist() for grid in range(int(self.grids.max()) + 1)]
        self.filters = nn.Parameter(torch.stack([local.weight.detach()[i, j] for i, j in firsts]))

    def forward(self, x: Tensor) -> Tensor:
        answers = [nn.functional.conv2d(x, filters, padding=self.padding) for filters in self.filters]
        return sum(answer * (self.grids == grid) for grid, answer in enumerate(answers))

    def at_every_position(self) -> Tensor:
        return self.filters.detach()[self.grids]


def networks(size: int) -> tuple[nn.Module, nn.Module]:
    """A locally connected network from shared weights, and the same with one filter per grid."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()]
    layers += [nn.Conv2d(4, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5), nn.ReLU()]
    conv = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3)).double()
    local = to_locally_connected(conv, torch.randn(2, 2, size, size).double(), copy_weights=True)
    for place in (0, 3):
        conv[place] = PhaseConvolution(local[place])
    return local, conv


def train(model: nn.Module, optimizer: torch.optim.Optimizer, size: int) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        images = torch.randn(6, 2, size, size, generator=generator).double()
        labels = torch.randint(3, (6,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def assert_same(local: nn.Module, conv: nn.Module) -> None:
    for place in (0, 3):
        torch.testing.assert_close(local[place].weight.detach(), conv[place].at_every_position())
    for place in (1, 4, 8):
        torch.testing.assert_close(local[place].state_dict(), conv[place].state_dict())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_with_scaled_rates_and_a_sleep_after_every_step_is_sgd_on_one_filter_per_grid(momentum):
    local, conv = networks(size=9)
    sleep = Sleep(local, every=1)
    scaled = torch.optim.SGD(scaled_groups(sleep, lr=0.1, weight_decay=1e-2), momentum=momentum)
    sleep.attach(scaled)
    train(local, scaled, 9)
    train(conv, torch.optim.SGD(conv.parameters(), lr=0.1, weight_decay=1e-2, momentum=momentum), 9)
    assert_same(local, conv)


def test_where_grids_differ_in_size_a_filter_with_n_neurons_learns_at_the_rate_times_mean_over_n():
    local, conv = networks(size=8)  # along each axis grids have 3, 3 and 2 neurons
    neurons = conv[0].grids.flatten().bincount()
    for place in (0, 3):
        conv[place].filters.register_hook(lambda g: g * (64 / 9 / neurons).reshape(-1, 1, 1, 1, 1))
    sleep = Sleep(local, every=1)
    scaled = torch.optim.SGD(scaled_groups(sleep, lr=0.1))
    sleep.attach(scaled)
    train(local, scaled, 8)
    train(conv, torch.optim.SGD(conv.parameters(), lr=0.1), 8)
    assert_same(local, conv)


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("start", ["before", "after"])
def test_adamw_with_shared_gradients_is_adamw_on_one_filter_per_grid(size, start):
    local, conv = networks(size)
    options = {"lr": 1e-2, "weight_decay": 0.1, "eps": 1e-14}  # counts for more beside a mean than beside a sum
    optimizer, sleep = torch.optim.AdamW(local.parameters(), **options), Sleep(local, every=1)
    if start == "before":
        share_gradients(optimizer, sleep)
    sleep.attach(optimizer)
    if start == "after":
        share_gradients(optimizer, sleep)
    train(local, optimizer, size)
    train(conv, torch.optim.AdamW(conv.parameters(), **options), size)
    assert_same(local, conv)


def test_adamw_by_itself_is_not_adamw_on_one_filter_per_grid():
    local, conv = networks(9)
    optimizer = torch.optim.AdamW(local.parameters(), lr=1e-2)
    Sleep(local, every=1).attach(optimizer)
    before = local[0].weight.detach().clone()
    train(local, optimizer, 9)
    train(conv, torch.optim.AdamW(conv.parameters(), lr=1e-2), 9)
    moved, should = (local[0].weight - before).norm(), (conv[0].at_every_position() - before).norm()
    assert moved < 0.8 * should


def test_gradients_that_a_closure_computes_are_shared():
    local, _ = networks(9)
    optimizer, sleep = torch.optim.SGD(local.parameters(), lr=0.1), Sleep(local, every=1)
    share_gradients(optimizer, sleep)

    def closure():
        optimizer.zero_grad()
        loss = local(torch.ones(2, 2, 9, 9).double()).square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) > 0
    gradient = local[0].weight.grad
    assert torch.equal(gradient[0, 0], gradient[3, 6])
    assert gradient.any()


def test_no_gradient_is_shared_after_the_handle_is_removed():
    local, _ = networks(9)
    optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
    share_gradients(optimizer, Sleep(local, every=1)).remove()
    train(local, optimizer, 9)
    gradient = local[0].weight.grad
    assert not torch.equal(gradient[0, 0], gradient[3, 6])


def test_gradients_are_shared_only_where_a_sleep_follows_every_step():
    local, _ = networks(9)
    with pytest.raises(ValueError, match="every=1.*got every=10"):
        share_gradients(torch.optim.SGD(local.parameters()), Sleep(local, every=10))


def test_shared_moments_are_those_of_the_grid_without_an_attached_optimizer_too():
    local, _ = networks(9)
    optimizer, sleep = torch.optim.AdamW(local.parameters()), Sleep(local, every=1)
    share_moments(optimizer, sleep)
    train(local, optimizer, 9)
    means = optimizer.state[local[0].weight]["exp_avg"][::3, ::3].mean(dim=(0, 1))
    sleep.step()
    for moment in ("exp_avg", "exp_avg_sq"):
        shared = optimizer.state[local[0].weight][moment]
        assert torch.equal(shared[0, 0], shared[3, 6])
    torch.testing.assert_close(optimizer.state[local[0].weight]["exp_avg"][0, 0], means)


def drift(layer: LocallyConnected2d, seed: int) -> None:
    with torch.no_grad():
        layer.weight.add_(torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(seed)))


def test_slow_momentum_follows_its_equations():
    layer, reference = (LocallyConnected2d(1, 2, 3, input_size=9).double() for _ in range(2))
    reference.load_state_dict(layer.state_dict())
    sleep, plain = Sleep(layer, every=1), Sleep(reference, every=1)
    SlowMomentum(sleep, momentum=0.7, rate=0.9)
    plain.sleep()
    a, velocity = reference.weight.detach().clone(), 0
    for seed in range(4):
        with torch.no_grad():
            layer.weight.copy_(layer.weight if seed else a)
            reference.weight.copy_(layer.weight)
        drift(layer, seed)
        drift(reference, seed)
        sleep.step()
        plain.step()
        velocity = 0.7 * velocity + reference.weight.detach() - a
        a = a + 0.9 * velocity
        torch.testing.assert_close(layer.weight.detach(), a)


def test_without_momentum_a_sleep_is_as_it_was():
    layer = LocallyConnected2d(1, 2, 3, input_size=9)
    sleep = Sleep(layer, every=1)
    SlowMomentum(sleep, momentum=0.0)
    drift(layer, 0)
    means = layer.weight.detach().clone()
    Sleep(layer, every=1).sleep()
    shared = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.copy_(means)
    sleep.step()
    torch.testing.assert_close(layer.weight.detach(), shared)


def test_slow_momentum_resumes_from_its_state_and_ends_when_removed():
    layers = [LocallyConnected2d(1, 2, 3, input_size=9) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    sleeps = [Sleep(layer, every=1) for layer in layers]
    outers = [SlowMomentum(sleep, momentum=0.5) for sleep in sleeps]
    drift(layers[0], 0)
    sleeps[0].step()
    layers[1].load_state_dict(layers[0].state_dict())
    outers[1].load_state_dict(outers[0].state_dict())
    for layer, sleep in zip(layers, sleeps, strict=True):
        drift(layer, 1)
        sleep.step()
    assert torch.equal(layers[0].weight, layers[1].weight)
    outers[0].remove()
    before = layers[0].weight.detach().clone()
    sleeps[0].step()
    torch.testing.assert_close(layers[0].weight.detach(), before)


def test_a_sleep_that_was_not_due_shares_but_takes_no_outer_step():
    layer = LocallyConnected2d(1, 2, 3, input_size=9)
    sleep = Sleep(layer, every=1)
    outer = SlowMomentum(sleep, momentum=0.8)
    drift(layer, 0)
    sleep.step()
    before = {part: {n: t.clone() for n, t in tensors.items()} for part, tensors in outer.state_dict().items()}
    weight = layer.weight.detach().clone()
    for _ in range(3):
        sleep.sleep()
    torch.testing.assert_close(layer.weight.detach(), weight)
    torch.testing.assert_close(outer.state_dict(), before)


def test_an_optimizer_that_does_not_hold_the_weights_is_refused():
    local, other = networks(9)
    for attach in (share_gradients, share_moments):
        with pytest.raises(ValueError, match="does not hold the weight of the sleeping layer"):
            attach(torch.optim.SGD(other.parameters()), Sleep(local, every=1))


def test_arguments_of_another_type_are_refused_by_name():
    local, _ = networks(9)
    optimizer, sleep = torch.optim.SGD(local.parameters()), Sleep(local, every=1)
    for function in (share_gradients, share_moments):
        with pytest.raises(TypeError, match=f"{function.__name__} takes an optimizer and a Sleep, got Sleep and SGD"):
            function(sleep, optimizer)
    with pytest.raises(TypeError, match="scaled_groups takes a Sleep, got Sequential"):
        scaled_groups(local, lr=0.1)
    with pytest.raises(TypeError, match="`sleep` must be a Sleep, got SGD"):
        SlowMomentum(optimizer, momentum=0.5)
    for name in ("lr", "weight_decay", "rest_lr"):
        with pytest.raises(ValueError, match=f"`{name}` must be a finite number, at least 0, got nan"):
            scaled_groups(sleep, **{"lr": 0.1, name: float("nan")})


def test_rates_follow_the_grids_of_the_rule():
    local, _ = networks(9)
    groups = scaled_groups(Sleep(local, every=1, rule=Instant(period=1), include=["0"]), lr=0.1, rest_lr=0.3)
    assert [group["lr"] for group in groups] == [pytest.approx(8.1), 0.3]
    assert sum(len(group["params"]) for group in groups) == len(list(local.parameters()))


@pytest.mark.parametrize(
    "options", [{"momentum": 1.0}, {"momentum": -0.1}, {"momentum": "0.5"}, {"momentum": 0.5, "rate": 0.0}]
)
def test_slow_momentum_refuses_numbers_that_cannot_work(options):
    with pytest.raises(ValueError, match="must be"):
        SlowMomentum(Sleep(LocallyConnected2d(1, 2, 3, input_size=9), every=10), **options)


def test_slow_momentum_refuses_the_state_of_another_model_and_keeps_its_own():
    sleep = Sleep(LocallyConnected2d(1, 2, 3, input_size=9), every=10)
    outer, other = SlowMomentum(sleep, momentum=0.5), LocallyConnected2d(1, 3, 3, input_size=9)
    before = {part: {n: t.clone() for n, t in tensors.items()} for part, tensors in outer.state_dict().items()}
    for state in ({}, SlowMomentum(Sleep(other, every=10), momentum=0.5).state_dict()):
        with pytest.raises(ValueError, match="layers and shapes"):
            outer.load_state_dict(state)
    torch.testing.assert_close(outer.state_dict(), before)


def test_independent_gradients_have_the_coherence_one_over_the_root_of_n_and_equal_ones_have_one():
    layer = LocallyConnected2d(4, 8, 3, input_size=32, padding=1)
    layer.weight.grad = torch.randn(layer.weight.shape)
    measured = gradient_coherence(layer)[""]
    assert measured.independent == pytest.approx((9 / 32**2) ** 0.5)
    assert measured.ratio == pytest.approx(measured.independent, rel=0.05)
    layer.weight.grad = torch.randn(9, 8, 4, 3, 3)[lateral_grids((32, 32), 3)]
    assert gradient_coherence(layer)[""].ratio == pytest.approx(1.0)


def test_coherence_needs_gradients_but_not_of_frozen_layers_and_nothing_has_none():
    frozen, other = (LocallyConnected2d(1, 1, 3, input_size=9) for _ in range(2))
    other.weight.grad = torch.zeros_like(other.weight)
    measured = gradient_coherence(nn.Sequential(frozen, other))
    assert {name: coherence.ratio for name, coherence in measured.items()} == {"1": 0.0}
    with pytest.raises(ValueError, match="has a gradient; call backward"):
        gradient_coherence(LocallyConnected2d(1, 2, 3, input_size=9))
