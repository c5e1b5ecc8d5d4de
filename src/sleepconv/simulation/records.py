"""Records of simulations: JSON that figures are drawn from, and simulated only once."""

import json
import math
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from sleepconv.files import parse_json, write_atomically
from sleepconv.simulation.convergence import Convergence
from sleepconv.simulation.noise import NoisyConvergence

Setup = Convergence | NoisyConvergence

# Zero-mean inputs wherever inhibition is finite: with the text's N(1, 1) the mean input is the strongest
# direction, and finite inhibition shrinks the mean weight along it as fast as the neurons come to share.
SETUPS: dict[str, Setup] = {
    "hebbian": Convergence("hebbian", steps=2000),
    "hebbian-biased": Convergence("hebbian", steps=10_000, inhibition=10.0, input_mean=0.0),
    "circuit": Convergence("circuit", steps=10_000, inhibition=10.0, input_mean=0.0),
    "hebbian-noisy": NoisyConvergence(),
}


def load_or_simulate(name: str, folder: Path, *, seed: int = 0) -> dict[str, Any]:
    """Return the record ``folder/name.json``; simulate and write it unless it has this seed and setup.

    >>> record = load_or_simulate("hebbian", Path("figures"))  # doctest: +SKIP
    """
    path, setup = folder / f"{name}.json", replace(SETUPS[name], seed=seed)
    if path.exists():
        record = read(path)
        if record["setup"] == _plain(asdict(setup)):
            return record
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is not writable; choose another folder with --out")
    write(path, simulate(setup, title=name))
    return read(path)


def simulate(setup: Setup, *, title: str = "simulation") -> dict[str, Any]:
    """Run a simulation under a progress bar; the record holds its setup and its curves.

    >>> record = simulate(Convergence("hebbian", steps=3, kernel_sizes=(1,), decays=(0.1,), runs=1, neurons=2))
    >>> record["setup"]["steps"], record["curves"][0]["steps"]
    (3, [0, 1, 2, 3])
    """
    with tqdm(total=setup.samples, desc=title, unit=" samples", leave=False, disable=None) as bar:
        curves = setup.curves(advance=bar.update)
    return {"setup": _plain(asdict(setup)), "curves": curves}


def write(path: Path, record: dict[str, Any]) -> None:
    """Write a record whole or not at all; numbers that JSON lacks become "inf", "-inf" or "nan".

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write(Path(folder) / "mine.json", {"setup": {}, "curves": [{"steps": [0], "floor": math.inf}]})
    ...     read(Path(folder) / "mine.json")["curves"]
    [{'steps': [0], 'floor': 'inf'}]
    """
    write_atomically(path, json.dumps(_plain(record), allow_nan=False) + "\n")


def read(path: Path) -> dict[str, Any]:
    """Read a record, and say so if the file is none.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write(Path(folder) / "mine.json", {"setup": {"steps": 3}, "curves": []})
    ...     read(Path(folder) / "mine.json")["setup"]
    {'steps': 3}
    """
    try:
        record = parse_json(path.read_text())
        if isinstance(record["setup"], dict) and isinstance(record["curves"], list):
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is not the record of a simulation; move it away, or choose another folder with --out")


def _plain(value: Any) -> Any:
    """Turn tuples into lists, round numbers to seven digits and spell out those that JSON lacks."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else str(value)
    return value
