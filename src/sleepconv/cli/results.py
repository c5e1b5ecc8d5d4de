"""What records show: the list of recipes, runs, tables, figures and reports."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sleepconv.cli.verbs import Verbs

if TYPE_CHECKING:
    from sleepconv.experiments.runs import RunFolder

_FIGURE_OPTIONS = {"6": ("runs",), "learning": ("runs", "dataset", "scale"), "alignment": ("runs", "table", "scale")}


def add_figure(verbs: Verbs) -> None:
    """Add ``sleepconv figure``."""
    verb = verbs.add_parser(
        "figure",
        help="draw a figure of the paper from its record, simulated if needed",
        epilog="example: sleepconv figure 4a --out figures",
    )
    names = ["4a", "4b", "5a", "5b", "4-noise", "6", "learning", "alignment"]
    verb.add_argument(
        "name",
        choices=names,
        help="which figure; learning: the tables' runs, epoch by epoch; alignment: angles of feedback",
    )
    verb.add_argument("--out", metavar="DIR", default=".", help="where records and figures go (default: here)")
    verb.add_argument("--seed", type=int, metavar="N", help="of a simulation (default: 0)")
    of_runs = verb.add_argument_group("of the figures 6, learning and alignment")
    of_runs.add_argument("--runs", metavar="DIR", nargs="+", help="their records (default: results and runs)")
    of_runs.add_argument("--dataset", metavar="NAME", help="of learning (default: cifar10)")
    of_runs.add_argument(
        "--scale", type=float, metavar="S", help="of learning and alignment (default: the largest found)"
    )
    of_runs.add_argument("--table", metavar="NAME", help="of alignment: wake (default) or wake-bartunov")
    verb.set_defaults(run=_figure)


def _figure(options: argparse.Namespace) -> int:
    for option in ("seed", "runs", "dataset", "scale", "table"):
        if getattr(options, option) is not None and option not in _FIGURE_OPTIONS.get(options.name, ("seed",)):
            raise ValueError(f"--{option} does not apply to figure {options.name}")
    if options.name == "6":
        return _snr_figure(options)
    if options.name == "learning":
        return _learning_figure(options)
    if options.name == "alignment":
        return _alignment_figure(options)
    from sleepconv.experiments.figures import convergence_figures

    folder = Path(options.out)
    simulation = convergence_figures.FIGURES[options.name].record
    record = convergence_figures.load_or_simulate(simulation, folder, seed=options.seed or 0)
    for path in convergence_figures.draw(options.name, record, folder):
        print(path)
    return 0


def _snr_figure(options: argparse.Namespace) -> int:
    from sleepconv.experiments.figures import snr_figure
    from sleepconv.experiments.results.records import DEFAULT_RUNS

    runs = _whole_runs(_existing(options.runs) or DEFAULT_RUNS)
    if not any(snr_figure.find_runs_of_figure(runs)):
        _print_to_stderr(["no run of figure 6 is among the records: sleepconv sweep cifar10_figure_6a trains one"])
    for path in snr_figure.draw(runs, Path(options.out)):
        print(path)
    return 0


def _learning_figure(options: argparse.Namespace) -> int:
    from sleepconv.experiments.figures import learning_figure
    from sleepconv.experiments.results.records import DEFAULT_RUNS

    chosen = {"dataset": options.dataset or "cifar10", "scale": options.scale}
    learning = learning_figure.read_learning(_existing(options.runs) or DEFAULT_RUNS, **chosen)
    _print_to_stderr(learning.left_out)
    for path in learning_figure.draw(learning, Path(options.out)):
        print(path)
    return 0


def _alignment_figure(options: argparse.Namespace) -> int:
    from sleepconv.experiments.figures import alignment_figure
    from sleepconv.experiments.results.records import DEFAULT_RUNS

    chosen = {"table": options.table or "wake", "scale": options.scale}
    alignment = alignment_figure.read_alignment(_existing(options.runs) or DEFAULT_RUNS, **chosen)
    _print_to_stderr(alignment.left_out)
    for path in alignment_figure.draw(alignment, Path(options.out)):
        print(path)
    return 0


def add_list(verbs: Verbs) -> None:
    """Add ``sleepconv list``."""
    verb = verbs.add_parser(
        "list",
        help="all recipes: the paper's number, cost on this machine, records",
        epilog="example: sleepconv list --dataset cifar10",
    )
    verb.add_argument("--dataset", metavar="NAME", help="only the recipes of this dataset")
    verb.add_argument("--runs", metavar="DIR", nargs="+", help="folders of records (default: results and runs)")
    verb.add_argument("--probe", action="store_true", help="measure this machine, to estimate what has no records")
    verb.add_argument("--json", action="store_true", help="the list for a script")
    verb.set_defaults(run=_list)


def _list(options: argparse.Namespace) -> int:
    from sleepconv.experiments.results import listing
    from sleepconv.experiments.results.records import DEFAULT_RUNS, read_records

    records = read_records(_existing(options.runs) or DEFAULT_RUNS)
    speed = None
    if options.probe:
        from sleepconv.experiments.bench.cost import probe

        speed = probe()
    entries = listing.overview(records, options.dataset, speed)
    print(json.dumps(entries) if options.json else listing.as_text(entries))
    _print_to_stderr(records.left_out)
    return 0


def add_runs(verbs: Verbs) -> None:
    """Add ``sleepconv runs``."""
    verb = verbs.add_parser(
        "runs",
        help="the progress, result and cost of each run",
        epilog="example: sleepconv runs runs/cifar10_sleep_every_10",
    )
    verb.add_argument("runs", metavar="DIR", nargs="*", help="folders of runs (default: results and runs)")
    verb.add_argument("--brief", action="store_true", help="only what they reached")
    verb.add_argument("--format", choices=["text", "markdown", "latex"], default="text", help="default: text")
    verb.add_argument("--json", action="store_true", help="the numbers for a script")
    verb.set_defaults(run=_runs)


def _runs(options: argparse.Namespace) -> int:
    from sleepconv.experiments.results import overview
    from sleepconv.experiments.results.records import DEFAULT_RUNS

    entries = overview.overview(_whole_runs(_existing(options.runs) or DEFAULT_RUNS))
    sheet = overview.as_sheet(entries, brief=options.brief)
    print(json.dumps(entries) if options.json else getattr(sheet, options.format)())
    return 0


def add_keep(verbs: Verbs) -> None:
    """Add ``sleepconv keep``."""
    verb = verbs.add_parser(
        "keep",
        help="copy the records of finished runs, without weights, to keep them",
        epilog="example: sleepconv keep runs --into results",
    )
    verb.add_argument("runs", metavar="DIR", nargs="+", help="a run's folder, or one with runs below it")
    verb.add_argument("--into", metavar="DIR", default="results", help="where to (default: results)")
    verb.set_defaults(run=_keep)


def _keep(options: argparse.Namespace) -> int:
    runs = _whole_runs(_existing(options.runs) or [])
    if not runs:
        raise FileNotFoundError(f"no run in {', '.join(options.runs)}: a run is a folder with a recipe.json")
    kept = Path(options.into).resolve()
    if any(kept in folder.path.resolve().parents for folder in runs):
        raise ValueError(f"the runs are in {options.into} already; choose another folder with --into")
    finished = [folder for folder in runs if folder.summary() is not None]
    failed = []
    for folder in finished:
        try:
            print(folder.copy_records(options.into))
        except (ValueError, OSError) as error:
            failed.append(f"{folder.path} was not kept: {error}")
    left_out = [f"{folder.path} left out: it is not finished" for folder in runs if folder not in finished]
    _print_to_stderr(failed + left_out)
    return 1 if failed else 0


def add_table(verbs: Verbs) -> None:
    """Add ``sleepconv table``."""
    verb = verbs.add_parser(
        "table",
        help="a table of the paper from records: ours beside the paper's",
        description="Tables 1, 2, 4-6 and 13 (accuracy), 7-9 (max - min over seeds), 10-12 (hyperparameters), and "
        "ours: learning-speed, miniature, miniature-padding0, wake, wake-bartunov. Each scale has its own table; "
        "what is missing is shown as a dash.",
        epilog="example: sleepconv table 1 --dataset cifar10 --format markdown",
    )
    verb.add_argument(
        "table", type=_table_name, metavar="N", help="its number in the paper, or the name of one of ours"
    )
    verb.add_argument("--dataset", metavar="NAME", help="only this one")
    verb.add_argument("--runs", metavar="DIR", nargs="+", help="folders of records (default: results and runs)")
    verb.add_argument("--scale", type=float, metavar="S", help="only records of this scale (default: each scale found)")
    verb.add_argument("--format", choices=["text", "markdown", "latex", "csv"], default="text", help="default: text")
    verb.add_argument("--json", action="store_true", help="the numbers for a script")
    verb.add_argument("--out", metavar="FILE", help="write it there instead of printing it")
    verb.set_defaults(run=_table)


def _table_name(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _table(options: argparse.Namespace) -> int:
    from sleepconv.experiments.results import tables
    from sleepconv.experiments.results.records import DEFAULT_RUNS
    from sleepconv.files import write_atomically

    chosen = {"dataset": options.dataset, "scale": options.scale}
    blocks, left_out = tables.blocks(options.table, _existing(options.runs) or DEFAULT_RUNS, **chosen)
    text = json.dumps([b.as_dict() for b in blocks]) + "\n" if options.json else tables.rendered(blocks, options.format)
    if options.out:
        write_atomically(Path(options.out), text)
    print(options.out or text.rstrip("\n"))
    _print_to_stderr(left_out)
    return 0


def _existing(folders: list[str] | None) -> list[str] | None:
    """Return the folders that were named, and raise an error if one does not exist."""
    for folder in folders or ():
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"the folder {folder} does not exist")
    return folders


def _print_to_stderr(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"sleepconv: {line}", file=sys.stderr)


def add_report(verbs: Verbs) -> None:
    """Add ``sleepconv report``."""
    verb = verbs.add_parser(
        "report",
        help="write one HTML page about runs",
        epilog="example: sleepconv report runs/cifar10_local --out local.html",
    )
    verb.add_argument("runs", metavar="RUN", nargs="+", help="a run's folder, or one with runs below it")
    verb.add_argument("--out", metavar="FILE", default="report.html", help="the page to write (default: report.html)")
    verb.add_argument(
        "--data-dir", metavar="DIR", help="folder of the datasets, to measure accuracy over the visual field"
    )
    verb.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    from sleepconv.experiments.runs import find_runs

    for path in options.runs:
        if not find_runs(path):
            raise FileNotFoundError(f"no run in {path}: a run is a folder with a recipe.json")

    from sleepconv.experiments.report import write_report

    runs = _whole_runs(options.runs, _check_pictures)
    print(write_report(runs, options.out, data_dir=options.data_dir))
    lost = [folder.path for folder in runs if folder.weights_lost()]
    _print_to_stderr([f"the weights of {path} are missing; the report does without them" for path in lost])
    return 0


def _check_pictures(folder: "RunFolder") -> None:
    """Raise a ValueError or an OSError if weights or a map of accuracy exist but are damaged."""
    from sleepconv.experiments.figures.visual_field import read_visual_field

    read_visual_field(folder)
    with suppress(FileNotFoundError):
        folder.load_model()


def _whole_runs(paths: Sequence[str], *checks: "Callable[[RunFolder], None]") -> "list[RunFolder]":
    """Return the runs below these folders; those whose files are damaged are reported and left out."""
    from sleepconv.experiments.runs import RunFolder, find_runs

    whole = []
    for folder in find_runs(*paths):
        try:
            for check in (RunFolder.check, *checks):
                check(folder)
        except (ValueError, OSError) as error:
            _print_to_stderr([f"{folder.path} left out: {error}"])
        else:
            whole.append(folder)
    return whole
