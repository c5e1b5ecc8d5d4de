"""``sleepconv bench``."""

import argparse

from sleepconv.cli.verbs import Verbs


def add_bench(verbs: Verbs) -> None:
    """Add ``sleepconv bench``."""
    verb = verbs.add_parser(
        "bench", help="measure speed and memory as ratios", epilog="example: sleepconv bench --quick"
    )
    verb.add_argument("--json", metavar="FILE", help="also write the numbers to this file")
    verb.add_argument("--markdown", metavar="FILE", help="also write the page to this file")
    verb.add_argument("--quick", action="store_true", help="fewer repetitions and shapes, for a first look")
    verb.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    from sleepconv.experiments.bench import speeds

    print(speeds.run(json_path=options.json, markdown_path=options.markdown, quick=options.quick), end="")
    return 0
