"""Ctrl-C in a sleep."""

import signal

import pytest
import torch
from torch import nn

from sleepconv import Sleep, to_locally_connected
from sleepconv.functional import weight_snr
from sleepconv.sleep import Hebbian, Instant
from sleepconv.sleep.interrupts import undisturbed


class PressedWhileSharing(Instant):
    def sleep_(self, layers, model):
        with undisturbed():
            super().sleep_(dict(list(layers.items())[:1]), model)
            signal.raise_signal(signal.SIGINT)
            super().sleep_(dict(list(layers.items())[1:]), model)


class PressedAfterwards(Instant):
    def sleep_(self, layers, model):
        super().sleep_(layers, model)
        signal.raise_signal(signal.SIGINT)


def pressed_while_learning(step):
    if step == 1:
        signal.raise_signal(signal.SIGINT)
    return 0.01


def interrupted(rule):
    """The sleep, and all weights and moments of the model."""
    model = to_locally_connected(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3)), torch.randn(1, 1, 12, 12))
    optimizer = torch.optim.AdamW(model.parameters())
    sleep = Sleep(model, every=1, rule=rule, share_moments=True, statistics=True)
    sleep.attach(optimizer)
    model(torch.randn(4, 1, 12, 12)).square().sum().backward()
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    tensors = [t for layer in model for t in (layer.weight, *optimizer.state[layer.weight].values()) if t.dim()]
    return sleep, [float(weight_snr(t.detach(), model[n // 3].grids)) for n, t in enumerate(tensors)]


@pytest.mark.parametrize("rule", [PressedWhileSharing(), PressedAfterwards()])
def test_an_interrupt_once_weights_are_shared_waits_until_moments_and_records_are_too(rule):
    sleep, snrs = interrupted(rule)
    assert len(snrs) == 6
    assert min(snrs) > 1e9
    assert (sleep.last_sleep, len(sleep.records)) == (1, 1)


def test_an_interrupt_before_weights_are_shared_leaves_weights_and_moments_alone():
    sleep, snrs = interrupted(Hebbian(rate=pressed_while_learning))
    assert max(snrs) < 1e3
    assert (sleep.last_sleep, len(sleep.records)) == (None, 0)
