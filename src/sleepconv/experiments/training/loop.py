"""The training loop: one for convolutional, locally connected and sleeping networks."""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from sleepconv.experiments.data import Batches, Task, load_task
from sleepconv.experiments.data.decoding import OnCorrupt
from sleepconv.experiments.interrupts import Interrupts, TrainingInterrupted
from sleepconv.experiments.runs.folder import ENVIRONMENT, SUMMARY, WEIGHTS, WEIGHTS_BYTES, RunFolder
from sleepconv.experiments.runs.run import Run, checked_fields
from sleepconv.experiments.training.checkpoints import read_tensors, write_tensors
from sleepconv.experiments.training.evaluation import Tally, evaluate, reestimated_statistics
from sleepconv.experiments.training.learner import DivergedError, Learner
from sleepconv.experiments.training.network import build_rule, build_wake_rule
from sleepconv.experiments.training.parallel import Place, Sharding, describe, in_precision, joined
from sleepconv.experiments.training.progress import Listener, Progress
from sleepconv.files import json_number, size_if_there
from sleepconv.memory import keep_freed_memory
from sleepconv.sleep.compact import compact_state

_MINUTES_BETWEEN_CHECKPOINTS = 10.0
_BATCHES_FOR_STATISTICS = 10
_StrPath = str | PathLike[str]


def train(
    run: Run,
    folder: _StrPath,
    *,
    task: Task | None = None,
    data_dir: _StrPath | None = None,
    complete: bool = True,
    on_corrupt: OnCorrupt = "error",
    device: str | None = None,
    sharding: Sharding = "ddp",
    max_steps: int | None = None,
    quiet: bool = False,
    listeners: Sequence[Listener] = (),
) -> dict[str, Any] | None:
    """Train what ``run`` describes in ``folder``, or resume where it was left; the result is the same, to the bit.

    Started by ``torchrun``, several processes share every batch and get what one process would, to rounding.

    Args:
        run: what to train.
        folder: where its records and checkpoints go.
        task: the data, if not the dataset of that name.
        data_dir: the folder of the datasets.
        complete: require the dataset's official number of images.
        on_corrupt: "error", or "skip" to leave out image files that cannot be decoded.
        device: "cpu", "cuda"; by default a GPU if there is one.
        sharding: with several processes, "ddp" (each holds the network) or "fsdp" (each a part of it).
        max_steps: stop after so many optimizer steps in all, to resume later.
        quiet: show nothing.
        listeners: called with every report.

    Returns:
        the summary, or None if it stopped at ``max_steps``.

    >>> import tempfile
    >>> run = Run(name="mine", dataset="digits", network="three_layers", connectivity="local", sleep_every=10,
    ...           learning_rate=2e-2, epochs=1, padding=0)
    >>> summary = train(run, tempfile.mkdtemp(), quiet=True)
    >>> summary["steps"], summary["set"]
    (3, 'test')
    """
    build_rule(run.sleep_rule, run.sleep_options)  # reject invalid options before anything is written
    if run.wake != "backprop":
        build_wake_rule(run.wake, run.wake_options)
    records = RunFolder(folder)
    with joined(device) as place:
        place = in_precision(place, run.precision)
        with records.locked() if place.first else nullcontext():
            if place.first:
                records.check_claim(run)
            if (summary := records.summary()) is not None:
                records.check()
                records.check_weights()
                return summary
            keep_freed_memory()
            if task is None:
                task = load_task(
                    run.dataset,
                    data_dir=data_dir,
                    padding=run.padding,
                    tuning=run.tuning,
                    complete=complete,
                    on_corrupt=on_corrupt,
                    crops=run.crops,
                )
            training = _Training(run, task, records, place, sharding, quiet, listeners)
            if place.first:
                records.claim(run)
            return training.finish(max_steps)


