"""The callback in a real Trainer."""

import importlib.util
import warnings

import pytest
import torch
from torch import nn

from sleepconv import to_locally_connected
from sleepconv.sleep.lightning import SleepCallback
from sleepconv.testing import assert_convolutional

MISSING = importlib.util.find_spec("lightning") is None
needs_lightning = pytest.mark.skipif(MISSING, reason="lightning is not installed")


@pytest.mark.skipif(not MISSING, reason="lightning is installed")
def test_without_lightning_the_error_says_what_to_install():
    with pytest.raises(ImportError, match=r"sleepconv\[lightning\]"):
        SleepCallback(every=2)


def module():
    from lightning import LightningModule

    class Small(LightningModule):
        def __init__(self):
            super().__init__()
            convolutional = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(98, 2))
            self.network = to_locally_connected(convolutional, torch.randn(1, 1, 9, 9))
            self.weights_convolutional_in_validation = []

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

        def validation_step(self, batch, _):
            try:
                assert_convolutional(self.network)
                self.weights_convolutional_in_validation.append(True)
            except AssertionError:
                self.weights_convolutional_in_validation.append(False)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    return Small()


def fit(model, callback, folder, epochs=1, **options):
    from lightning import Trainer

    data = torch.utils.data.TensorDataset(torch.randn(20, 1, 9, 9), torch.randint(2, (20,)))
    loader, validation = (torch.utils.data.DataLoader(data, batch_size=size) for size in (4, 20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            max_epochs=epochs,
            callbacks=[callback],
            default_root_dir=folder,
            logger=False,
            accelerator="cpu",
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(model, loader, validation, **options)
    return trainer


@needs_lightning
def test_sleeps_every_so_many_steps_of_the_trainers_optimizer(tmp_path):
    callback = SleepCallback(every=2, statistics=True)
    fit(module(), callback, tmp_path)
    assert [record.step for record in callback.sleep.records] == [2, 4]
    assert callback.sleep.steps == 5


@needs_lightning
@pytest.mark.parametrize("before_evaluation", [True, False])
def test_sleeps_before_validation_only_if_asked(before_evaluation, tmp_path):
    model = module()
    fit(model, SleepCallback(every=2, before_evaluation=before_evaluation), tmp_path)
    assert model.weights_convolutional_in_validation == [before_evaluation]


@needs_lightning
def test_counts_on_from_lightnings_checkpoint(tmp_path):
    fit(module(), SleepCallback(every=2), tmp_path).save_checkpoint(tmp_path / "saved.ckpt")
    callback = SleepCallback(every=2, statistics=True)
    fit(module(), callback, tmp_path, epochs=2, ckpt_path=tmp_path / "saved.ckpt")
    assert callback.sleep.steps == 10
    assert [record.step for record in callback.sleep.records] == [6, 8, 10]


@needs_lightning
def test_the_count_restarts_with_each_epoch_if_asked(tmp_path):
    callback = SleepCallback(every=3, restart_each_epoch=True, statistics=True)
    fit(module(), callback, tmp_path, epochs=2)
    assert [record.step for record in callback.sleep.records] == [3, 8]


@needs_lightning
def test_the_same_callback_serves_a_second_fit(tmp_path):
    model, callback = module(), SleepCallback(every=2)
    fit(model, callback, tmp_path)
    fit(model, callback, tmp_path)
    assert callback.sleep.steps == 10
