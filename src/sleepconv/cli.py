"""The command line: thin verbs, nothing else. What a verb needs is imported when it runs."""

import argparse
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
