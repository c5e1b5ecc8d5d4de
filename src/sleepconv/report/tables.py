"""The report's tables: what was run, what came out, and with what it was computed."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from typing import Any

from sleepconv.report.groups import Group, as_text, varying_fields
from sleepconv.training import Run, RunFolder

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