class _Training:
    """The part of `train` that one process does."""

    def __init__(
        self,
        run: Run,
        task: Task,
        records: RunFolder,
        place: Place,
        sharding: Sharding,
        quiet: bool,
        listeners: Sequence[Listener],
    ) -> None:
        share: dict[str, Any] = {"rank": place.rank, "world_size": place.world_size}
        self.run, self.task, self.records, self.place = run, task, records, place
        self.batches = Batches(
            task.train, batch_size=run.batch_size, seed=run.seed, repetitions=run.repetitions, **share
        )
        self.tests = Batches(task.evaluation, batch_size=run.batch_size, shuffle=False, **share)
        self.learner = Learner(run, task, place, steps_per_epoch=len(self.batches), sharding=sharding)
        self.steps = run.scaled_epochs * len(self.batches)
        title = f"{run.name} seed {run.seed}"
        self.progress = Progress(title, steps=self.steps, epochs=run.scaled_epochs, quiet=quiet or not place.first)
        self.listeners: list[Listener] = [self.progress, *listeners]
        self.saved_at = time.monotonic()

    def finish(self, max_steps: int | None) -> dict[str, Any] | None:
        """Train from wherever it is to the end, or to ``max_steps``."""
        self._restore()
        if self.run.never_sleeps(self.steps):
            self.progress.say(f"will never sleep: it ends after {self.steps} steps, before its first sleep")
        last = self.steps if max_steps is None else min(max_steps, self.steps)
        self.progress.start(self.learner.step)
        try:
            with Interrupts() as interrupts:
                while self.learner.step < last:
                    self._epoch(last, interrupts)
        except DivergedError as error:
            kept = self.records.checkpoints.paths()
            where = f"the last good state is {kept[0]}" if kept else "no checkpoint had been written yet"
            raise DivergedError(f"{error}; {where}. Try a smaller learning rate") from error
        finally:
            self.progress.close()
        return self._conclude() if self.learner.step == self.steps else None

    def _epoch(self, last: int, interrupts: Interrupts) -> None:
        epoch, start = divmod(self.learner.step, len(self.batches))
        for step, (inputs, labels) in enumerate(self.batches.epoch(epoch, start=start), start):
            loss, reports = self.learner.learn(inputs, labels, self.batches.images_at(step))
            for report in reports:
                layers = {name: json_number(snr) for name, snr in report["layers"].items()}
                self._report({**report, "layers": layers})
            self.progress.step(loss)
            if step + 1 == len(self.batches):
                self._close_epoch(epoch + 1)
            self._stop_or_save(interrupts, epoch_ended=step + 1 == len(self.batches), at_last=self.learner.step == last)
            if self.learner.step == last:
                return

    def _close_epoch(self, epoch: int) -> None:
        learner, now = self.learner, {"epoch": epoch, "step": self.learner.step}
        self._report(
            {
                "kind": "epoch",
                **now,
                **learner.tally.over_all(self.place).means(),
                "learning_rate": self.run.learning_rate_in(epoch - 1),
                "seconds": learner.seconds,
                "cpu_seconds": learner.cpu_seconds,
                "sleep_seconds": learner.sleep_seconds,
            }
        )
        learner.start_epoch()
        start = time.perf_counter()
        tally = self._evaluate()
        running: dict[str, Any] = {}
        if self.run.statistics == "reestimated":
            running = {"running": tally.means()}
            batches = islice(self.batches.epoch(epoch), _BATCHES_FOR_STATISTICS)
            with reestimated_statistics(learner.model, batches, self.place):
                tally = self._evaluate()
        self._report(
            {
                "kind": "evaluation",
                **now,
                **tally.means(),
                "statistics": self.run.statistics,
                **running,
                "images": int(tally.images),
                "steps_since_sleep": None if learner.sleep is None else learner.sleep.steps_since_sleep,
                "seconds": time.perf_counter() - start,
            }
        )

    def _evaluate(self) -> Tally:
        tally = evaluate(self.learner.model, self.tests.epoch(0), self.place)
        if not isfinite(tally.loss):
            raise DivergedError(f"the loss on the evaluation set after step {self.learner.step} is {tally.loss}")
        return tally

    def _stop_or_save(self, interrupts: Interrupts, *, epoch_ended: bool, at_last: bool) -> None:
        stop = self.place.any(interrupts.caught is not None)
        late = self.place.any(time.monotonic() - self.saved_at > 60 * _MINUTES_BETWEEN_CHECKPOINTS)
        if epoch_ended or at_last or stop or late:
            self._save()
        if stop and self.learner.step < self.steps:
            text = f"stopped after step {self.learner.step} of {self.steps}; the same command resumes from there"
            raise TrainingInterrupted(text, interrupts.exit_code)

    def _save(self) -> None:
        tensors, facts = self.learner.state()
        if broken := [name for name, value in tensors.items() if not bool(value.isfinite().all())]:
            raise DivergedError(f"after step {self.learner.step} {broken[0]} contains NaN or infinity")
        if self.place.first:
            facts |= {"recipe": asdict(self.run), "metrics_size": self.records.sync_metrics()}
            self.records.checkpoints.write(self.learner.step, tensors, facts)
        self.saved_at = time.monotonic()

    def _restore(self) -> None:
        """Resume from the newest intact checkpoint, or begin."""
        checkpoints = self.records.checkpoints
        found = checkpoints.newest(self.progress.say) if self.place.first else None
        self.place.wait()  # the others read when what is damaged is set aside
        if not self.place.first and (paths := checkpoints.paths()):
            found = paths[0], *read_tensors(paths[0])
        if found is None:
            self._begin()
        else:
            self._resume(*found)

    def _resume(self, path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        if "recipe" in facts:  # checkpoints of earlier versions do not tell
            self.records.refuse_another(Run(**checked_fields(facts["recipe"])), self.run)
        self.learner.load(tensors, facts)
        if self.place.first:
            self.records.cut_metrics(facts["metrics_size"])
            self.records.record_resumption(describe(self.place), self.learner.step)
        self.progress.say(f"resumes after step {self.learner.step} of {self.steps} ({path.name})")

    def _begin(self) -> None:
        if self.place.first:
            if self.records.metrics_size():
                self.progress.say("starts again: there is no intact checkpoint")
            self.records.cut_metrics(0)
            self.records.write_json(ENVIRONMENT, describe(self.place))

    def _report(self, report: dict[str, Any]) -> None:
        if self.place.first:
            self.records.append(report)
            for listener in self.listeners:
                listener(report)

    def _conclude(self) -> dict[str, Any]:
        """Write weights and summary; the checkpoints have served."""
        tensors = compact_state(self.learner.model)
        summary = self._summary()
        if self.place.first:
            facts = {"input_size": self.task.input_size, "classes": len(self.task.classes)}
            write_tensors(self.records.path / WEIGHTS, tensors, facts)
            summary[WEIGHTS_BYTES] = size_if_there(self.records.path / WEIGHTS)
            self.records.write_json(SUMMARY, summary)
            self.records.checkpoints.clear()
        return summary

    def _summary(self) -> dict[str, Any]:
        epochs, evaluations = self.records.metrics("epoch"), self.records.metrics("evaluation")
        seconds = sum(report["seconds"] for report in [*epochs, *evaluations])
        final = evaluations[-1]
        return {
            "set": "validation" if self.run.tuning else "test",
            **{name: final[name] for name in ("top1", "top5", "loss", "images", "statistics", "steps_since_sleep")},
            "best_top1": max(report["top1"] for report in evaluations),
            "epochs": self.run.scaled_epochs,
            "steps": self.steps,
            "scale": self.run.scale,
            "parameters": self.learner.parameters,
            "seconds": seconds,
            "seconds_per_epoch": seconds / self.run.scaled_epochs,
        }
