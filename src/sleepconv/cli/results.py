"""What records show: the list of recipes, runs, tables, figures and reports."""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sleepconv.cli.verbs import Verbs
from sleepconv.experiments.messages import logger
from sleepconv.files import output_file, output_folder, write_atomically

if TYPE_CHECKING:
    from sleepconv.experiments.runs import RunFolder

_Changes = dict[str, Any]  # of the fields of a simulation

_OPTIONS = {
    "6": ("runs",),
    "learning": ("runs", "dataset", "scale"),
    "alignment": ("runs", "table", "scale"),
    "activity": ("runs", "seed"),
    "schedule": ("seed",),
    "learned-grids": ("seed",),
}
# Options of simulated figures: the field of the simulation, the type of its value or values, and help.
_OF_SIMULATIONS: dict[str, tuple[str, type, bool, str]] = {
    "inhibition": ("inhibition", float, False, "α"),
    "tau": ("tau_ms", float, False, "τ of the circuit, in ms"),
    "bias": ("bias", float, False, "b of the circuit"),
    "step": ("step_ms", float, False, "Euler step of the circuit, in ms"),
    "presentation": ("presentation_ms", float, False, "how long the circuit sees an input, in ms"),
    "momentum": ("momentum", float, False, "of the weights"),
    "input-mean": ("input_mean", float, False, "mean of the inputs (default: 0; the paper's text: 1)"),
    "decays": ("decays", float, True, "γ of each curve"),
    "decay": ("decay", float, False, "γ of 4-noise"),
    "noises": ("noises", float, True, "σ of each curve of 4-noise"),
    "kernel-sizes": ("kernel_sizes", int, True, "k of each curve"),
    "values": ("values", float, True, "where robustness is simulated"),
    "neurons": ("neurons", int, False, "how many share"),
    "repetitions": ("runs", int, False, "simulations that are averaged"),
    "steps": ("steps", int, False, "iterations"),
}


def add_figure(verbs: Verbs) -> None:
    """Add ``sleepconv figure``."""
    verb = verbs.add_parser(
        "figure",
        help="draw a figure of the paper from its record, simulated if needed",
        epilog="example: sleepconv figure 4b --inhibition 3 --tau 20 --out figures",
    )
    simulations = ["4a", "4b", "5a", "5b", "4-noise", "robustness", "learned-grids", "schedule", "activity"]
    names = [*simulations, "6", "learning", "alignment"]
    text = "which figure; learning: the tables' runs, epoch by epoch; alignment: angles of feedback weights"
    verb.add_argument("name", choices=names, help=text)
    verb.add_argument("--out", metavar="DIR", default=".", help="where records and figures go (default: here)")
    simulated = verb.add_argument_group(
        "of the simulated figures (schedule, activity and learned-grids have --seed only)"
    )
    simulated.add_argument("--seed", type=int, metavar="N", help="of a simulation (default: 0)")
    simulated.add_argument("--measure", choices=["eq6", "pooled"], help="Eq. 6, or log(Σ variance / Σ mean²)")
    kinds = ["noise", "missing", "wrong", "inhibition", "rectified", "dale"]
    simulated.add_argument("--against", choices=kinds, help="robustness against what (default: all of them)")
    for option, (field, kind, several, text) in _OF_SIMULATIONS.items():
        number = {"type": kind, "metavar": "N" if kind is int else "X", "nargs": "+" if several else None}
        simulated.add_argument(f"--{option}", dest=f"simulated_{field}", help=text, **number)
    of_runs = verb.add_argument_group("of the figures 6, learning, alignment and activity")
    of_runs.add_argument("--runs", metavar="DIR", nargs="+", help="their records (default: results and runs)")
    of_runs.add_argument("--dataset", metavar="NAME", help="of learning (default: cifar10)")
    of_runs.add_argument(
        "--scale", type=float, metavar="S", help="of learning and alignment (default: the largest found)"
    )
    of_runs.add_argument("--table", metavar="NAME", help="of alignment: wake (default) or wake-bartunov")
    verb.set_defaults(run=_figure)


