"""The progress of a run, shown as a bar or as lines, or logged for TensorBoard."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sleepconv.experiments.messages import logger
from sleepconv.experiments.runs.reports import log_noise

_NOISE = "−log SNR"
Listener = Callable[[dict[str, Any]], None]


class Progress:
    """A listener that shows the reports of one run, as a progress bar or as lines."""

    def __init__(self, title: str, *, steps: int, epochs: int, quiet: bool = False) -> None:
        self.title, self.epochs, self.quiet = title, epochs, quiet
        live = sys.stderr.isatty() and not quiet
        self.bar = tqdm(total=steps, desc=title, unit="step", disable=not live, dynamic_ncols=True, smoothing=0.02)
        self._shown: dict[str, str] = {}

    def start(self, step: int) -> None:
        """Begin or resume after so many steps."""
        self.bar.update(step - self.bar.n)

    def step(self, loss: float) -> None:
        """Count a step and show its loss."""
        self._show("loss", f"{loss:.3f}", refresh=False)
        self.bar.update()

    def say(self, text: str) -> None:
        """Tell something about this run, above the progress bar."""
        if not self.quiet:
            logger.info("%s: %s", self.title, text)

    def __call__(self, report: dict[str, Any]) -> None:
        """Show a report."""
        if report["kind"] == "snr" and report["when"] == "awake":
            self._show(_NOISE, f"{log_noise(report['layers']):.1f}")
        elif report["kind"] == "evaluation":
            self._show("accuracy", f"{report['top1']:.1f} %")
            if self.bar.disable:
                self.say(self._line(report))
        elif report["kind"] == "epoch":
            self._training = report

    def close(self) -> None:
        """Close the progress bar."""
        self.bar.close()

    def _line(self, report: dict[str, Any]) -> str:
        trained = self._training
        seconds = trained["seconds"] + report["seconds"]
        return (
            f"epoch {report['epoch']}/{self.epochs}  loss {trained['loss']:.3f}  train {trained['top1']:.1f} %  "
            f"top-1 {report['top1']:.1f} %  top-5 {report['top5']:.1f} %  {seconds:.0f} s"
            + (f"  {_NOISE} {self._shown[_NOISE]}" if _NOISE in self._shown else "")
        )

    def _show(self, name: str, value: str, *, refresh: bool = True) -> None:
        self._shown[name] = value
        self.bar.set_postfix(self._shown, refresh=refresh)


def tensorboard(folder: Path) -> Listener:
    """Return a listener that writes every report for TensorBoard into ``folder``."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard is not installed: pip install tensorboard") from error
    opened: list[Any] = []  # with the first report: a run that is finished or refused writes nothing

    def listen(report: dict[str, Any]) -> None:
        if not opened:
            opened.append(SummaryWriter(str(folder), purge_step=report["step"]))
        writer = opened[0]
        if report["kind"] == "snr":
            writer.add_scalar(f"minus log SNR {report['when']}", log_noise(report["layers"]), report["step"])
        else:
            for name in ("loss", "top1", "top5", "learning_rate"):
                if name in report:
                    writer.add_scalar(f"{name}/{report['kind']}", report[name], report["step"])
        writer.flush()

    return listen
