"""``sleepconv size``."""

import argparse
import importlib
import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sleepconv.cli.verbs import Verbs
from sleepconv.experiments.messages import logger
from sleepconv.names import did_you_mean

_COLUMNS = ("weights", "gradient", "moments", "activations", "total")


def add_size(verbs: Verbs) -> None:
    """Add ``sleepconv size``."""
    verb = verbs.add_parser(
        "size",
        help="show what a network needs in memory, per layer",
        description="Show what each layer of a network needs in training when it is locally connected.",
        epilog="examples: sleepconv size resnet20 --input 3 32 32 --batch 128; "
        "sleepconv size my_models:MyNetwork --input 3 128 128",
    )
    verb.add_argument(
        "model", metavar="MODEL", help="a network of sleepconv.models, or MODULE:CALLABLE that returns a model"
    )
    verb.add_argument("--input", nargs="+", type=int, required=True, metavar="N", help="channels, height and width")
    verb.add_argument("--batch", type=int, default=1, metavar="N", help="images in a batch (1)")
    verb.add_argument("--keep-first", type=int, default=0, metavar="N", help="convolutions that stay as they are (0)")
    verb.add_argument("--exclude", nargs="+", default=[], metavar="NAME", help="modules that stay as they are")
    verb.add_argument(
        "--pointwise", action="store_true", help="also convert linear layers on (height, width, features)"
    )
    verb.add_argument("--convolutional", action="store_true", help="the network as it is, without conversion")
    verb.add_argument(
        "--moments", type=int, default=2, metavar="N", help="numbers per weight in the optimizer (2: Adam)"
    )
    verb.add_argument("--json", action="store_true", help="bytes as JSON")
    verb.set_defaults(run=_size)


def _size(options: argparse.Namespace) -> int:
    from sleepconv.memory import machine_memory

    if options.batch < 1 or min(options.input) < 1:
        raise ValueError(f"--input and --batch must be at least 1, got {options.input} and {options.batch}")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        table = _table(options)
    for each in dict.fromkeys(str(warning.message) for warning in said):
        logger.warning("%s", each)
    if options.json:
        print(json.dumps([asdict(layer) | {"total": layer.total} for layer in table], indent=1))
        return 0
    rows = [[layer.name or "(the model itself)", *(getattr(layer, column) for column in _COLUMNS)] for layer in table]
    print(_as_text([*rows, ["total", *(sum(row[i] for row in rows) for i in range(1, 6))]]))
    if available := machine_memory():
        print(f"\nin MB; this machine has {available / 1e6:,.0f}")
    return 0


def _table(options: argparse.Namespace) -> list[Any]:
    import torch

    from sleepconv.nn import memory_table, to_locally_connected

    build = _named(options.model)
    try:
        with torch.device("meta"):
            model = build()
    except (RuntimeError, NotImplementedError):  # it looks at values, which meta tensors do not have
        model = build()
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{options.model} must return a torch.nn.Module, got {type(model).__name__}")
    images = torch.empty(options.batch, *options.input, device="meta")
    chosen = {"keep_first": options.keep_first, "exclude": options.exclude, "pointwise": options.pointwise}
    try:
        if not options.convolutional:
            model = to_locally_connected(model.to("meta"), images, inplace=True, **chosen)
        return memory_table(model, images, moments=options.moments)
    except RuntimeError as error:
        raise ValueError(f"{options.model} does not run on an input of shape {tuple(images.shape)}: {error}") from error


def _as_text(rows: list[list[Any]]) -> str:
    width = max(len(row[0]) for row in rows)
    lines = [" " * width + "".join(f"{column:>13}" for column in _COLUMNS)]
    return "\n".join(lines + [f"{row[0]:<{width}}" + "".join(f"{n / 1e6:13,.2f}" for n in row[1:]) for row in rows])


def _named(name: str) -> Any:
    """Return the callable with this name: ``resnet20`` is ours, ``module:name`` anyone's."""
    if ":" not in name:
        from sleepconv import models

        if name not in models.__all__:
            hint = did_you_mean(name, models.__all__)
            raise ValueError(f"there is no network {name!r} in sleepconv.models (MODULE:CALLABLE names your own){hint}")
        return getattr(models, name)
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    finally:
        sys.path.remove(str(Path.cwd()))
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"module {module!r} has no {attribute!r}")
        found = getattr(found, part)
    return found
