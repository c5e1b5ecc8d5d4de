"""The command line: thin verbs, each of which imports what it needs when it runs."""

import argparse
import os
import select
import sys
from collections.abc import Sequence

from sleepconv.cli import bench, brain, completion, data, demo, results, size, train
from sleepconv.cli.verbs import Parser, Version, WithoutHeading
from sleepconv.experiments.messages import logger, shown_on_standard_error
from sleepconv.experiments.runs.registry import load_extensions

CLOSED_PIPE = 128 + 13


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; expected errors are reported in one line, and with a traceback if ``--debug`` is given.

    Returns:
        0 on success, 1 after an error, 2 for a usage error, 128 + its number after a signal.
    """
    options = _parser().parse_args(arguments)
    with shown_on_standard_error():
        try:
            load_extensions()
            return options.run(options) or 0
        except (ValueError, TypeError, OSError, RuntimeError, ImportError) as error:
            if options.debug or (isinstance(error, BrokenPipeError) and _output_is_closed()):
                raise
            logger.error("%s", error)
            return 1
        except KeyboardInterrupt as interrupt:
            logger.error("%s", interrupt.args[0] if interrupt.args else "interrupted")
            return getattr(interrupt, "exit_code", 130)


def program() -> int:
    """Run `main` as a process; a reader that stops early (``sleepconv list | head``) is not an error."""
    try:
        try:
            return main()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        if not _output_is_closed():
            raise
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # Python flushes standard output once more at exit
        os.close(nowhere)
        return CLOSED_PIPE


def _output_is_closed() -> bool:
    """Whether standard output, and not some other pipe, is broken."""
    try:
        sys.stdout.flush()
        reader = select.poll()
        reader.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in reader.poll(0))
    except BrokenPipeError:
        return True
    except (AttributeError, OSError):  # not a file, or no poll on this system
        return False


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="sleepconv",
        description="Locally connected networks that become convolutional in their sleep.",
        formatter_class=WithoutHeading,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.set_defaults(debug=False)
    parser.add_argument("--version", action=Version, help="show versions")
    title = "verbs (sleepconv VERB --help has details and an example)"
    verbs = parser.add_subparsers(title=title, metavar="VERB", required=True)
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
    size.add_size(verbs)
    completion.add_completion(verbs, parser)
    return parser
