"""Weight mirrors: noise through a layer shows its weights."""

import pytest
import torch
from torch import nn

from sleepconv import Sleep, to_locally_connected, to_per_patch
from sleepconv.wake import KolenPollack, WeightMirrors, alignment, mirror_, mirror_in_sleep, without_weight_transport

LAYERS = {
    "conv": lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
    "linear": lambda: nn.Linear(20, 40),
    "local": lambda: to_locally_connected(nn.Conv2d(4, 6, 3, padding=1, groups=2), torch.zeros(1, 4, 6, 6)),
    "patches": lambda: to_per_patch(nn.Linear(5, 4), torch.zeros(2, 40, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_image_of_one_phase_is_the_weights_with_the_noise_that_chance_adds(name):
    layer = without_weight_transport(LAYERS[name]().double(), WeightMirrors(patterns=4000, decay=1.0))
    mirror_(layer)
    weight, image = layer.weight.detach(), layer.feedback.weight.detach()
    inputs = {"conv": 18, "linear": 20, "local": 18, "patches": 5}[name]
    neurons = weight.reshape(-1, inputs)
    # An entry of ⟨y ξᵀ⟩ over n patterns is w plus noise of variance (|w|² + w²)/n.
    seen = 4000 * (64 if name == "conv" else 1)
    expected = ((neurons.square().sum(1) * (inputs + 1)) / seen).sum()
    measured = (image - weight).square().sum()
    assert 0.7 < float(measured / expected) < 1.3


def test_repeated_phases_average_the_noise_and_forget_the_start():
    torch.manual_seed(0)
    layer = without_weight_transport(nn.Linear(30, 10), WeightMirrors(scale=10.0, patterns=100, decay=0.1))
    angles = [alignment(layer)[""]]
    for _ in range(100):
        mirror_(layer)
        angles.append(alignment(layer)[""])
    assert angles[0] > 80
    # After many phases the noise is that of n(2 − λ)/λ patterns: tan² of the angle is (inputs + 1)/1900.
    expected = torch.tensor(31 / 1900).sqrt().atan().rad2deg()
    assert abs(float(torch.tensor(angles[-20:]).mean() - expected)) < 1.5


def test_sleep_mirrors_and_shares_the_images_which_aligns_them_better():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
    model = to_locally_connected(model, torch.randn(1, 3, 18, 18))
    rule, angles = WeightMirrors(patterns=64, decay=1.0), {}
    for shared in (True, False):
        learning = without_weight_transport(model, rule, share_in_sleep=shared)
        sleep = Sleep(learning, every=1)
        handle = mirror_in_sleep(sleep)
        sleep.sleep()
        angles[shared] = alignment(learning)
        images = learning[0].feedback.weight
        assert torch.equal(images[0, 0], images[3, 3]) == shared
        handle.remove()
        before = images.detach().clone()
        if not shared:
            sleep.sleep()
            assert torch.equal(images, before)
    for name in ("0", "2"):  # 36 neurons share: a sixth of the noise
        assert angles[True][name] < angles[False][name] / 3


def test_a_phase_comes_only_every_so_many_steps():
    model = to_locally_connected(nn.Conv2d(1, 2, 3), torch.zeros(1, 1, 9, 9))
    learning = without_weight_transport(model, WeightMirrors())
    sleep, changed = Sleep(learning, every=2), []
    mirror_in_sleep(sleep, every=5)
    for step in range(1, 13):
        before = learning.feedback.weight.detach().clone()
        sleep.step()
        changed += [step] if not torch.equal(learning.feedback.weight, before) else []
    assert changed == [2, 6, 10]  # the first sleep, and the next after each fifth step


def test_every_sleep_has_a_phase_by_default_even_if_no_step_was_counted_between():
    model = to_locally_connected(nn.Conv2d(1, 2, 3), torch.zeros(1, 1, 9, 9))
    learning = without_weight_transport(model, WeightMirrors())
    sleep = Sleep(learning, every=1)
    mirror_in_sleep(sleep)
    for _ in range(3):
        before = learning.feedback.weight.detach().clone()
        sleep.sleep()
        assert not torch.equal(learning.feedback.weight, before)


def test_kolen_and_pollack_can_have_a_mirror_phase_too():
    layer = without_weight_transport(nn.Linear(20, 10), KolenPollack(patterns=2000, decay=1.0))
    assert alignment(layer)[""] > 70
    mirror_(layer)
    assert alignment(layer)[""] < 15
    layer(torch.ones(2, 20)).sum().backward()
    assert torch.equal(layer.weight.grad, layer.feedback.weight.grad)


def test_a_phase_leaves_the_weights_and_gradients_alone_and_needs_mirrors():
    layer = without_weight_transport(nn.Linear(4, 3), WeightMirrors())
    before = layer.weight.detach().clone()
    mirror_(layer)
    assert torch.equal(layer.weight, before)
    layer(torch.ones(2, 4)).sum().backward()
    assert layer.feedback.weight.grad is None
    other = without_weight_transport(nn.Linear(4, 3), KolenPollack())
    with pytest.raises(ValueError, match="the model has no weight mirrors"):
        mirror_(other)
    with pytest.raises(TypeError, match="mirror_in_sleep takes a Sleep, got Linear"):
        mirror_in_sleep(nn.Linear(1, 1))
