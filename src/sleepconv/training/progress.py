"""What a run shows while it goes on: a live bar on a terminal, a line per epoch elsewhere, TensorBoard if asked for."""

import sys
from collections.abc import Callable
from math import inf, log
from pathlib import Path
from statistics import median
from typing import Any

from tqdm import tqdm

NOISE = "−log SNR"
Listener = Callable[[dict[str, Any]], None]


class Progress:
    """Shows the reports of one run; it is called with each."""

    def __init__(self, title: str, *, steps: int, epochs: int, quiet: bool = False) -> None:
        self.title, self.epochs, self.quiet = title, epochs, quiet
        live = sys.stderr.isatty() and not quiet
        self.bar = tqdm(total=steps, desc=title, unit="step", disable=not live, dynamic_ncols=True, smoothing=0.02)
        self._shown: dict[str, str] = {}

    def start(self, step: int) -> None:
        """Begin, or go on, after so many steps."""
        self.bar.update(step - self.bar.n)

    def step(self, loss: float) -> None:
        """One more step was taken."""
        self._show("loss", f"{loss:.3f}", refresh=False)
        self.bar.update()

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self.quiet:
            tqdm.write(f"{self.title}: {text}", file=sys.stderr)

    def __call__(self, report: dict[str, Any]) -> None:
        """Show a report."""
        if report["kind"] == "snr" and report["when"] == "awake":
            self._show(NOISE, f"{log_noise(report['layers']):.1f}")
        elif report["kind"] == "evaluation":
            self._show("accuracy", f"{report['top1']:.1f} %")
            if self.bar.disable:
                self.say(self._line(report))
        elif report["kind"] == "epoch":
            self._training = report

    def close(self) -> None:
        """The end of the bar."""
        self.bar.close()

    def _line(self, report: dict[str, Any]) -> str:
        trained = self._training
        seconds = trained["seconds"] + report["seconds"]
        return (
            f"epoch {report['epoch']}/{self.epochs}  loss {trained['loss']:.3f}  train {trained['top1']:.1f} %  "
            f"top-1 {report['top1']:.1f} %  top-5 {report['top5']:.1f} %  {seconds:.0f} s"
            + (f"  {NOISE} {self._shown[NOISE]}" if NOISE in self._shown else "")
        )

    def _show(self, name: str, value: str, *, refresh: bool = True) -> None:
        self._shown[name] = value
        self.bar.set_postfix(self._shown, refresh=refresh)


def log_noise(layers: dict[str, float | str]) -> float:
    """The median over layers of −log SNR, from a report.

    >>> log_noise({"a": 1.0, "b": "inf", "c": 0.5}) + 0.0
    0.0
    """
    return median(negative_log(float(snr)) for snr in layers.values())


def negative_log(snr: float) -> float:
    """−log SNR (natural logarithm, Eq. 6): −inf where neurons agree exactly on a weight, inf for a mean of zero.

    >>> negative_log(float("inf")), negative_log(0.0)
    (-inf, inf)
    """
    return -log(snr) if snr > 0 else inf


def tensorboard(folder: Path) -> Listener:
    """A listener that writes every report for TensorBoard into ``folder``."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard is not installed: pip install 'sleepconv[tensorboard]'") from error
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
