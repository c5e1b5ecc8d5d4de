"""The command line: thin verbs, nothing else. What a verb needs is imported when it runs."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; an expected error is one line, ``--debug`` shows its traceback."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options) or 0
    except (ValueError, TypeError, OSError, RuntimeError, ImportError) as error:
        if options.debug:
            raise
        print(f"sleepconv: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("sleepconv: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sleepconv", description="Locally connected networks that become convolutional in their sleep."
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_bench(verbs)
    _add_figure(verbs)
    _add_data(verbs)
    _add_list(verbs)
    _add_sweep(verbs)
    _add_table(verbs)
    _add_report(verbs)
    _add_demo(verbs)
    return parser


def _add_bench(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser("bench", help="measure speed and memory, as ratios in one run")
    verb.add_argument("--json", metavar="FILE", help="also write the numbers here")
    verb.add_argument("--markdown", metavar="FILE", help="also write the table here")
    verb.add_argument("--quick", action="store_true", help="fewer repetitions and shapes, for a first look")
    verb.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    from sleepconv.bench import report

    return report.run(json_path=options.json, markdown_path=options.markdown, quick=options.quick)


def _add_figure(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "figure",
        help="draw a figure of the paper from its record, simulated if need be",
        epilog="example: sleepconv figure 4a --out figures",
    )
    verb.add_argument("name", choices=["4a", "4b", "5a", "5b", "4-noise", "6"], help="which figure")
    verb.add_argument("--out", metavar="DIR", default=".", help="where records and figures go (default: here)")
    verb.add_argument("--seed", type=int, default=0, metavar="N", help="of the simulation (default: 0)")
    verb.add_argument("--runs", metavar="DIR", nargs="+", help="of figure 6: its records (default: results and runs)")
    verb.set_defaults(run=_figure)


def _figure(options: argparse.Namespace) -> int:
    if options.name == "6":
        return _snr_figure(options)
    from sleepconv.paper import convergence_figures
    from sleepconv.simulation import records

    folder = Path(options.out)
    simulation = convergence_figures.FIGURES[options.name].record
    record = records.load_or_simulate(simulation, folder, seed=options.seed)
    for path in convergence_figures.draw(options.name, record, folder):
        print(path)
    return 0


def _snr_figure(options: argparse.Namespace) -> int:
    from sleepconv.paper import snr_figure
    from sleepconv.recipes.records import DEFAULT_RUNS
    from sleepconv.training import find_runs

    for path in snr_figure.draw(find_runs(*(options.runs or DEFAULT_RUNS)), Path(options.out)):
        print(path)
    return 0


def _add_data(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    data = verbs.add_parser(
        "data",
        help="get, check and show the datasets",
        description="Datasets: digits, cifar10, cifar100, tiny-imagenet, imagenet, fashion-mnist.",
        epilog="example: sleepconv data get cifar10 --data-dir ~/datasets",
    )
    actions = data.add_subparsers(title="actions", metavar="ACTION", required=True)
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("name", metavar="NAME", help="the dataset")
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument(
        "--data-dir", metavar="DIR", help="where data lie (default: $SLEEPCONV_DATA or ~/.cache/sleepconv)"
    )
    get = actions.add_parser("get", parents=[named, where], help="download, verify and unpack")
    get.add_argument("--mirror", metavar="URL", help="take the files from here; the checksums stay")
    get.set_defaults(run=_data_get)
    check = actions.add_parser("check", parents=[named, where], help="verify; say what is missing")
    check.add_argument("--json", action="store_true", help="the result for a script")
    check.set_defaults(run=_data_check)
    show = actions.add_parser("show", parents=[named, where], help="write a contact sheet")
    show.add_argument("--out", metavar="FILE", help="the picture to write (default: NAME.png)")
    show.add_argument("--padding", type=int, default=0, metavar="N", help="translate by up to N pixels")
    show.set_defaults(run=_data_show)
    shard = actions.add_parser("shard", parents=[where], help="write ImageNet as WebDataset tar shards")
    shard.add_argument("folder", metavar="DIR", help="the folder to make")
    shard.set_defaults(run=_data_shard)
    bench = actions.add_parser("bench", parents=[where], help="measure how fast batches are made")
    bench.add_argument("--json", action="store_true", help="the numbers for a script")
    bench.set_defaults(run=_data_bench)


def _data_get(options: argparse.Namespace) -> int:
    from sleepconv.data.acquisition import get
    from sleepconv.data.catalogue import find_dataset

    print(get(find_dataset(options.name), options.data_dir, mirror=options.mirror))
    return 0


def _data_check(options: argparse.Namespace) -> int:
    from sleepconv.data.catalogue import find_dataset
    from sleepconv.data.inspection import check

    report = check(find_dataset(options.name), options.data_dir)
    print(json.dumps(report.as_dict()) if options.json else "\n".join(report.lines))
    return 0 if report.usable else 1


def _data_show(options: argparse.Namespace) -> int:
    from sleepconv.data.contact_sheet import show

    print(show(options.name, options.out, data_dir=options.data_dir, padding=options.padding))
    return 0


def _data_shard(options: argparse.Namespace) -> int:
    from sleepconv.data.shards import write_imagenet_shards

    print(write_imagenet_shards(options.folder, options.data_dir))
    return 0


def _data_bench(options: argparse.Namespace) -> int:
    from sleepconv.data import bench

    result = bench.run(options.data_dir)
    print(json.dumps(result) if options.json else bench.as_text(result))
    return 0


def _add_list(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "list",
        help="all recipes: the paper's number, cost on this machine, records",
        epilog="example: sleepconv list --dataset cifar10",
    )
    verb.add_argument("--dataset", metavar="NAME", help="only the recipes of this dataset")
    verb.add_argument("--runs", metavar="DIR", nargs="+", help="where records lie (default: results and runs)")
    verb.add_argument("--json", action="store_true", help="the list for a script")
    verb.set_defaults(run=_list)


def _list(options: argparse.Namespace) -> int:
    from sleepconv.paper import listing
    from sleepconv.recipes.records import DEFAULT_RUNS, read_records

    records = read_records(options.runs or DEFAULT_RUNS)
    entries = listing.overview(records, options.dataset)
    print(json.dumps(entries) if options.json else listing.as_text(entries))
    _print_to_stderr(records.left_out)
    return 0


def _add_sweep(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "sweep",
        help="train what is missing of a table, a grid search or some recipes",
        description="Train what is missing and skip what is done; a worker that dies is started again. NAME is table1 "
        "to table13, a recipe, or RECIPE_grid for the search of its rates on the validation split.",
        epilog="example: sleepconv sweep table1 --dataset cifar10 --seeds 5 --scale 0.1",
    )
    verb.add_argument("names", metavar="NAME", nargs="+", help="what to train")
    verb.add_argument("--dataset", metavar="NAME", help="only this one of a table's datasets")
    verb.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each, from seed 0 on (default: 1)")
    verb.add_argument("--scale", type=float, default=1.0, metavar="S", help="fraction of the epochs (default: 1)")
    verb.add_argument("--runs", metavar="DIR", default="runs", help="where the run folders go (default: runs)")
    verb.add_argument("--data-dir", metavar="DIR", help="where data lie (default: $SLEEPCONV_DATA)")
    verb.add_argument("--jobs", type=int, default=1, metavar="J", help="runs at a time on this machine (default: 1)")
    verb.add_argument("--threads", type=int, metavar="T", help="of each run (default: the cores divided by J)")
    verb.add_argument("--ray", metavar="ADDRESS", help="train on this Ray cluster; needs sleepconv[ray]")
    verb.add_argument("--dry-run", action="store_true", help="only show what would be trained")
    verb.set_defaults(run=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    from sleepconv.sweep import command

    chosen = vars(options)
    return command.run(**{name: chosen[name] for name in command.OPTIONS}, say=lambda line: print(line, flush=True))


def _add_table(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "table",
        help="a table of the paper from records: ours beside the paper's",
        description="Tables 1, 2, 4-6 and 13 (accuracy), 7-9 (max - min over seeds), 10-12 (hyperparameters). A scale "
        "is a table of its own; what is missing is shown as a dash.",
        epilog="example: sleepconv table 1 --dataset cifar10 --format markdown",
    )
    verb.add_argument("number", type=int, metavar="N", help="its number in the paper")
    verb.add_argument("--dataset", metavar="NAME", help="only this one")
    verb.add_argument("--runs", metavar="DIR", nargs="+", help="where records lie (default: results and runs)")
    verb.add_argument("--scale", type=float, metavar="S", help="only records of this scale (default: each scale found)")
    verb.add_argument("--format", choices=["text", "markdown", "latex", "csv"], default="text", help="default: text")
    verb.add_argument("--json", action="store_true", help="the numbers for a script")
    verb.add_argument("--out", metavar="FILE", help="write it there instead of printing it")
    verb.set_defaults(run=_table)


def _table(options: argparse.Namespace) -> int:
    from sleepconv.data.locations import write_atomically
    from sleepconv.paper import tables
    from sleepconv.recipes.records import DEFAULT_RUNS

    chosen = {"dataset": options.dataset, "scale": options.scale}
    blocks, left_out = tables.blocks(options.number, options.runs or DEFAULT_RUNS, **chosen)
    text = json.dumps([b.as_dict() for b in blocks]) + "\n" if options.json else tables.rendered(blocks, options.format)
    if options.out:
        write_atomically(Path(options.out), text)
    print(options.out or text.rstrip("\n"))
    _print_to_stderr(left_out)
    return 0


def _print_to_stderr(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"sleepconv: {line}", file=sys.stderr)


def _add_report(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "report",
        help="write one HTML page about runs",
        epilog="example: sleepconv report runs/cifar10_local --out local.html",
    )
    verb.add_argument("runs", metavar="RUN", nargs="+", help="a run's folder, or one with runs below it")
    verb.add_argument("--out", metavar="FILE", default="report.html", help="the page to write (default: report.html)")
    verb.add_argument("--data-dir", metavar="DIR", help="where data lie, to measure accuracy over the visual field")
    verb.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    from sleepconv.report import write_report
    from sleepconv.training import find_runs

    for path in options.runs:
        if not find_runs(path):
            raise FileNotFoundError(f"there is no run in {path}: a run is a folder with a recipe.json")
    print(write_report(find_runs(*options.runs), options.out, data_dir=options.data_dir))
    return 0


def _add_demo(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    verb = verbs.add_parser(
        "demo",
        help="digits where no digit was ever seen, in a minute or two",
        epilog="example: sleepconv demo --out demo",
    )
    verb.add_argument("--out", metavar="DIR", default="demo", help="where to write (default: demo)")
    verb.add_argument("--seeds", type=int, default=3, metavar="N", help="networks of each kind (default: 3)")
    verb.add_argument("--scale", type=float, default=1.0, metavar="S", help="train this fraction of the epochs")
    verb.add_argument("--json", action="store_true", help="the numbers for a script: {network: {column: accuracy}}")
    verb.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from sleepconv.demo import run_demo

    chosen = {"seeds": options.seeds, "scale": options.scale}
    demo = run_demo(options.out, **chosen, say=lambda text: print(text, file=sys.stderr))
    text = f"\n{demo.table()}\n\nmaps:   {demo.pictures[0]}\nreport: {demo.report}"
    print(json.dumps(demo.as_dict()) if options.json else text)
    return 0
