"""``sleepconv brain``: score, table, plugin."""

import argparse

from sleepconv.cli.verbs import Verbs
from sleepconv.experiments.messages import logger
from sleepconv.files import output_folder

_LAYERS = "compare these layers, by name or class, such as ReLU (default: blocks)"


def add_brain(verbs: Verbs) -> None:
    """Add ``sleepconv brain``."""
    brain = verbs.add_parser(
        "brain",
        help="compare networks with the ventral stream and with people",
        epilog="example: sleepconv brain score runs --data recordings --untrained --pixels",
    )
    actions = brain.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_score(actions)
    _add_table(actions)
    plugin = actions.add_parser(
        "plugin",
        help="write a submission folder for Brain-Score",
        epilog="example: sleepconv brain plugin runs/cifar10_local/scale-1-seed-0 --out submission",
    )
    plugin.add_argument("path", metavar="RUN", help="the finished run")
    plugin.add_argument("--out", required=True, metavar="DIR", help="where to make the submission's folder")
    plugin.add_argument("--layers", nargs="+", metavar="NAME", help=_LAYERS)
    plugin.set_defaults(run=_plugin)


def _add_score(actions: Verbs) -> None:
    score = actions.add_parser(
        "score",
        help="score trained runs on a folder of recordings",
        epilog="example: sleepconv brain score runs --data recordings --untrained --pixels",
    )
    score.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or one with runs below it")
    score.add_argument(
        "--data", required=True, metavar="DIR", help="folder of recordings, dissimilarities, label counts"
    )
    score.add_argument(
        "--out", default="brain", metavar="DIR", help="where to write records, table and figure (default: brain)"
    )
    score.add_argument("--untrained", action="store_true", help="also score the networks before training")
    score.add_argument("--pixels", action="store_true", help="also score the pixels of the images")
    score.add_argument("--layers", nargs="+", metavar="NAME", help=_LAYERS)
    score.add_argument("--data-dir", metavar="DIR", help="where CIFAR-10 is, whose test images behaviour needs")
    score.add_argument("--json", action="store_true", help="print table and records as JSON")
    score.set_defaults(run=_score)


def _add_table(actions: Verbs) -> None:
    table = actions.add_parser(
        "table",
        help="make table and figure from records",
        epilog="example: sleepconv brain table results/brain",
    )
    table.add_argument("records", nargs="+", metavar="RECORD", help="a record, or a folder of them")
    table.add_argument("--out", metavar="DIR", help="also write table.md and layers.png, .svg to this folder")
    table.add_argument("--format", choices=["text", "markdown"], default="text", help="default: text")
    table.add_argument("--json", action="store_true", help="print table and records as JSON")
    table.set_defaults(run=_table)


def _score(options: argparse.Namespace) -> int:
    from sleepconv.experiments.brain.candidates import runs_without_weights
    from sleepconv.experiments.brain.scoreboard import rendered
    from sleepconv.experiments.brain.scoring import score_runs

    records = score_runs(
        options.runs,
        options.data,
        options.out,
        untrained=options.untrained,
        with_pixels=options.pixels,
        layers=options.layers,
        data_dir=options.data_dir,
    )
    for path in runs_without_weights(options.runs):
        logger.warning("%s left out: it is not finished, or has no weights", path)
    print(rendered(records, "json" if options.json else "text"))
    return 0


def _table(options: argparse.Namespace) -> int:
    from sleepconv.experiments.brain import scoreboard

    out = output_folder(options.out) if options.out else None
    records = scoreboard.read_all_scores(options.records)
    if out:
        scoreboard.write(records, out)
    print(scoreboard.rendered(records, "json" if options.json else options.format))
    return 0


def _plugin(options: argparse.Namespace) -> int:
    from sleepconv.experiments.brain.plugin import write_plugin

    print(write_plugin(options.path, output_folder(options.out), layers=options.layers))
    return 0