def _figure(options: argparse.Namespace) -> int:
    fields = {option: f"simulated_{field}" for option, (field, *_) in _OF_SIMULATIONS.items()}
    fields |= {option: option for option in ("seed", "measure", "against", "runs", "dataset", "scale", "table")}
    given = {option: getattr(options, field) for option, field in fields.items()}
    given = {option: value for option, value in given.items() if value is not None}
    for option in given.keys() - _options_of(options.name):
        raise ValueError(f"--{option} does not apply to figure {options.name}")
    changes = {
        field: tuple(given[option]) if several else given[option]
        for option, (field, _, several, _) in _OF_SIMULATIONS.items()
        if option in given
    }
    output_folder(options.out)
    draw = _FIGURES.get(options.name, _convergence_figure)
    for path in draw(options, changes):
        print(path)
    return 0


def _options_of(figure: str) -> set[str]:
    """Return the options that a figure has."""
    if figure in _OPTIONS:
        return set(_OPTIONS[figure])
    from sleepconv.experiments.figures import convergence_figures, robustness_figure

    text = convergence_figures.FIGURES.get(figure)
    parameters = robustness_figure.PARAMETERS if text is None else text.parameters
    others = {"seed", "against"} if text is None else {"seed"} if figure == "4-noise" else {"seed", "measure"}
    return others | {option for option, (field, *_) in _OF_SIMULATIONS.items() if field in parameters}


def _convergence_figure(options: argparse.Namespace, changes: _Changes) -> Iterable[Path]:
    from sleepconv.experiments.figures import convergence_figures

    folder, marked = Path(options.out), convergence_figures.suffix(changes)
    simulation = convergence_figures.FIGURES[options.name].record
    record = convergence_figures.load_or_simulate(simulation, folder, seed=options.seed or 0, **changes)
    return convergence_figures.draw(options.name, record, folder, pooled=options.measure == "pooled", marked=marked)


def _robustness_figures(options: argparse.Namespace, changes: _Changes) -> Iterable[Path]:
    from sleepconv.experiments.figures import convergence_figures, robustness_figure
    from sleepconv.simulation.robustness import AGAINST

    if "values" in changes and options.against is None:
        raise ValueError("--values needs --against: what is swept")
    folder, marked = Path(options.out), convergence_figures.suffix(changes)
    for against in AGAINST if options.against is None else (options.against,):
        name = f"robustness-{against}"
        record = convergence_figures.load_or_simulate(name, folder, seed=options.seed or 0, **changes)
        yield from robustness_figure.draw(record, folder, marked=marked)


def _learned_grids_figure(options: argparse.Namespace, _: _Changes) -> Iterable[Path]:
    from sleepconv.experiments.figures import learned_grids_figure

    setup = learned_grids_figure.LearnedGrids(seed=options.seed or 0)
    record = learned_grids_figure.load_or_learn(Path(options.out), setup)
    return learned_grids_figure.draw(record, Path(options.out))


def _snr_figure(options: argparse.Namespace, _: _Changes) -> Iterable[Path]:
    from sleepconv.experiments.figures import snr_figure
    from sleepconv.experiments.results.records import DEFAULT_RUNS

    runs = _whole_runs(_existing(options.runs) or DEFAULT_RUNS)
    if not any(snr_figure.find_runs_of_figure(runs)):
        _warn(["no run of figure 6 is among the records: sleepconv sweep cifar10_figure_6a trains one"])
    return snr_figure.draw(runs, Path(options.out))


def _activity_figure(options: argparse.Namespace, _: _Changes) -> Iterable[Path]:
    from sleepconv.experiments.figures import activity_figure

    runs = _whole_runs(options.runs) if options.runs else [None]
    if len(runs) != 1:
        raise ValueError(f"figure activity needs the folder of one run, got {len(runs)}")
    return activity_figure.draw(Path(options.out), run=runs[0], seed=options.seed or 0)


def _schedule_figure(options: argparse.Namespace, _: _Changes) -> Iterable[Path]:
    from sleepconv.experiments.figures import schedule_figure

    folder = Path(options.out)
    return schedule_figure.draw(schedule_figure.load_or_simulate(folder, seed=options.seed or 0), folder)


def _learning_figure(options: argparse.Namespace, _: _Changes) -> Iterable[Path]:
    from sleepconv.experiments.figures import learning_figure
    from sleepconv.experiments.results.records import DEFAULT_RUNS

    chosen = {"dataset": options.dataset or "cifar10", "scale": options.scale}
    learning = learning_figure.read_learning(_existing(options.runs) or DEFAULT_RUNS, **chosen)
    _warn(learning.left_out)
    return learning_figure.draw(learning, Path(options.out))


