"""``sleepconv bench``."""

import argparse
import json
from pathlib import Path

from sleepconv.cli.verbs import Verbs
from sleepconv.files import write_atomically


def add_bench(verbs: Verbs) -> None:
    """Add ``sleepconv bench``."""
    verb = verbs.add_parser(
        "bench", help="measure speed and memory as ratios", epilog="example: sleepconv bench --quick"
    )
    verb.add_argument("--json", metavar="FILE", help="also write the numbers to this file")
    verb.add_argument("--markdown", metavar="FILE", help="also write the page to this file")
    verb.add_argument("--quick", action="store_true", help="fewer repetitions and shapes, for a first look")
    verb.add_argument("--device", default="cpu", help="cuda: measure the layers on a GPU instead")
    what = verb.add_mutually_exclusive_group()
    what.add_argument(
        "--roofline", action="store_true", help="compute what bounds each layer on GPUs; measures nothing"
    )
    what.add_argument("--memory", action="store_true", help="compute the memory of training on ImageNet; uses none")
    verb.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    if options.roofline or options.memory or options.device != "cpu":
        _print_gpu_table(options)
        return 0
    from sleepconv.experiments.bench import speeds

    print(speeds.run(json_path=options.json, markdown_path=options.markdown, quick=options.quick), end="")
    return 0


def _print_gpu_table(options: argparse.Namespace) -> None:
    from sleepconv.experiments.bench import gpu, gpu_memory, roofline

    record = {}
    if options.roofline:
        text = page = roofline.page()
    else:
        record = {} if options.memory else gpu.run(options.device, rounds=4 if options.quick else 20)
        sheet = gpu_memory.memory_sheet() if options.memory else gpu.as_sheet(record)
        text, page = sheet.text() + "\n", sheet.markdown() + "\n"
    if options.markdown:
        write_atomically(Path(options.markdown), page)
    if options.json:
        write_atomically(Path(options.json), json.dumps(record, indent=1) + "\n")
    print(text, end="")
