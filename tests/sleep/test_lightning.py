"""The callback in a real Trainer."""

import importlib.util
import os
import sys
import warnings
from contextlib import nullcontext

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from torch import nn

from sleepconv import to_locally_connected
from sleepconv.sleep import Hebbian
from sleepconv.sleep.lightning import SleepCallback
from sleepconv.testing import assert_convolutional


def test_without_lightning_the_error_says_what_to_install(monkeypatch):
    for package in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, package, None)  # Python then finds no such package
    specification = importlib.util.find_spec("sleepconv.sleep.lightning")
    without = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(without)
    with pytest.raises(ImportError, match="pip install lightning"):
        without.SleepCallback(every=2)


def module(network=None):
    class Small(LightningModule):
        def __init__(self):
            super().__init__()
            convolutional = network or nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(98, 2))
            self.network = to_locally_connected(convolutional, torch.randn(1, 1, 9, 9))
            self.weights_convolutional_in_validation = []

        def forward(self, x):
            return self.network(x)

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch, _):
            try:
                assert_convolutional(self.network)
                self.weights_convolutional_in_validation.append(True)
            except AssertionError:
                self.weights_convolutional_in_validation.append(False)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    return Small()


def fit(model, callback, folder, epochs=1, trainer_options=None, **options):
    data = torch.utils.data.TensorDataset(torch.randn(20, 1, 9, 9), torch.randint(2, (20,)))
    loader, validation = (torch.utils.data.DataLoader(data, batch_size=size) for size in (4, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        usual = {"callbacks": [callback], "default_root_dir": folder, "accelerator": "cpu", "num_sanity_val_steps": 0}
        trainer = Trainer(max_epochs=epochs, **quiet, **usual | (trainer_options or {}))
        trainer.fit(model, loader, validation, **options)
    return trainer


def test_sleeps_every_so_many_steps_of_the_trainers_optimizer(tmp_path):
    callback = SleepCallback(every=2, statistics=True)
    fit(module(), callback, tmp_path)
    assert [record.step for record in callback.sleep.records] == [2, 4]
    assert callback.sleep.steps == 5


@pytest.mark.parametrize("before_evaluation", [True, False])
def test_sleeps_before_validation_only_if_asked(before_evaluation, tmp_path):
    model = module()
    fit(model, SleepCallback(every=2, before_evaluation=before_evaluation), tmp_path)
    assert model.weights_convolutional_in_validation == [before_evaluation]


def test_counts_on_from_lightnings_checkpoint(tmp_path):
    fit(module(), SleepCallback(every=2), tmp_path).save_checkpoint(tmp_path / "saved.ckpt")
    callback = SleepCallback(every=2, statistics=True)
    fit(module(), callback, tmp_path, epochs=2, ckpt_path=tmp_path / "saved.ckpt")
    assert callback.sleep.steps == 10
    assert [record.step for record in callback.sleep.records] == [6, 8, 10]


def test_the_count_restarts_with_each_epoch_if_asked(tmp_path):
    callback = SleepCallback(every=3, restart_each_epoch=True, statistics=True)
    fit(module(), callback, tmp_path, epochs=2)
    assert [record.step for record in callback.sleep.records] == [1, 4, 6, 9]


def test_the_same_callback_serves_a_second_fit(tmp_path):
    model, callback = module(), SleepCallback(every=2)
    fit(model, callback, tmp_path)
    fit(model, callback, tmp_path)
    assert callback.sleep.steps == 10


@pytest.mark.parametrize("fails", [False, True])
def test_another_callback_serves_a_second_fit_whether_the_first_ended_or_failed(fails, tmp_path):
    model, first, second = module(), SleepCallback(every=2), SleepCallback(every=2)
    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        fit(model, first, tmp_path, trainer_options={"callbacks": [first, Failing()] if fails else [first]})
    fit(model, second, tmp_path)
    assert (first.sleep.steps, second.sleep.steps) == (1 if fails else 5, 5)


class Failing(Callback):
    def on_train_batch_end(self, *_):
        raise ZeroDivisionError


class TwoOptimizers(LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = (to_locally_connected(nn.Conv2d(1, 2, 3), torch.randn(1, 1, 9, 9)) for _ in range(2))

    def training_step(self, batch, _):
        for optimizer, network in zip(self.optimizers(), (self.first, self.second), strict=True):
            optimizer.zero_grad()
            self.manual_backward(network(batch[0]).square().mean())
            optimizer.step()

    def validation_step(self, batch, _):
        pass

    def configure_optimizers(self):
        return [torch.optim.SGD(network.parameters(), lr=0.1) for network in (self.first, self.second)]


def test_each_of_two_optimizers_has_a_callback_of_its_own(tmp_path):
    first = SleepCallback(every=2, optimizer=0, include=["first"], statistics=True)
    second = SleepCallback(every=3, optimizer=1, include=["second"], statistics=True)
    trainer = fit(TwoOptimizers(), first, tmp_path, trainer_options={"callbacks": [first, second]})
    assert [[record.step for record in callback.sleep.records] for callback in (first, second)] == [[2, 4], [3]]
    trainer.save_checkpoint(tmp_path / "saved.ckpt")
    counts = torch.load(tmp_path / "saved.ckpt", weights_only=False)["callbacks"]
    assert [counts[callback.state_key]["last_sleep"] for callback in (first, second)] == [4, 3]


def train_as_replica(rank, folder):
    """On batches of its own, and so with BatchNorm statistics of its own, which the patterns pass."""
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.manual_seed(0)
    model = module(
        nn.Sequential(nn.Conv2d(1, 9, 3), nn.BatchNorm2d(9), nn.Conv2d(9, 2, 3), nn.Flatten(), nn.Linear(50, 2))
    )
    callback = SleepCallback(every=1, rule=Hebbian(patterns="layer_by_layer", steps=3), statistics=True)
    fit(model, callback, folder, trainer_options={"strategy": "ddp", "devices": 2})
    torch.save([model.state_dict(), len(callback.sleep.records)], folder / f"{rank}.pt")


def test_replicas_stay_alike_when_patterns_differ_between_them(on_two_processes, tmp_path):
    on_two_processes(train_as_replica, tmp_path)
    (first, sleeps), (second, _) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert sleeps == 3
    for name in ("network.0.weight", "network.2.weight", "network.4.weight"):
        assert torch.equal(first[name], second[name]), name
