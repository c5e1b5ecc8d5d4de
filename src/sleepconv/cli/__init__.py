"""The command line: thin verbs, nothing else. What a verb needs is imported when it runs."""

import argparse
import os
import select
import sys
from collections.abc import Sequence

from sleepconv.cli import bench, brain, data, demo, results, train
from sleepconv.cli.verbs import Parser

CLOSED_PIPE = 128 + 13


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; an expected error is one line, ``--debug`` shows its traceback.

    Returns:
        0 if all went well, 1 after an error, 2 if the command was not understood, 128 + its number after a signal.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except (ValueError, TypeError, OSError, RuntimeError, ImportError) as error:
        if options.debug or (isinstance(error, BrokenPipeError) and _nobody_reads()):
            raise
        print(f"sleepconv: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print(f"sleepconv: {interrupt.args[0] if interrupt.args else 'interrupted'}", file=sys.stderr)
        return getattr(interrupt, "exit_code", 130)


def program() -> int:
    """``main`` as a process of its own, whose reader may have seen enough (``sleepconv list | head``): no error."""
    try:
        try:
            return main()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # Python flushes once more when it ends
        os.close(nowhere)
        return CLOSED_PIPE


def _nobody_reads() -> bool:
    """Whether it is standard output, and not some other pipe, that is broken."""
    try:
        sys.stdout.flush()
        reader = select.poll()
        reader.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in reader.poll(0))
    except BrokenPipeError:
        return True
    except (AttributeError, OSError):  # not a file, or a system without poll
        return False


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sleepconv",
        description="Locally connected networks that become convolutional in their sleep.",
        epilog="sleepconv VERB --help tells more, with an example.",
    )
    parser.set_defaults(debug=False)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    demo.add_demo(verbs)
    results.add_list(verbs)
    train.add_train(verbs)
    train.add_sweep(verbs)
    results.add_runs(verbs)
    results.add_keep(verbs)
    results.add_table(verbs)
    results.add_figure(verbs)
    results.add_report(verbs)
    brain.add_brain(verbs)
    data.add_data(verbs)
    bench.add_bench(verbs)
    return parser
