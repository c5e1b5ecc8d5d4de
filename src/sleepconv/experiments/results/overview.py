"""The table of `sleepconv runs`: how far each run has come, what it reached and what it took."""

import os
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from sleepconv.curves import AGREEMENT
from sleepconv.experiments.paper import RECIPES
from sleepconv.experiments.results.listing import readable
from sleepconv.experiments.results.records import changes
from sleepconv.experiments.results.sheets import Sheet, number
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.runs.reports import log_noise
from sleepconv.files import json_number

_NOTES = (
    "top-1: in percent, after the last epoch so far, on the test set, or on the validation split where it says so; "
    "in training: on the images of that epoch, while it learned. running: the same network with BatchNorm's running "
    "averages, where its statistics were estimated again for the evaluation.",
    "s / epoch: training and evaluation, the median over epochs. CPU s: time of all cores in training, which does not "
    "grow with what else the machine does. asleep: part of the training time. total: all epochs and evaluations.",
    "−log SNR: the median over layers at the last measurement, awake and right after sleep; "
    f"{AGREEMENT} after sleep: the filters of every grid are equal; {AGREEMENT} awake: they are equal in at least one "
    "weight, which suffices to make Eq. 6 infinite.",
)


def run_rows(folders: Iterable[RunFolder]) -> list[dict[str, Any]]:
    """Return what `sleepconv runs` shows, for a script; runs of the same name are adjacent, by scale and seed."""
    entries = [_entry(folder) for folder in folders]
    return sorted(entries, key=lambda entry: (entry["scale"], entry["validation"], _place(entry), entry["seed"]))


def as_sheet(entries: Sequence[dict[str, Any]], *, brief: bool = False) -> Sheet:
    """Return the overview as a table; a brief one has only what the runs reached."""
    columns = ["run", "scale", "seed", "epochs", "top-1", "in training", "s / epoch", "CPU s", "asleep", "total"]
    columns += ["−log SNR awake", "after sleep"]
    shown = columns.index("in training") + 1 if brief else len(columns)
    title = f"{len(entries)} run{'s' * (len(entries) != 1)}"
    return Sheet(title, columns[:shown], [_cells(entry)[:shown] for entry in entries], _NOTES[:1] if brief else _NOTES)


def _entry(folder: RunFolder) -> dict[str, Any]:
    run, reports = folder.recipe(), folder.metrics()
    epochs, evaluations = ([r for r in reports if r["kind"] == kind] for kind in ("epoch", "evaluation"))
    times = [trained["seconds"] + tested["seconds"] for trained, tested in zip(epochs, evaluations, strict=False)]
    trained = sum(epoch["seconds"] for epoch in epochs)
    cpu = [epoch["cpu_seconds"] for epoch in epochs if "cpu_seconds" in epoch]
    return {
        "name": run.name,
        "changed": _changed(run),
        "path": os.fspath(folder.path),
        "scale": run.scale,
        "seed": run.seed,
        "validation": run.tuning,
        "epochs_done": len(evaluations),
        "epochs": run.scaled_epochs,
        "finished": folder.summary() is not None,
        "weights_lost": folder.weights_lost(),
        "top1": evaluations[-1]["top1"] if evaluations else None,
        "running_top1": evaluations[-1].get("running", {}).get("top1") if evaluations else None,
        "train_top1": epochs[-1]["top1"] if epochs else None,
        "seconds_per_epoch": median(times) if times else None,
        "cpu_seconds_per_epoch": median(cpu) if cpu else None,
        "asleep": sum(epoch["sleep_seconds"] for epoch in epochs) / trained if run.sleep_every and trained else None,
        "seconds": sum(times),
        **_last_snr(reports),
    }


def _changed(run: Run) -> dict[str, Any]:
    """Return the fields in which a run differs from the recipe of its name."""
    known = changes(run) if run.name in RECIPES else {}
    return {key: have for key, (have, _) in known.items() if key != "tuning"}


def _last_snr(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the last −log SNR awake and asleep, median over layers; infinities are strings, as JSON has none."""
    last = {report["when"]: report["layers"] for report in reports if report["kind"] == "snr"}
    found = {}
    for when in ("awake", "asleep"):
        middle = log_noise(last[when]) if last.get(when) else None
        found[f"negative_log_snr_{when}"] = None if middle is None else json_number(middle)
    return found


def _place(entry: dict[str, Any]) -> tuple[int, str]:
    """Sort recipes in the order of their tables, and what has no recipe after them."""
    order = list(RECIPES)
    return (order.index(entry["name"]) if entry["name"] in RECIPES else len(order), entry["name"])


def _cells(entry: dict[str, Any]) -> list[str]:
    changes = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in entry["changed"].items())
    done, epochs = entry["epochs_done"], entry["epochs"]
    return [
        entry["name"] + (f" ({changes})" if changes else ""),
        f"{entry['scale']:g}",
        str(entry["seed"]),
        (str(epochs) if entry["finished"] else f"{done} of {epochs}") + ", weights lost" * entry["weights_lost"],
        number(entry["top1"]) + _how_evaluated(entry),
        number(entry["train_top1"]),
        number(entry["seconds_per_epoch"], ".0f"),
        number(entry["cpu_seconds_per_epoch"], ".0f"),
        number(None) if entry["asleep"] is None else f"{100 * entry['asleep']:.1f} %",
        readable(entry["seconds"]),
        *[_snr(entry[f"negative_log_snr_{when}"]) for when in ("awake", "asleep")],
    ]


def _how_evaluated(entry: dict[str, Any]) -> str:
    """Return a remark if it was not evaluated on the test set with running averages."""
    notes = ["validation"] if entry["validation"] and entry["top1"] is not None else []
    if entry["running_top1"] is not None:
        notes.append(f"running: {number(entry['running_top1'])}")
    return f" ({', '.join(notes)})" if notes else ""


def _snr(value: float | str | None) -> str:
    return {"-inf": AGREEMENT, "inf": "∞"}.get(value, value) if isinstance(value, str) else number(value)
