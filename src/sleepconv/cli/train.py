"""Train one recipe, or sweep over many."""

import argparse
import json
import os

from sleepconv.cli.verbs import Verbs
from sleepconv.files import output_folder


def add_train(verbs: Verbs) -> None:
    """Add ``sleepconv train``."""
    verb = verbs.add_parser(
        "train",
        help="train a recipe, or resume where it was left",
        description="Train one recipe (`sleepconv list` shows them). Killed at any moment, the same command resumes. "
        "On several GPUs or nodes start it with torchrun: torchrun --nproc-per-node 8 -m sleepconv train RECIPE.",
        epilog="example: sleepconv train cifar10_sleep_every_10 --scale 0.1 --set learning_rate=1e-3",
        details=_fields,
    )
    verb.add_argument("recipe", metavar="RECIPE", help="its name; - for the run that a sweep sends to standard input")
    verb.add_argument("--scale", type=float, default=1.0, metavar="S", help="train this fraction of the epochs")
    verb.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    _add_set(verb, "change fields of the recipe, below")
    verb.add_argument("--name", metavar="NAME", help="of the changed recipe (default: the recipe's, with the changes)")
    verb.add_argument("--runs", metavar="DIR", default="runs", help="where the run's folder goes (default: runs)")
    verb.add_argument("--data-dir", metavar="DIR", help="folder of the datasets (default: $SLEEPCONV_DATA)")
    verb.add_argument(
        "--incomplete", action="store_true", help="accept a dataset with fewer images than the official one"
    )
    verb.add_argument(
        "--on-corrupt", choices=["error", "skip"], default="error", help="of image files (default: error)"
    )
    verb.add_argument("--device", metavar="NAME", help="cpu, cuda, ... (default: a GPU if there is one)")
    verb.add_argument("--fsdp", action="store_true", help="several processes: each holds a part of the network")
    verb.add_argument("--tensorboard", action="store_true", help="also write for TensorBoard, into the run's folder")
    verb.add_argument("--json", action="store_true", help="print the summary for a script")
    verb.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> int:
    from sleepconv.experiments.paper import varied
    from sleepconv.experiments.runs import run_path

    sent = options.recipe == "-"
    if sent:
        from sleepconv.experiments.workers import receive_run

        run = receive_run()
    else:
        run = varied(options.recipe, options.set, name=options.name, scale=options.scale, seed=options.seed)
    folder = run_path(output_folder(options.runs), run)

    # PyTorch takes seconds to import: not before the recipe's name is known to be right.
    from sleepconv.experiments.training import train
    from sleepconv.experiments.training.progress import tensorboard

    summary = train(
        run,
        folder,
        data_dir=options.data_dir,
        complete=not options.incomplete,
        on_corrupt=options.on_corrupt,
        device=options.device,
        sharding="fsdp" if options.fsdp else "ddp",
        quiet=sent,
        listeners=[tensorboard(folder / "tensorboard")] if options.tensorboard else [],
    )
    if summary is not None and os.environ.get("RANK", "0") == "0":  # of the processes that torchrun starts, one speaks
        accuracy = f"{summary['set']} top-1 {summary['top1']:.2f} %, top-5 {summary['top5']:.2f} %"
        print(json.dumps({**summary, "folder": str(folder)}) if options.json else f"{folder}: {accuracy}")
    return 0


def add_sweep(verbs: Verbs) -> None:
    """Add ``sleepconv sweep``."""
    verb = verbs.add_parser(
        "sweep",
        help="train what is missing of a table, a search or some recipes",
        description="Train what is missing and skip what is done; a worker that dies is restarted. NAME is table1 to "
        "table13 (except 3, which `sleepconv brain` makes), one of our tables (`sleepconv table --help` lists them), "
        "demo, a recipe, or RECIPE_grid, the hyperparameter search of its rates on the validation split.",
        epilog="example: sleepconv sweep table1 --dataset cifar10 --seeds 5 --scale 0.1",
        details=_fields,
    )
    verb.add_argument("names", metavar="NAME", nargs="+", help="what to train")
    verb.add_argument("--dataset", metavar="NAME", help="only this one of a table's datasets")
    verb.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each, from seed 0 on (default: 1)")
    verb.add_argument("--scale", type=float, default=1.0, metavar="S", help="fraction of the epochs (default: 1)")
    _add_set(verb, "change fields of all recipes, below")
    verb.add_argument("--runs", metavar="DIR", default="runs", help="where the run folders go (default: runs)")
    verb.add_argument("--data-dir", metavar="DIR", help="folder of the datasets (default: $SLEEPCONV_DATA)")
    verb.add_argument(
        "--incomplete", action="store_true", help="accept a dataset with fewer images than the official one"
    )
    verb.add_argument("--jobs", type=int, metavar="J", help="runs at a time (default: 1 here, elsewhere no limit)")
    verb.add_argument("--threads", type=int, metavar="T", help="of each run (default: the cores divided by J)")
    verb.add_argument("--on", choices=["local", "ray", "slurm"], help="where to train (default: local)")
    verb.add_argument("--ray", metavar="ADDRESS", help="of the Ray cluster to train on; needs `pip install ray`")
    verb.add_argument(
        "--slurm", nargs="+", metavar="NAME=VALUE", help="options of the SLURM jobs to train in; needs submitit"
    )
    verb.add_argument("--dry-run", action="store_true", help="only show what would be trained")
    verb.set_defaults(run=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    from sleepconv.experiments.sweep import Where, run_sweep

    on: Where = options.on or ("ray" if options.ray else "slurm" if options.slurm else "local")
    for name in ("ray", "slurm"):
        if getattr(options, name) and on != name:
            raise ValueError(f"--{name} needs --on {name}, got --on {on}")
    names = ("names", "dataset", "seeds", "scale", "runs", "data_dir", "jobs", "threads", "dry_run")
    chosen = {name: getattr(options, name) for name in names}
    chosen |= {"settings": options.set, "complete": not options.incomplete}
    return run_sweep(**chosen, on=on, ray=options.ray or "auto", slurm=options.slurm or (), say=_say)


def _add_set(verb: argparse.ArgumentParser, help: str) -> None:
    verb.add_argument("--set", nargs="+", action="extend", default=[], metavar="FIELD=VALUE", help=help)


def _say(line: str) -> None:
    """Print a line in one piece: the threads of a sweep report at the same time."""
    print(f"{line}\n", end="", flush=True)


def _fields() -> str:
    """List the fields that --set changes, with their values in most recipes."""
    from dataclasses import MISSING, fields
    from textwrap import fill

    from sleepconv.experiments.runs import Run
    from sleepconv.experiments.runs.registry import NETWORKS, RULES
    from sleepconv.experiments.runs.run import CHOICES

    choices = {**CHOICES, "network": tuple(NETWORKS), "sleep_rule": tuple(RULES)}
    left_out = ("name", "seed", "scale")
    lines = ["fields for --set, with their defaults:"]
    for field in (field for field in fields(Run) if field.name not in left_out):
        default = "" if field.default is MISSING else f"={json.dumps(field.default)}".replace('"', "")
        among = f" ({', '.join(choices[field.name])})" if field.name in choices else ""
        default = '={}, or an object like {"decay": 0.01}' if field.name == "sleep_options" else default
        lines.append(fill(f"{field.name}{default}{among}", 90, initial_indent="  ", subsequent_indent="      "))
    return "\n".join(lines)
