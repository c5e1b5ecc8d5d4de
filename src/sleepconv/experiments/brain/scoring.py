"""Score networks on datasets; each network's scores are one JSON record, and are not computed twice."""

import json
import shutil
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

from torch import nn
from tqdm import tqdm

from sleepconv.brain.activations import activations, digest_of
from sleepconv.brain.fits import Entry, Settings, fit_behaviour, fit_dissimilarities, fit_recording
from sleepconv.brain.recordings import Dataset, Dissimilarities, LabelCounts, Recording
from sleepconv.experiments.brain.candidates import Candidate
from sleepconv.experiments.data import Images, cifar10
from sleepconv.experiments.data.description import StrPath
from sleepconv.files import parse_json, write_atomically

ScoreRecord = dict[str, Any]


def score(
    networks: Sequence[Candidate],
    datasets: Sequence[Dataset],
    folder: Path,
    *,
    settings: Settings | None = None,
    data_dir: StrPath | None = None,
) -> list[ScoreRecord]:
    """Score every network on every dataset, with a progress bar, and write the records to ``folder``.

    Activations are kept in ``folder/activations-FINGERPRINT`` while a network is being scored, so that an interrupted
    call resumes, and are removed when its record is written. Behaviour needs the CIFAR-10 test images in ``data_dir``;
    without them the records say what is missing.
    """
    names = [dataset.name for dataset in datasets]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two datasets are called {repeated[0]!r}; rename one or leave it out")
    behaviour = any(isinstance(dataset, LabelCounts) for dataset in datasets)
    session = _Session(datasets, folder, settings or Settings(), *(_test_images(data_dir) if behaviour else (None, "")))
    with tqdm(total=len(networks) * len(datasets), desc="brain", unit=" fits", disable=None) as bar:
        return [session.load_or_score(network, bar) for network in networks]


def write_scores(folder: Path, record: ScoreRecord) -> Path:
    """Write a record atomically as ``folder/name.json``."""
    path = folder / f"{record['name']}.json"
    write_atomically(path, json.dumps(record, indent=1, allow_nan=False) + "\n")
    return path


def read_scores(path: Path) -> ScoreRecord:
    """Read one record; raise a ValueError if the file is something else."""
    try:
        record = parse_json(path.read_text())
        if all(isinstance(record[key], str) for key in ("name", "row", "kind")) and isinstance(record["scores"], list):
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is not a record of `sleepconv brain score`; move it away or choose another folder")


