"""The command line: thin verbs, nothing else. What a verb needs is imported when it runs."""

import argparse
import os
import sys
from collections.abc import Sequence

from sleepconv.cli import bench, brain, data, demo, records, train
from sleepconv.cli.verbs import Parser

CLOSED_PIPE = 128 + 13


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; an expected error is one line, ``--debug`` shows its traceback.

    Returns:
        0 if all went well, 1 after an error, 2 if the command was not understood, 128 + its number after a signal.
    """
    options = _parser().parse_args(arguments)
    try:
        code = options.run(options) or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as head, has seen enough: no error, and nothing more to write at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    except (ValueError, TypeError, OSError, RuntimeError, ImportError) as error:
        if options.debug:
            raise
        print(f"sleepconv: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print(f"sleepconv: {interrupt.args[0] if interrupt.args else 'interrupted'}", file=sys.stderr)
        return getattr(interrupt, "exit_code", 130)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sleepconv",
        description="Locally connected networks that become convolutional in their sleep.",
        epilog="sleepconv VERB --help tells more, with an example.",
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    demo.add_demo(verbs)
    records.add_list(verbs)
    train.add_train(verbs)
    train.add_sweep(verbs)
    records.add_runs(verbs)
    records.add_keep(verbs)
    records.add_table(verbs)
    records.add_figure(verbs)
    records.add_report(verbs)
    brain.add_brain(verbs)
    data.add_data(verbs)
    bench.add_bench(verbs)
    return parser