def _alignment_figure(options: argparse.Namespace, _: _Changes) -> Iterable[Path]:
    from sleepconv.experiments.figures import alignment_figure
    from sleepconv.experiments.results.records import DEFAULT_RUNS

    chosen = {"table": options.table or "wake", "scale": options.scale}
    alignment = alignment_figure.read_alignment(_existing(options.runs) or DEFAULT_RUNS, **chosen)
    _warn(alignment.left_out)
    return alignment_figure.draw(alignment, Path(options.out))


# The others are those of ``convergence_figures.FIGURES``.
_FIGURES: dict[str, Callable[[argparse.Namespace, _Changes], Iterable[Path]]] = {
    "6": _snr_figure,
    "learning": _learning_figure,
    "alignment": _alignment_figure,
    "activity": _activity_figure,
    "schedule": _schedule_figure,
    "robustness": _robustness_figures,
    "learned-grids": _learned_grids_figure,
}


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
        from sleepconv.experiments.bench.measure import probe

        speed = probe()
    entries = listing.recipe_rows(records, options.dataset, speed)
    print(json.dumps(entries) if options.json else listing.as_text(entries))
    _warn(records.left_out)
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

    entries = overview.run_rows(_whole_runs(_existing(options.runs) or DEFAULT_RUNS))
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
    kept = output_folder(options.into).resolve()
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
    _warn(failed + left_out)
    return 1 if failed else 0


def add_table(verbs: Verbs) -> None:
    """Add ``sleepconv table``."""
    verb = verbs.add_parser(
        "table",
        help="a table of the paper from records: ours beside the paper's",
        description="Tables 1, 2, 4-6 and 13 (accuracy), 7-9 (max - min over seeds), 10-12 (hyperparameters), and "
        "ours: learning-speed, miniature, miniature-padding0, learned-sleep, miniature-vit, miniature-mixer, wake, "
        "wake-bartunov. Each scale has its own table; what is missing is shown as a dash.",
        epilog="example: sleepconv table 1 --dataset cifar10 --format markdown",
    )
    verb.add_argument(
        "table", type=_table_name, metavar="N", help="its number in the paper, or the name of one of ours"
    )
    verb.add_argument("--dataset", metavar="NAME", help="only this one")
    verb.add_argument("--runs", metavar="DIR", nargs="+", help="folders of records (default: results and runs)")
    verb.add_argument("--scale", type=float, metavar="S", help="only records of this scale (default: each scale found)")
    verb.add_argument("--trained", action="store_true", help="only rows that have records")
    verb.add_argument("--format", choices=["text", "markdown", "latex", "csv"], default="text", help="default: text")
    verb.add_argument("--json", action="store_true", help="the numbers for a script")
    verb.add_argument("--out", metavar="FILE", help="write it there instead of printing it")
    verb.set_defaults(run=_table)


def _table_name(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _table(options: argparse.Namespace) -> int:
    from sleepconv.experiments.results import tables
    from sleepconv.experiments.results.records import DEFAULT_RUNS

    out = output_file(options.out) if options.out else None
    chosen = {"dataset": options.dataset, "scale": options.scale, "trained": options.trained}
    blocks, left_out = tables.blocks(options.table, _existing(options.runs) or DEFAULT_RUNS, **chosen)
    text = json.dumps([b.as_dict() for b in blocks]) + "\n" if options.json else tables.rendered(blocks, options.format)
    if out:
        write_atomically(out, text)
    print(out or text.rstrip("\n"))
    _warn(left_out)
    return 0


def _existing(folders: list[str] | None) -> list[str] | None:
    """Return the folders that were named, and raise an error if one does not exist."""
    for folder in folders or ():
        if Path(folder).is_file():
            raise NotADirectoryError(f"{folder} is a file; name a folder of runs")
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"the folder {folder} does not exist")
    return folders


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        logger.warning("%s", line)


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
    _warn([f"the weights of {path} are missing; the report does without them" for path in lost])
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
            _warn([f"{folder.path} left out: {error}"])
        else:
            whole.append(folder)
    return whole