def read_all_scores(paths: Iterable[Path | str]) -> list[ScoreRecord]:
    """Read the records in these files and folders, in alphabetical order; two records of one network must agree."""
    files = [file for path in map(Path, paths) for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise FileNotFoundError(f"no record in {', '.join(map(str, paths))}; `sleepconv brain score` writes them")
    found: dict[str, tuple[Path, ScoreRecord]] = {}
    for file in files:
        record = read_scores(file)
        first, known = found.setdefault(record["name"], (file, record))
        if record != known and _identity(record) != _identity(known):
            raise ValueError(
                f"{first} and {file} are different records of {record['name']}, with other weights, data or settings; "
                "leave one out"
            )
    return [record for _, record in found.values()]


def conditions(record: ScoreRecord) -> str:
    """Describe the data and settings of a record: only scores with the same ones can be compared or averaged.

    >>> record = {"data": {"mine": "1f3a"}, "settings": {"folds": 10}, "scores": []}
    >>> conditions(record) == conditions(record | {"data": {"mine": "77c0"}})
    False
    """
    names = sorted(entry["dataset"] for entry in record["scores"])
    return json.dumps([names, record.get("data"), record.get("settings")], sort_keys=True)


def _identity(record: ScoreRecord) -> tuple[Any, ...]:
    """Return what two records of one network share even if one took longer: weights, data and settings."""
    return record.get("fingerprint", record["scores"]), record.get("data"), record.get("settings")


def _test_images(data_dir: StrPath | None) -> tuple[Images | None, str]:
    """Return CIFAR-10's test images, or None and the reason."""
    try:
        return cifar10(data_dir, train=False, complete=False), ""
    except FileNotFoundError as error:
        return None, str(error)


@dataclass(frozen=True)
class _Session:
    """What all networks of one call have in common."""

    datasets: Sequence[Dataset]
    folder: Path
    settings: Settings
    test: Images | None
    why_no_test: str

    def load_or_score(self, network: Candidate, bar: "tqdm[None]") -> ScoreRecord:
        """Return the network's record, computed unless the folder has it."""
        model, layers = network.network()
        contents = [value for dataset in self.datasets for value in vars(dataset).values()]
        fingerprint = digest_of(model, layers, network.prepare, self.settings, self.test is None, *contents)
        path = self.folder / f"{network.name}.json"
        known = read_scores(path) if path.is_file() else {}
        if (known.get("fingerprint"), known.get("data")) == (fingerprint, self.data):
            bar.update(len(self.datasets))
            return known
        started, entries = time.perf_counter(), []
        cache = self.folder / f"activations-{fingerprint}"  # no folder of a user's has this name
        for dataset in self.datasets:
            bar.set_postfix_str(f"{network.name}: {dataset.name}")
            try:
                entries.append(entry := self._entry(dataset, model, layers, network, cache))
                _check_finite(entry)
            except ValueError as error:
                raise ValueError(f"{network.name} on {dataset.name}: {error}") from error
            bar.update()
        record = {
            "name": network.name,
            "row": network.row,
            "kind": network.kind,
            "run": network.run,
            "top1": network.summary.get("top1"),
            "input_size": list(network.prepare.input_size),
            "sleepconv": version("sleepconv"),
            "settings": asdict(self.settings),
            "data": self.data,
            "seconds": time.perf_counter() - started,
            "fingerprint": fingerprint,
            "scores": entries,
        }
        record = _rounded(record)
        write_scores(self.folder, record)
        shutil.rmtree(cache, ignore_errors=True)
        return record

    @cached_property
    def data(self) -> dict[str, str]:
        """Digest of each dataset, for label counts including the images: scores on different data differ."""
        images = [] if self.test is None else [self.test.pixels, self.test.labels]
        return {
            data.name: digest_of(*vars(data).values(), *(images if isinstance(data, LabelCounts) else []))
            for data in self.datasets
        }

    def _entry(self, dataset: Dataset, model: nn.Module, layers: list[str], network: Candidate, cache: Path) -> Entry:
        if isinstance(dataset, LabelCounts):
            return self._behaviour(dataset, model, network)
        features = activations(model, dataset.images, layers, prepare=network.prepare, cache=cache)
        if isinstance(dataset, Recording):
            return fit_recording(dataset, features, self.settings)
        assert isinstance(dataset, Dissimilarities)
        return fit_dissimilarities(dataset, features, self.settings)

    def _behaviour(self, dataset: LabelCounts, model: nn.Module, network: Candidate) -> Entry:
        absent = {"dataset": dataset.name, "region": dataset.region, "method": "error consistency", "score": None}
        if not network.answers_cifar10:
            return absent | {"missing": "its outputs are not the classes of CIFAR-10"}
        if self.test is None:
            return absent | {"missing": self.why_no_test}
        images, labels = self.test.pixels.permute(0, 2, 3, 1).numpy(), self.test.labels.numpy()
        if len(images) != len(dataset.counts):
            raise ValueError(
                f"{dataset.name} has label counts of {len(dataset.counts)} images, but there are {len(images)} images"
            )
        wrapped = nn.Sequential(OrderedDict(network=model))
        logits = activations(wrapped, images, ["network"], prepare=network.prepare, batch_size=250)["network"]
        return fit_behaviour(dataset, logits, labels, self.settings)


def _check_finite(entry: Entry) -> None:
    """Raise a ValueError for NaN or infinity, before it can spoil a record."""
    for key, value in entry.items():
        if isinstance(value, dict):
            _check_finite(value)
        elif isinstance(value, float) and not isfinite(value):
            raise ValueError(f"{key} is {value}: too few images, or neurons that respond to too few of them")


def _rounded(value: Any) -> Any:
    """Round every float to six significant digits.

    >>> _rounded({"r": [0.12345678]})
    {'r': [0.123457]}
    """
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
