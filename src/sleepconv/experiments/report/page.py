"""The page: its sections, one after the other, in one file."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

from sleepconv.experiments.figures.visual_field import mean_of, visual_field_of
from sleepconv.experiments.report.groups import Group, as_text, group, varying_fields
from sleepconv.experiments.report.pictures import (
    filters_before_and_after_sleep,
    learning_curves,
    sawteeth,
    visual_field_map,
)
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.files import write_atomically

MISSING = "–"


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts, the first column naming the rows.

    >>> html_table(["run", "top-1"], [["a<b", "91.2"]]).count("&lt;")
    1
    """
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "\n".join(f"<tr>{_breakable(name)}{''.join(map(_cell, cells))}</tr>" for name, *cells in rows)
    return f'<div class="wide"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def recipes_table(groups: Sequence[Group]) -> str:
    """Where the recipes differ, as a table; what they have in common, as a sentence below."""
    runs = [group.run for group in groups]
    differing = [name for name in varying_fields(runs) if name != "name"]
    common = [f.name for f in fields(Run) if f.name not in (*differing, "name", "seed")]
    rows = [
        [group.label, *[as_text(getattr(group.run, name)) for name in differing], _seeds(group.folders)]
        for group in groups
    ]
    shared = "; ".join(f"{_words(name)} {as_text(getattr(runs[0], name))}" for name in common)
    intro = "All of them" if len(groups) > 1 else "The recipe"
    head = ["recipe", *map(_words, differing), "seeds"]
    return f"{html_table(head, rows)}\n<p><b>{intro}:</b> {escape(shared)}.</p>"


def accuracy_table(groups: Sequence[Group]) -> str:
    """Mean and spread over the seeds; a run that has not ended says how far it is."""
    head = [
        "recipe",
        "top‑1,\u00a0%",
        "max\u00a0−\u00a0min",
        "top‑5,\u00a0%",
        "set",
        "runs",
        "steps since sleep",
        "minutes a run",
    ]
    return html_table(head, [[group.label, *_accuracy(group.folders)] for group in groups])


def environment_table(groups: Sequence[Group]) -> str:
    """What the runs were computed with; several values of one kind are all listed."""
    folders = [folder for group in groups for folder in group.folders]
    starts = [folder.environments() for folder in folders]
    found = [start for of_one_run in starts for start in of_one_run]
    names = list(dict.fromkeys(name for start in found for name in start if name != "step"))
    rows = [[_words(name), ", ".join(dict.fromkeys(as_text(one.get(name)) for one in found))] for name in names]
    unknown = sum(not of_one_run for of_one_run in starts)
    remark = f"<p>{MISSING} for {unknown} of {len(folders)} runs, which have no record of it.</p>" if unknown else ""
    return (html_table(["", "value"], rows) if rows else "") + remark


def _breakable(name: str) -> str:
    """The name of a row, which may continue on the next line after an underscore."""
    return f'<th scope="row">{escape(name).replace("_", "_<wbr>")}</th>'


def _cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _accuracy(folders: Sequence[RunFolder]) -> list[str]:
    ended = [summary for folder in folders if (summary := folder.summary()) is not None]
    count = f"{len(ended)} of {len(folders)} ended" if len(ended) < len(folders) else f"{len(folders)}"
    if not ended:
        return [MISSING] * 4 + [f"{count}, {_progress(folders)}"] + [MISSING] * 2
    top1 = [summary["top1"] for summary in ended]
    spread = f"{max(top1) - min(top1):.1f}" if len(top1) > 1 else MISSING
    minutes = _mean(ended, "seconds") / 60
    since = dict.fromkeys(as_text(summary.get("steps_since_sleep")) for summary in ended)
    sets = dict.fromkeys(summary["set"] for summary in ended)
    return [
        f"{_mean(ended, 'top1'):.1f}",
        spread,
        f"{_mean(ended, 'top5'):.1f}",
        ", ".join(sets),
        count,
        ", ".join(since),
        f"{minutes:.1f}",
    ]


