"""The demo's network and the shifts that its sleep makes it blind to."""

import torch

import sleepconv
from sleepconv.models import three_layers
from sleepconv.sleep import Instant


def responses(*, shift):
    """Of the sleeping network's last layer, far from the borders, to a small random patch and to the shifted one."""
    local = sleepconv.to_locally_connected(three_layers(), torch.zeros(1, 1, 36, 60)).eval()
    Instant()(local)
    still, moved = torch.zeros(2, 1, 1, 36, 60)
    still[..., 14:22, 18:26] = torch.rand(8, 8)
    moved[..., shift:] = still[..., :-shift]
    with torch.no_grad():
        return tuple(local.pool(local.layers(x)) for x in (still, moved))


def test_after_sleep_it_answers_alike_to_images_twelve_pixels_apart():
    torch.testing.assert_close(*responses(shift=12))


def test_after_sleep_it_does_not_answer_alike_to_images_six_or_eight_pixels_apart():
    for shift in (6, 8):
        still, moved = responses(shift=shift)
        assert (still - moved).abs().max() > 0.1 * still.abs().max()


def test_it_takes_colour_images_and_any_number_of_classes():
    assert three_layers(7, in_channels=3, width=4)(torch.randn(2, 3, 20, 20)).shape == (2, 7)
