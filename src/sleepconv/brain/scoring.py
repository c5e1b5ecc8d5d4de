"""Score networks on all datasets of a folder, one record each; what is recorded is not scored again."""

import shutil
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from torch import nn
from tqdm import tqdm

from sleepconv.brain import records
from sleepconv.brain.activations import activations, digest_of, digest_of_values
from sleepconv.brain.candidates import Candidate
from sleepconv.brain.datasets import Dataset, Dissimilarities, LabelCounts, Recording
from sleepconv.brain.fits import Entry, Settings, fit_behaviour, fit_dissimilarities, fit_recording
from sleepconv.brain.records import Record
from sleepconv.data import Images, cifar10
from sleepconv.data.locations import StrPath


def score(
    networks: Sequence[Candidate],
    datasets: Sequence[Dataset],
    folder: Path,
    *,
    settings: Settings | None = None,
    data_dir: StrPath | None = None,
) -> list[Record]:
    """Score every network on every dataset, under a progress bar; records go to ``folder``.

    Activations lie in ``folder/activations-FINGERPRINT`` while a network is being scored, so that an interrupted call
    continues, and are removed when its record is written. Behaviour needs the CIFAR-10 test images in ``data_dir``;
    without them the records say what is missing.
    """
    _check_names(datasets)
    behaviour = any(isinstance(dataset, LabelCounts) for dataset in datasets)
    session = _Session(datasets, folder, settings or Settings(), *(_test_images(data_dir) if behaviour else (None, "")))
    with tqdm(total=len(networks) * len(datasets), desc="brain", unit=" fits", disable=None) as bar:
        return [session.load_or_score(network, bar) for network in networks]


def _check_names(datasets: Sequence[Dataset]) -> None:
    """Scores are told apart by the names of the data."""
    names = [dataset.name for dataset in datasets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two datasets are called {twice[0]!r}; give each a name of its own, or leave one out")


def _test_images(data_dir: StrPath | None) -> tuple[Images | None, str]:
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

    def load_or_score(self, network: Candidate, bar: "tqdm[None]") -> Record:
        model, layers = network.network()
        decides = [value for dataset in self.datasets for value in vars(dataset).values()]
        fingerprint = digest_of(model, layers, network.prepare, self.settings, self.test is None, *decides)
        path = self.folder / f"{network.name}.json"
        known = records.read(path) if path.is_file() else {}
        if (known.get("fingerprint"), known.get("data")) == (fingerprint, self.data):
            bar.update(len(self.datasets))
            return known
        started, entries = time.perf_counter(), []
        cache = self.folder / f"activations-{fingerprint}"  # a name that nobody else gives to a folder of theirs
        for dataset in self.datasets:
            bar.set_postfix_str(f"{network.name}: {dataset.name}")
            try:
                entries.append(entry := self._entry(dataset, model, layers, network, cache))
                records.check_finite(entry)
            except ValueError as error:
                raise ValueError(f"{network.name} on {dataset.name}: {error}") from error
            bar.update()
        made = {"settings": asdict(self.settings), "data": self.data, "seconds": time.perf_counter() - started}
        record = records.rounded(_described(network) | made)
        record |= {"fingerprint": fingerprint, "scores": records.rounded(entries)}
        records.write(self.folder, record)
        shutil.rmtree(cache, ignore_errors=True)
        return record

    @cached_property
    def data(self) -> dict[str, str]:
        """A digest of each dataset, for label counts with the images: a score on other data is another score."""
        images = [] if self.test is None else [self.test.pixels, self.test.labels]
        return {
            data.name: digest_of_values(*vars(data).values(), *(images if isinstance(data, LabelCounts) else []))
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
            return absent | {"missing": "it does not answer with the classes of CIFAR-10"}
        if self.test is None:
            return absent | {"missing": self.why_no_test}
        images, labels = self.test.pixels.permute(0, 2, 3, 1).numpy(), self.test.labels.numpy()
        if len(images) != len(dataset.counts):
            raise ValueError(
                f"{dataset.name} counts labels of {len(dataset.counts)} images, but {len(images)} are here"
            )
        whole = nn.Sequential(OrderedDict(network=model))
        logits = activations(whole, images, ["network"], prepare=network.prepare, batch_size=250)["network"]
        return fit_behaviour(dataset, logits, labels, self.settings)


def _described(network: Candidate) -> Record:
    return {
        "name": network.name,
        "row": network.row,
        "kind": network.kind,
        "run": network.run,
        "top1": network.summary.get("top1"),
        "input_size": list(network.prepare.input_size),
        "sleepconv": version("sleepconv"),
    }
