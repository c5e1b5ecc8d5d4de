"""A PyTorch Lightning callback that lets a model sleep; import it from here, since Lightning is not a dependency."""

import importlib
from typing import Any

from torch import nn

from sleepconv.sleep.layers import unwrapped
from sleepconv.sleep.sleep import Every, Sleep


def _callback_class() -> Any:
    """Return Lightning's ``Callback``, from the package of either name, or ``object`` if there is none."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(package).Callback
        except ModuleNotFoundError:
            continue
    return object


def _replica(trainer: Any, pl_module: nn.Module) -> nn.Module:
    """Return the DDP model around the module, if there is one: its replicas must agree after each sleep."""
    return trainer.model if isinstance(trainer.model, nn.parallel.DistributedDataParallel) else pl_module


_Base: Any = _callback_class()


class SleepCallback(_Base):
    """Let the model that a Lightning ``Trainer`` trains sleep; its state is saved in Lightning's checkpoints.

    Args:
        every: optimizer steps from sleep to sleep, a function of the step, or "never", as ``Sleep`` takes it.
        before_evaluation: sleep before validation and testing, if the model took steps since its last sleep.
        optimizer: which of the trainer's optimizers counts the steps, if it has several; use one callback for each
            optimizer that trains local layers, and include these layers.
        options: further arguments of ``Sleep``: rule, include, exclude, restart_each_epoch, statistics.

    Attributes:
        sleep: the ``Sleep``, once training has begun.

    >>> from lightning import Trainer  # doctest: +SKIP
    >>> Trainer(callbacks=[SleepCallback(every=10)]).fit(model)  # doctest: +SKIP
    """

    def __init__(self, *, every: Every, before_evaluation: bool = False, optimizer: int = 0, **options: Any) -> None:
        if _Base is object:
            raise ImportError("SleepCallback needs Lightning: pip install lightning")
        super().__init__()
        self.options: dict[str, Any] = {"every": every, **options}
        self.before_evaluation, self.optimizer = before_evaluation, optimizer
        self.sleep: Sleep | None = None
        self._loaded: dict[str, Any] | None = None

    @property
    def state_key(self) -> str:
        """Key under which the counts are saved, different for other optimizers or layers."""
        chosen = {name: self.options.get(name) for name in ("include", "exclude")}
        return self._generate_state_key(optimizer=self.optimizer, **chosen)

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Attach to the optimizer, and continue the counts of a checkpoint."""
        model = _replica(trainer, pl_module)
        if self.sleep is not None and unwrapped(self.sleep.model) is unwrapped(model):
            self.sleep.detach()
            self.sleep.model = model
        else:
            self.sleep = Sleep(model, **self.options)
        if self._loaded is not None:
            self.sleep.load_state_dict(self._loaded)
            self._loaded = None
        if not 0 <= self.optimizer < len(trainer.optimizers):
            raise ValueError(f"the trainer has {len(trainer.optimizers)} optimizers, but optimizer={self.optimizer}")
        self.sleep.attach(trainer.optimizers[self.optimizer])

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Detach from the optimizer, so that another callback can let the layers sleep; the counts stay."""
        if self.sleep is not None:
            self.sleep.detach()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        """Detach from the optimizer."""
        self.on_train_end(trainer, pl_module)

    def on_train_epoch_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Start an epoch of the sleep."""
        if self.sleep is not None:
            self.sleep.start_epoch()

    def on_validation_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Sleep first, if asked to."""
        if self.before_evaluation and self.sleep is not None:
            self.sleep.sleep_if_awake()

    def on_test_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Sleep first, if asked to."""
        self.on_validation_start(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts."""
        return {} if self.sleep is None else self.sleep.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Remember the counts until training starts."""
        self._loaded = dict(state_dict) or None
