"""A run is a folder: what was asked for, what was measured, and what is needed to resume."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from sleepconv.experiments.runs.reports import check_report, is_number
from sleepconv.experiments.runs.run import Run, checked_fields
from sleepconv.files import parse_json, read_if_there, size_if_there, write_atomically

if TYPE_CHECKING:  # PyTorch takes seconds to import, and tables need none of this
    from torch import Tensor, nn

    from sleepconv.experiments.training.checkpoints import Checkpoints

RECIPE, METRICS, ENVIRONMENT, SUMMARY = "recipe.json", "metrics.jsonl", "environment.json", "summary.json"
_RESULT = ("top1", "top5", "seconds", "seconds_per_epoch")
_SETS = ("test", "validation")
WEIGHTS, CHECKPOINT, _LOCK = "model.safetensors", "checkpoint", "lock"
WEIGHTS_BYTES = "weights_bytes"
_COUNTS = ("epochs", WEIGHTS_BYTES)
"""What a summary need not say, since early ones did not."""
_RESTORE = "put it back, or remove the folder to train the run again"


class RunFolder:
    """The records of one run.

    >>> import tempfile
    >>> folder = RunFolder(tempfile.mkdtemp())
    >>> folder.summary() is None, folder.metrics()
    (True, [])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def checkpoints(self) -> "Checkpoints":
        """The last checkpoints, while the run is not finished."""
        from sleepconv.experiments.training.checkpoints import Checkpoints

        return Checkpoints(self.path / CHECKPOINT)

    def recipe(self) -> Run:
        """Read what was asked for."""
        content = read_if_there(self.path / RECIPE)
        if content is None:
            raise FileNotFoundError(f"{self.path} is not a run folder: {RECIPE} is missing")
        try:
            return Run.from_json(content.decode())
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path / RECIPE} is not a recipe of this version: {error}") from error

    def metrics(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Read the reports so far, all or of one kind ("epoch", "evaluation", "snr"), but no half-written last line."""
        reports = self._reports(read_if_there(self.path / METRICS) or b"")
        return [report for report in reports if kind in (None, report["kind"])]

    def summary(self) -> dict[str, Any] | None:
        """Read the result, or return None if the run is not finished."""
        summary = self._json(SUMMARY)
        numbers = [*_RESULT, *(name for name in _COUNTS if name in (summary or {}))]
        if summary is not None and (missing := [name for name in numbers if not is_number(summary.get(name))]):
            raise ValueError(f"{self.path / SUMMARY} has no number for {', '.join(missing)}")
        if summary is not None and summary.get("set") not in _SETS:
            raise ValueError(f"{self.path / SUMMARY} must name the evaluated set: {' or '.join(_SETS)}")
        return summary

    def environment(self) -> dict[str, Any] | None:
        """Read what it was begun with and, under "resumed", with what it was resumed each time, and after what step."""
        environment = self._json(ENVIRONMENT)
        resumed = [] if environment is None else environment.get("resumed", [])
        if not isinstance(resumed, list) or not all(isinstance(start, dict) for start in resumed):
            raise ValueError(f"{self.path / ENVIRONMENT} is damaged: `resumed` must be a list of objects")
        return environment

    def environments(self) -> list[dict[str, Any]]:
        """Return what it was computed with at each start, as far as that was recorded."""
        begun = self.environment() or {}
        starts = [{name: fact for name, fact in begun.items() if name != "resumed"}, *begun.get("resumed", [])]
        return [start for start in starts if start]

    def record_resumption(self, environment: dict[str, Any], step: int) -> None:
        """Add to the environment with what, and after what step, the run is resumed."""
        known = self.environment() or {}
        self.write_json(ENVIRONMENT, {**known, "resumed": [*known.get("resumed", []), {"step": step, **environment}]})

    def state(self, run: Run) -> str:
        """Return how far a run has come here: "new", "begun", "done" or "damaged".

        A folder that another run was begun in is not done.

        >>> run = Run(name="mine", dataset="digits", connectivity="local", learning_rate=1e-3)
        >>> RunFolder("no/such/folder").state(run)
        'new'
        """
        try:
            if self.recipe() != run or self.summary() is None:
                return "begun"
            self.check()
            self.check_weights()
            return "done"
        except FileNotFoundError:
            return "new"
        except (ValueError, OSError):  # training it again reports what is damaged
            return "damaged"

    def check(self) -> None:
        """Raise a ValueError or an OSError if a record is damaged, or if reports of a finished run are missing."""
        self.recipe(), self.environment()
        summary, reports = self.summary(), self.metrics()
        for place, report in enumerate(reports, 1):
            try:
                check_report(report)
            except ValueError as error:
                raise ValueError(f"line {place} of {self.path / METRICS} is damaged: {error}") from error
        evaluated = sum(report["kind"] == "evaluation" for report in reports)
        if summary is not None and evaluated < (epochs := summary.get("epochs", 0)):
            raise ValueError(f"{self.path / METRICS} has {evaluated} of {epochs} evaluations; {_RESTORE}")

    def check_weights(self) -> None:
        """Raise a ValueError if the weights of a finished run are missing or damaged; all of them are read.

        The summary says how many bytes they have; that of records copied without weights does not.
        """
        if (summary := self.summary()) is None:
            return
        file = self.path / WEIGHTS
        size = size_if_there(file)
        if (expected := summary.get(WEIGHTS_BYTES, size)) != size:
            raise ValueError(
                f"{file} {'is missing' if size is None else f'has {size} of {expected} bytes'}; {_RESTORE}"
            )
        if size is not None:
            self._weights()

    def weights_lost(self) -> bool:
        """Whether `check_weights` finds the weights missing or damaged."""
        try:
            self.check_weights()
        except ValueError:
            return True
        return False

    def load_model(self) -> "nn.Module":
        """Load the trained network, in evaluation mode."""
        from sleepconv.experiments.training.network import build_network
        from sleepconv.sleep.compact import load_compact_state

        if not (self.path / WEIGHTS).is_file():
            raise FileNotFoundError(f"{self.path} has no {WEIGHTS}: it is not finished, or a record without weights")
        tensors, facts = self._weights()
        model = build_network(self.recipe(), tuple(facts["input_size"]), facts["classes"])
        load_compact_state(model, tensors)
        return model.eval()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; a second process that tries to gets an error.

        If the block fails before it has written anything, no folder is left that was not there before.
        """
        created = [path for path in (self.path, *self.path.parents) if not path.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / _LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise RuntimeError(
                f"another process is training in {self.path}; wait for it, or choose another folder"
            ) from error
        try:
            yield
        except BaseException:
            with suppress(OSError):
                if created and os.listdir(self.path) == [_LOCK]:
                    (self.path / _LOCK).unlink()
                    for path in created:
                        path.rmdir()
            raise
        finally:
            lock.release()

    def check_claim(self, run: Run) -> None:
        """Refuse a folder that was begun with another recipe."""
        if self._begun():
            lost = size_if_there(self.path / RECIPE) is None
            self.refuse_another(self._recipe_of_checkpoint() if lost else self.recipe(), run)

    def claim(self, run: Run) -> None:
        """Write the recipe, unless the run has begun and has it."""
        if not self._begun() or size_if_there(self.path / RECIPE) is None:
            self.write(RECIPE, run.as_json())

    def refuse_another(self, recipe: Run, run: Run) -> None:
        """Raise a ValueError that shows how a run differs, if it does, from what the folder was begun with."""
        if differences := _differences(recipe, run):
            raise ValueError(
                f"{self.path} was begun with another recipe: {'; '.join(differences)}. "
                "Give the run another folder, or remove this one"
            )

    def write(self, name: str, text: str) -> None:
        """Write a file atomically."""
        write_atomically(self.path / name, text)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file atomically."""
        self.write(name, json.dumps(content, indent=2) + "\n")

    def append(self, report: dict[str, Any]) -> None:
        """Add a line to the metrics."""
        with open(self.path / METRICS, "a") as file:
            file.write(json.dumps(report, allow_nan=False) + "\n")

    def copy_records(self, to: str | os.PathLike[str]) -> Path:
        """Copy what tables and figures need, without weights, to this run's place in another folder of runs.

        Returns:
            the copy.
        """
        if (summary := self._result()) is None:
            raise ValueError(f"{self.path} is not finished: only finished runs are kept")
        copy = RunFolder(run_path(to, self.recipe()))
        if (copy.path / SUMMARY).is_file() and copy._result() != summary:
            raise ValueError(f"{copy.path} contains another run of the same name, scale and seed")
        texts = {name: (self.path / name).read_text() for name in (RECIPE, METRICS, ENVIRONMENT)}
        for name, text in texts.items():
            copy.write(name, text)
        copy.write_json(SUMMARY, summary)
        return copy.path

    def metrics_size(self) -> int:
        """Return the size of the metrics so far, in bytes."""
        return size_if_there(self.path / METRICS) or 0

    def sync_metrics(self) -> int:
        """Flush the metrics to the disk and return their size in bytes."""
        if size := self.metrics_size():
            with open(self.path / METRICS, "rb") as written:
                os.fsync(written.fileno())
        return size

    def cut_metrics(self, size: int) -> None:
        """Remove what was reported after a checkpoint; the resumed run will report it again."""
        content = read_if_there(self.path / METRICS) or b""
        if (have := len(content)) < size:
            raise ValueError(
                f"{self.path / METRICS} has {have} bytes, but had {size} at the last checkpoint: records are lost; "
                "remove the folder to train again"
            )
        if size and not content[:size].endswith(b"\n"):
            raise ValueError(f"{self.path / METRICS} is damaged: no line ends at byte {size}, as one did")
        self._reports(content[:size])  # the summary will need them: better now than when all is trained
        if have > size:
            os.truncate(self.path / METRICS, size)

    def _weights(self) -> "tuple[dict[str, Tensor], dict[str, Any]]":
        from sleepconv.experiments.training.checkpoints import CorruptCheckpointError, read_tensors

        try:
            return read_tensors(self.path / WEIGHTS)
        except CorruptCheckpointError as error:
            raise CorruptCheckpointError(f"{error}; {_RESTORE}") from error

    def _result(self) -> dict[str, Any] | None:
        """Return the summary as it is where there are no weights."""
        summary = self.summary()
        return summary and {name: value for name, value in summary.items() if name != WEIGHTS_BYTES}

    def _begun(self) -> bool:
        finished = size_if_there(self.path / SUMMARY) is not None
        return finished or bool(self.metrics_size() or self.checkpoints.paths())

    def _recipe_of_checkpoint(self) -> Run:
        """Return what the folder was begun with, if its recipe is lost."""
        from sleepconv.experiments.training.checkpoints import CorruptCheckpointError, read_tensors

        for path in self.checkpoints.paths():
            with suppress(CorruptCheckpointError):
                _, facts = read_tensors(path)
                if "recipe" in facts:
                    return Run(**checked_fields(facts["recipe"]))
        raise ValueError(
            f"{self.path} was begun, but its {RECIPE} is lost and no checkpoint contains it; "
            "give the run another folder, or remove this one"
        )

    def _reports(self, content: bytes) -> list[dict[str, Any]]:
        lines = content.splitlines(keepends=True)
        return [self._report(line, place) for place, line in enumerate(lines, 1) if line.endswith(b"\n")]

    def _report(self, line: bytes, place: int) -> dict[str, Any]:
        report = _parsed(line, f"line {place} of {self.path / METRICS}")
        if not isinstance(report.get("kind"), str):
            raise ValueError(f"line {place} of {self.path / METRICS} is damaged: `kind` is missing")
        return report

    def _json(self, name: str) -> dict[str, Any] | None:
        content = read_if_there(self.path / name)
        return None if content is None else _parsed(content, str(self.path / name))


def find_runs(*paths: str | os.PathLike[str]) -> list[RunFolder]:
    """Return all runs in these folders and below them, in the order of their paths.

    >>> import tempfile
    >>> find_runs(tempfile.mkdtemp())
    []
    """
    found = {recipe.parent for path in paths for recipe in Path(path).rglob(RECIPE)}
    return [RunFolder(path) for path in sorted(found)]


def run_path(runs: str | os.PathLike[str], run: Run) -> Path:
    """Return the path of a run in a folder of runs.

    >>> run = Run(name="mine", dataset="digits", connectivity="local", learning_rate=1e-3, scale=0.1, seed=2)
    >>> run_path("runs", run).as_posix()
    'runs/mine/scale-0.1-seed-2'
    """
    return Path(runs) / run.name / f"scale-{run.scale:g}-seed-{run.seed}"


def _parsed(text: bytes, where: str) -> dict[str, Any]:
    try:
        content = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{where} is damaged: it must be a JSON object")
    return content


def _differences(old: Run, new: Run) -> list[str]:
    before, now = asdict(old), asdict(new)
    return [f"{name} was {before[name]!r}, is now {now[name]!r}" for name in now if before[name] != now[name]]
