"""Score networks on datasets; each network's scores are one JSON record, and are not computed twice."""

import shutil
import time
from collections import OrderedDict
from collections.abc import Sequence
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
from sleepconv.brain.recordings import BrainDataset, Dissimilarities, LabelCounts, Recording, read_folder
from sleepconv.experiments.brain import scoreboard
from sleepconv.experiments.brain.candidates import Candidate, candidates
from sleepconv.experiments.brain.scoreboard import ScoreRecord, read_scores, write_scores
from sleepconv.experiments.data import Images, cifar10
from sleepconv.experiments.data.description import StrPath


def score_runs(
    runs: Sequence[StrPath],
    data: StrPath,
    out: StrPath,
    *,
    untrained: bool = False,
    with_pixels: bool = False,
    layers: Sequence[str] | None = None,
    data_dir: StrPath | None = None,
) -> list[ScoreRecord]:
    """Score the finished runs at and below these paths on all datasets of the folder ``data``.

    Records, table and figure are written to ``out``. Activations are kept in ``out/activations-FINGERPRINT`` while a
    network is being scored, so that an interrupted call resumes, and are removed when its record is written. Behaviour
    needs the CIFAR-10 test images in ``data_dir``; without them the records say what is missing.

    Returns:
        all records in ``out``, including those of earlier calls.
    """
    folder = Path(out)
    scoreboard.check_folder(folder)
    datasets = read_folder(Path(data))
    names = [dataset.name for dataset in datasets]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two datasets are called {repeated[0]!r}; rename one or leave it out")
    networks = candidates(runs, untrained=untrained, with_pixels=with_pixels, layers=layers, data_dir=data_dir)
    behaviour = any(isinstance(dataset, LabelCounts) for dataset in datasets)
    test, why_not = _test_images(data_dir) if behaviour else (None, "")
    session = _Session(datasets, folder, Settings(), data_dir, test, why_not)
    with tqdm(total=len(networks) * len(datasets), desc="brain", unit=" fits", disable=None) as bar:
        for network in networks:
            session.score_unless_known(network, bar)
    records = scoreboard.read_all_scores([folder])
    scoreboard.write(records, folder)
    return records


def _test_images(data_dir: StrPath | None) -> tuple[Images | None, str]:
    """Return CIFAR-10's test images, or None and the reason."""
    try:
        return cifar10(data_dir, train=False, complete=False), ""
    except FileNotFoundError as error:
        return None, str(error)


@dataclass(frozen=True)
class _Session:
    """What all networks of one call have in common."""

    datasets: Sequence[BrainDataset]
    folder: Path
    settings: Settings
    data_dir: StrPath | None
    test: Images | None
    why_no_test: str

    def score_unless_known(self, network: Candidate, bar: "tqdm[None]") -> None:
        """Write the network's record unless the folder has it."""
        model, layers = network.network()
        contents = [value for dataset in self.datasets for value in vars(dataset).values()]
        fingerprint = digest_of(model, layers, network.prepare, self.settings, self.test is None, *contents)
        path = self.folder / f"{network.name}.json"
        known = read_scores(path) if path.is_file() else {}
        if (known.get("fingerprint"), known.get("data")) == (fingerprint, self.data):
            bar.update(len(self.datasets))
            return
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
        write_scores(self.folder, _rounded(record))
        shutil.rmtree(cache, ignore_errors=True)

    @cached_property
    def data(self) -> dict[str, str]:
        """Digest of each dataset, for label counts including the images: scores on different data differ."""
        images = [] if self.test is None else [self.test.pixels, self.test.labels]
        return {
            data.name: digest_of(*vars(data).values(), *(images if isinstance(data, LabelCounts) else []))
            for data in self.datasets
        }

    def _entry(
        self, dataset: BrainDataset, model: nn.Module, layers: list[str], network: Candidate, cache: Path
    ) -> Entry:
        if isinstance(dataset, LabelCounts):
            return self._behaviour(dataset, model, network)
        features = activations(model, dataset.images, layers, prepare=network.prepare, cache=cache)
        if isinstance(dataset, Recording):
            return fit_recording(dataset, features, self.settings)
        assert isinstance(dataset, Dissimilarities)
        return fit_dissimilarities(dataset, features, self.settings)

    def _behaviour(self, dataset: LabelCounts, model: nn.Module, network: Candidate) -> Entry:
        absent = {"dataset": dataset.name, "region": dataset.region, "method": "error consistency", "score": None}
        if network.read_cifar10 is None:
            return absent | {"missing": "its outputs are not the classes of CIFAR-10"}
        if self.test is None:
            return absent | {"missing": self.why_no_test}
        test = network.read_cifar10(self.data_dir, train=False, complete=False)
        images, labels = test.pixels.permute(0, 2, 3, 1).numpy(), test.labels.numpy()
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
