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
    except (ValueError, TypeError, OSError, RuntimeError) as error:
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
    _add_brain(verbs)
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
    verb = verbs.add_parser("figure", help="draw a figure of the paper from its record, simulated if need be")
    verb.add_argument("name", choices=["4a", "4b", "5a", "5b", "4-noise"], help="which figure")
    verb.add_argument("--out", metavar="DIR", default=".", help="where records and figures go (default: here)")
    verb.add_argument("--seed", type=int, default=0, metavar="N", help="of the simulation (default: 0)")
    verb.set_defaults(run=_figure)


def _figure(options: argparse.Namespace) -> int:
    from sleepconv.paper import convergence_figures
    from sleepconv.simulation import records

    folder = Path(options.out)
    simulation = convergence_figures.FIGURES[options.name].record
    record = records.load_or_simulate(simulation, folder, seed=options.seed)
    for path in convergence_figures.draw(options.name, record, folder):
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


def _add_brain(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    brain = verbs.add_parser("brain", help="how well networks fit the ventral stream and behaviour")
    actions = brain.add_subparsers(title="actions", metavar="ACTION", required=True)
    score = actions.add_parser(
        "score",
        help="score trained runs on a folder of recordings",
        epilog="example: sleepconv brain score runs --data recordings --untrained --pixels",
    )
    score.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or one with runs below it")
    score.add_argument("--data", required=True, metavar="DIR", help="recordings, dissimilarities, label counts")
    score.add_argument("--out", default="brain", metavar="DIR", help="where records go (default: brain)")
    score.add_argument("--untrained", action="store_true", help="also score the networks before training")
    score.add_argument("--pixels", action="store_true", help="also score the images themselves")
    score.add_argument("--layers", nargs="+", metavar="NAME", help="compare these only (default: blocks)")
    score.add_argument("--data-dir", metavar="DIR", help="where CIFAR-10 lies, whose test images behaviour needs")
    score.add_argument("--json", action="store_true", help="the table and records for a script")
    score.set_defaults(run=_brain_score)
    table = actions.add_parser("table", help="make table and figure again from records")
    table.add_argument("records", nargs="+", metavar="RECORD", help="a record, or a folder of them")
    table.add_argument("--out", metavar="DIR", help="also write table.md and layers.png, .svg here")
    table.add_argument("--json", action="store_true", help="the table and records for a script")
    table.set_defaults(run=_brain_table)
    plugin = actions.add_parser("plugin", help="write a submission folder for Brain-Score")
    plugin.add_argument("path", metavar="RUN", help="the finished run")
    plugin.add_argument("--out", required=True, metavar="DIR", help="where the submission's folder is made")
    plugin.set_defaults(run=_brain_plugin)


def _brain_score(options: argparse.Namespace) -> int:
    from sleepconv.brain import report

    records = report.score_runs(
        options.runs,
        options.data,
        options.out,
        untrained=options.untrained,
        with_pixels=options.pixels,
        layers=options.layers,
        data_dir=options.data_dir,
    )
    report.write(records, options.out)
    print(report.as_json(records) if options.json else report.as_text(records))
    return 0


def _brain_table(options: argparse.Namespace) -> int:
    from sleepconv.brain import report
    from sleepconv.brain.records import read_all

    records = read_all(options.records)
    if options.out:
        report.write(records, options.out)
    print(report.as_json(records) if options.json else report.as_text(records))
    return 0


def _brain_plugin(options: argparse.Namespace) -> int:
    from sleepconv.brain.plugin import write_plugin

    print(write_plugin(options.path, options.out))
    return 0
