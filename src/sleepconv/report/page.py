"""The page: its sections, one after the other, in one file."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template

from sleepconv.files import write_atomically
from sleepconv.paper.visual_field import mean_of, visual_field_of
from sleepconv.report.filters import filters_before_and_after_sleep
from sleepconv.report.groups import Group, group
from sleepconv.report.pictures import learning_curves, sawteeth, visual_field_map
from sleepconv.report.tables import MISSING, accuracy_table, environment_table, recipes_table
from sleepconv.training import RunFolder

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
    template = Template(files("sleepconv.report").joinpath("page.html").read_text(encoding="utf-8"))
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