def _progress(folders: Sequence[RunFolder]) -> str:
    epochs = [len(folder.metrics("epoch")) for folder in folders]
    return f"{max(epochs)} of {folders[0].recipe().scaled_epochs} epochs so far"


def _mean(summaries: Sequence[dict[str, Any]], name: str) -> float:
    return sum(summary[name] for summary in summaries) / len(summaries)


def _seeds(folders: Sequence[RunFolder]) -> str:
    return ", ".join(str(folder.recipe().seed) for folder in folders)


def _words(name: str) -> str:
    return name.replace("_", " ")


StrPath = str | PathLike[str]


def write_report(
    folders: Sequence[RunFolder],
    path: StrPath,
    *,
    title: str = "sleepconv: report",
    introduction: str = "",
    data_dir: StrPath | None = None,
) -> Path:
    """Write one self-contained HTML page about these runs, whole or not at all.

    Args:
        folders: the runs, as from ``find_runs``.
        path: the file to write.
        title: of the page.
        introduction: HTML to stand at the top.
        data_dir: where datasets lie, to measure maps of accuracy that are not among the records.

    >>> write_report([], "report.html")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: there is no run to report on; ...
    """
    if not folders:
        raise ValueError("there is no run to report on; name run folders, or folders with runs below them")
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file, such as {path / 'report.html'}")
    groups = group(folders)
    template = Template(files("sleepconv.experiments.report").joinpath("page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        title=escape(title), introduction=introduction, sections="\n".join(_sections(groups, data_dir))
    )
    write_atomically(path, page)
    return path


def _sections(groups: Sequence[Group], data_dir: StrPath | None) -> list[str]:
    legend = _legend(groups)
    return [
        _section("What was run", recipes_table(groups)),
        _section("Accuracy", "<p>At the end of training; mean over seeds.</p>" + accuracy_table(groups)),
        _section("Learning curves", legend + _pictures(learning_curves(groups))),
        _section(
            "Training and sleep",
            "<p>−log SNR of the weights of each local layer: it rises while the neurons of a grid learn apart from "
            "each other, and falls when they share in their sleep. −∞: the neurons of a grid agree, be it only on one "
            "weight.</p>" + _pictures([figure for one in groups if (figure := sawteeth(one)) is not None]),
        ),
        _section(
            "Filters before and after sleep",
            "<p>Each row is a channel, each column one of the neurons of a grid, along the middle of the visual "
            "field. A sleep gives them all the mean filter, which is smaller where they differed: each half has its "
            "own scale of colours.</p>"
            + _pictures([figure for one in groups if (figure := filters_before_and_after_sleep(one)) is not None])
            + _lost_weights(groups),
        ),
        _section(
            "Accuracy over the visual field",
            "<p>Top-1 accuracy with the test images at each place; the frame, if there is one, holds the places seen "
            "in training.</p>" + _pictures([figure for one in groups if (figure := _map(one, data_dir)) is not None]),
        ),
        _section("Environment", environment_table(groups)),
    ]


def _map(group: Group, data_dir: StrPath | None) -> str | None:
    fields = [field for folder in group.folders if (field := visual_field_of(folder, data_dir)) is not None]
    return visual_field_map(group.label, mean_of(fields), len(fields)) if fields else None


def _lost_weights(groups: Sequence[Group]) -> str:
    folders = [folder for group in groups for folder in group.folders]
    lost = sum(folder.weights_lost() for folder in folders)
    return f"<p>{MISSING} for {lost} of {len(folders)} runs, whose weights are missing.</p>" if lost else ""


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>"


def _pictures(figures: Sequence[str]) -> str:
    return f'<div class="pictures">{"".join(figures)}</div>' if figures else f"<p>{MISSING}</p>"


def _legend(groups: Sequence[Group]) -> str:
    names = (f'<li><i style="background:{one.colour}"></i>{escape(one.label)}</li>' for one in groups)
    return f'<ul class="legend">{"".join(names)}</ul>'
