"""The report: one self-contained HTML page about runs, section by section."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from statistics import mean
from string import Template

from sleepconv.experiments.figures.visual_field import mean_of, visual_field_of
from sleepconv.experiments.report.groups import Group, as_text, group, varying_fields
from sleepconv.experiments.report.pictures import (
    filters_before_and_after_sleep,
    learning_curves,
    sawteeth,
    visual_field_map,
)
from sleepconv.experiments.results.sheets import MISSING, Sheet
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.files import output_file, write_atomically

_StrPath = str | PathLike[str]
_ACCURACY = [
    "recipe",
    "top‑1,\u00a0%",
    "max\u00a0−\u00a0min",
    "top‑5,\u00a0%",
    "set",
    "runs",
    "steps since sleep",
    "minutes a run",
]


def write_report(
    folders: Sequence[RunFolder],
    path: _StrPath,
    *,
    title: str = "sleepconv: report",
    introduction: str = "",
    data_dir: _StrPath | None = None,
) -> Path:
    """Write one self-contained HTML page about these runs atomically.

    Args:
        folders: the runs, as from ``find_runs``.
        path: the file to write.
        title: of the page.
        introduction: HTML for the top of the page.
        data_dir: where datasets are, to measure the accuracy maps that runs do not have yet.

    >>> write_report([], "report.html")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: no runs to report on; ...
    """
    if not folders:
        raise ValueError("no runs to report on; name run folders, or folders with runs below them")
    path = output_file(path)
    groups = group(folders)
    template = Template(files("sleepconv.experiments.report").joinpath("page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        title=escape(title), introduction=introduction, sections="\n".join(_sections(groups, data_dir))
    )
    write_atomically(path, page)
    return path


def _sections(groups: Sequence[Group], data_dir: _StrPath | None) -> list[str]:
    legend = _legend(groups)
    return [
        _section("What was run", _recipes_table(groups)),
        _section("Accuracy", "<p>At the end of training; mean over seeds.</p>" + _accuracy_table(groups)),
        _section("Learning curves", legend + _pictures(learning_curves(groups))),
        _section(
            "Training and sleep",
            "<p>−log SNR of the weights of each local layer: it rises while the neurons of a grid learn "
            "independently, and falls when they share in their sleep. −∞: the neurons of a grid agree exactly, if only "
            "on one weight.</p>" + _pictures(map(sawteeth, groups)),
        ),
        _section(
            "Filters before and after sleep",
            "<p>Each row is a channel, each column one of the neurons of a grid, along the middle of the visual "
            "field. A sleep gives them all the mean filter, which is smaller where they differed: each half has its "
            "own scale of colours.</p>"
            + _pictures(map(filters_before_and_after_sleep, groups))
            + _lost_weights(groups),
        ),
        _section(
            "Accuracy over the visual field",
            "<p>Top-1 accuracy with the test images at each place; the frame, if there is one, holds the places seen "
            "in training.</p>" + _pictures(_map(group, data_dir) for group in groups),
        ),
        _section("Environment", _environment_table(groups)),
    ]


def _recipes_table(groups: Sequence[Group]) -> str:
    """Show where the recipes differ as a table, and what they have in common as a sentence below."""
    runs = [group.run for group in groups]
    differing = [name for name in varying_fields(runs) if name != "name"]
    common = [f.name for f in fields(Run) if f.name not in (*differing, "name", "seed")]
    rows = [
        [group.label, *[as_text(getattr(group.run, name)) for name in differing], _seeds(group.folders)]
        for group in groups
    ]
    shared = "; ".join(f"{_words(name)} {as_text(getattr(runs[0], name))}" for name in common)
    intro = "All recipes" if len(groups) > 1 else "The recipe"
    head = ["recipe", *map(_words, differing), "seeds"]
    return f"{Sheet('', head, rows).html()}\n<p><b>{intro}:</b> {escape(shared)}.</p>"


def _accuracy_table(groups: Sequence[Group]) -> str:
    """Show mean and max − min over the seeds, or how far unfinished runs have come."""
    return Sheet("", _ACCURACY, [[group.label, *_accuracy(group.folders)] for group in groups]).html()


def _accuracy(folders: Sequence[RunFolder]) -> list[str]:
    finished = [summary for folder in folders if (summary := folder.summary()) is not None]
    count = f"{len(finished)} of {len(folders)} finished" if len(finished) < len(folders) else f"{len(folders)}"
    if not finished:
        return [MISSING] * 4 + [f"{count}, {_progress(folders)}"] + [MISSING] * 2
    top1 = [summary["top1"] for summary in finished]
    since = dict.fromkeys(as_text(summary.get("steps_since_sleep")) for summary in finished)
    sets = dict.fromkeys(summary["set"] for summary in finished)
    return [
        f"{mean(top1):.1f}",
        f"{max(top1) - min(top1):.1f}" if len(top1) > 1 else MISSING,
        f"{mean(summary['top5'] for summary in finished):.1f}",
        ", ".join(sets),
        count,
        ", ".join(since),
        f"{mean(summary['seconds'] for summary in finished) / 60:.1f}",
    ]


def _progress(folders: Sequence[RunFolder]) -> str:
    epochs = [len(folder.metrics("epoch")) for folder in folders]
    return f"{max(epochs)} of {folders[0].recipe().scaled_epochs} epochs so far"


def _environment_table(groups: Sequence[Group]) -> str:
    """List what the runs were computed with; runs or resumptions that differ are all listed."""
    folders = [folder for group in groups for folder in group.folders]
    environments = [folder.environments() for folder in folders]
    starts = [start for of_one_run in environments for start in of_one_run]
    names = list(dict.fromkeys(name for start in starts for name in start if name != "step"))
    rows = [[_words(name), ", ".join(dict.fromkeys(as_text(start.get(name)) for start in starts))] for name in names]
    unknown = sum(not of_one_run for of_one_run in environments)
    remark = f"<p>{MISSING} for {unknown} of {len(folders)} runs, which have no record of it.</p>" if unknown else ""
    return (Sheet("", ["", "value"], rows).html() if rows else "") + remark


def _map(group: Group, data_dir: _StrPath | None) -> str | None:
    fields = [field for folder in group.folders if (field := visual_field_of(folder, data_dir)) is not None]
    return visual_field_map(group.label, mean_of(fields), len(fields)) if fields else None


def _lost_weights(groups: Sequence[Group]) -> str:
    folders = [folder for group in groups for folder in group.folders]
    lost = sum(folder.weights_lost() for folder in folders)
    return f"<p>{MISSING} for {lost} of {len(folders)} runs, whose weights are missing.</p>" if lost else ""


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


def _pictures(figures: Iterable[str | None]) -> str:
    drawn = "".join(figure for figure in figures if figure is not None)
    return f'<div class="pictures">{drawn}</div>' if drawn else f"<p>{MISSING}</p>"


def _legend(groups: Sequence[Group]) -> str:
    names = (f'<li><i style="background:{one.colour}"></i>{escape(one.label)}</li>' for one in groups)
    return f'<ul class="legend">{"".join(names)}</ul>'


def _seeds(folders: Sequence[RunFolder]) -> str:
    return ", ".join(str(folder.recipe().seed) for folder in folders)


def _words(name: str) -> str:
    return name.replace("_", " ")
