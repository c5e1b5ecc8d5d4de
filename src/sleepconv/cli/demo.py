"""``sleepconv demo``."""

import argparse
import json

from sleepconv.cli.verbs import Verbs
from sleepconv.experiments.messages import logger


def add_demo(verbs: Verbs) -> None:
    """Add ``sleepconv demo``."""
    verb = verbs.add_parser(
        "demo",
        help="recognise digits where none was ever seen, in a minute or two",
        epilog="example: sleepconv demo --out demo",
    )
    verb.add_argument("--out", metavar="DIR", default="demo", help="where to write (default: demo)")
    verb.add_argument("--seeds", type=int, default=3, metavar="N", help="number of networks of each kind (default: 3)")
    verb.add_argument("--scale", type=float, default=1.0, metavar="S", help="train this fraction of the epochs")
    verb.add_argument(
        "--wake",
        metavar="RULE",
        default="backprop",
        help="learn without weight transport, by kolen_pollack, for instance",
    )
    verb.add_argument(
        "--grids", choices=["given", "learned"], default="given", help="who shares in sleep: given, or learned before"
    )
    verb.add_argument("--json", action="store_true", help="print the numbers as JSON: {network: {column: accuracy}}")
    verb.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from sleepconv.experiments.shift_demo import run_demo

    chosen = {"seeds": options.seeds, "scale": options.scale, "grids": options.grids, "wake": options.wake}
    demo = run_demo(options.out, **chosen, say=logger.info)
    files = f"maps:   {demo.pictures[0]}\nreport: {demo.report}"
    print(json.dumps(demo.as_dict()) if options.json else f"\n{demo.table()}\n\n{files}")
    return 0
