"""Get, check and show datasets."""

import argparse
import json
from textwrap import fill

from sleepconv.cli.verbs import Verbs
from sleepconv.experiments.runs.registry import DATASETS


def add_data(verbs: Verbs) -> None:
    """Add ``sleepconv data``."""
    data = verbs.add_parser(
        "data",
        help="get, check and show the datasets",
        epilog="example: sleepconv data get cifar10 --data-dir ~/datasets",
        details=lambda: fill(f"Datasets: {', '.join(DATASETS)}.", 90),
    )
    actions = data.add_subparsers(title="actions", metavar="ACTION", required=True)
    named = argparse.ArgumentParser(add_help=False)
    named.add_argument("name", metavar="NAME", help="the dataset")
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument(
        "--data-dir", metavar="DIR", help="the folder of the datasets (default: $SLEEPCONV_DATA or ~/.cache/sleepconv)"
    )
    get = actions.add_parser("get", parents=[named, where], help="download, verify and unpack")
    get.add_argument("--mirror", metavar="URL", help="download from here; the official checksums still apply")
    get.set_defaults(run=_get)
    check = actions.add_parser("check", parents=[named, where], help="verify the files and say what is missing")
    check.add_argument("--json", action="store_true", help="print the result as JSON")
    check.set_defaults(run=_check)
    show = actions.add_parser("show", parents=[named, where], help="write a contact sheet")
    show.add_argument("--out", metavar="FILE", help="the picture to write (default: NAME.png)")
    show.add_argument("--padding", type=int, default=0, metavar="N", help="translate by up to N pixels")
    show.set_defaults(run=_show)


def _get(options: argparse.Namespace) -> int:
    DATASETS.check(options.name)  # before PyTorch is imported, which takes seconds
    from sleepconv.experiments.data import find_dataset
    from sleepconv.experiments.data.download import get

    print(get(find_dataset(options.name), options.data_dir, mirror=options.mirror))
    return 0


def _check(options: argparse.Namespace) -> int:
    DATASETS.check(options.name)  # before PyTorch is imported, which takes seconds
    from sleepconv.experiments.data import find_dataset
    from sleepconv.experiments.data.inspection import check

    report = check(find_dataset(options.name), options.data_dir)
    print(json.dumps(report.as_dict()) if options.json else "\n".join(report.lines))
    return 0 if report.usable else 1


def _show(options: argparse.Namespace) -> int:
    DATASETS.check(options.name)  # before PyTorch is imported, which takes seconds
    from sleepconv.experiments.data.inspection import show

    print(show(options.name, options.out, data_dir=options.data_dir, padding=options.padding))
    return 0
