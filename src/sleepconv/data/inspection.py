"""`sleepconv data check`: what is there, what is missing, whether it is the official data."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sleepconv.data.description import Dataset, File, md5_of, md5_of_file
from sleepconv.data.digits import digits
from sleepconv.data.fashion_mnist import fashion_mnist_folder, read_content
from sleepconv.data.locations import StrPath, data_directory
from sleepconv.data.tasks import READERS, imagenet_files
from sleepconv.data.tiny_imagenet import class_names, list_training, list_validation


@dataclass
class Report:
    """The state of a dataset on this machine.

    ``usable`` says whether it can be read in full; ``official`` whether every checksum is the publisher's
    (None where the publisher states none for the unpacked files).
    """

    name: str
    folder: str
    usable: bool = True
    official: bool | None = None
    lines: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """For a script."""
        return asdict(self)


def check(dataset: Dataset, data_dir: StrPath | None = None) -> Report:
    """Look at every file of a dataset, then read it as training would."""
    root = data_directory(data_dir)
    report = Report(dataset.name, str(_folder(dataset, root)))
    if dataset.name == "digits":
        report.lines.append(f"{len(digits(held_out=0)):,} digits come with scikit-learn; nothing to download")
        return report
    _check_files(dataset, _folder(dataset, root), report)
    if report.usable:
        _check_reading(dataset, root, report)
    if not report.usable:
        report.lines += list(_what_to_do(dataset, root))
    return report


def is_complete(dataset: Dataset, folder: Path) -> bool:
    """Whether every file that the reader needs is there, by name (gzipped or not)."""
    names = [file.name for file in dataset.files]
    return folder.is_dir() and all((folder / n).is_file() or (folder / f"{n}.gz").is_file() for n in names)


def _folder(dataset: Dataset, root: Path) -> Path:
    return fashion_mnist_folder(root) if dataset.name == "fashion-mnist" else root / dataset.folder


def _check_files(dataset: Dataset, folder: Path, report: Report) -> None:
    if dataset.files:
        report.official = True
    for file in dataset.files:
        path = next((p for p in (folder / file.name, folder / f"{file.name}.gz") if p.is_file()), None)
        if path is None:
            report.usable = report.official = False
            report.lines.append(f"missing: {folder / file.name}")
        else:
            _check_file(file, path, report)


def _check_file(file: File, path: Path, report: Report) -> None:
    try:
        size, md5 = _size_and_md5(path)
    except (OSError, ValueError) as error:
        report.usable = report.official = False
        report.lines.append(f"cannot be read: {error}")
        return
    if file.size is not None and size != file.size:
        report.usable = report.official = False
        report.lines.append(f"wrong size: {path} has {size:,} bytes, not {file.size:,}; truncated or damaged")
    elif file.md5 is not None and md5 != file.md5:
        report.official = False
        report.lines.append(f"complete, but not the official file: {path} has MD5 {md5}, not {file.md5}")
    else:
        report.lines.append(f"{'official' if file.md5 else 'present'}: {path}")


def _size_and_md5(path: Path) -> tuple[int, str]:
    """Of the content, unpacked if it is gzipped."""
    if path.suffix != ".gz":
        return path.stat().st_size, md5_of_file(path)
    content = read_content(path)
    return len(content), md5_of(content)


def _check_reading(dataset: Dataset, root: Path, report: Report) -> None:
    try:
        train, test, classes = _counts(dataset, root)
    except (OSError, ValueError) as error:
        report.usable = False
        report.lines.append(f"cannot be read: {error}")
        return
    report.lines.append(f"readable: {train:,} training and {test:,} test images in {classes} classes")
    if report.official is False:
        report.lines.append("all records are whole, but in content or order the files are not the official ones")


def _counts(dataset: Dataset, root: Path) -> tuple[int, int, int]:
    """Training images, test images and classes, found without writing anything."""
    if dataset.name == "tiny-imagenet":
        wnids, _ = class_names(root / dataset.folder)
        listings = (
            list_training(root / dataset.folder, wnids),
            list_validation(root / dataset.folder, wnids),
        )
        _expect("images", [len(listing) for listing in listings], [100_000, 10_000])
        return len(listings[0]), len(listings[1]), len(wnids)
    if dataset.name == "imagenet":
        train, test = (imagenet_files(root, train=part) for part in (True, False))
        _expect("images", [len(train.labels), len(test.labels)], [1_281_167, 50_000])
        return len(train.labels), len(test.labels), len(train.classes)
    reader = READERS[dataset.name]
    held, shown = reader(root, train=True), reader(root, train=False)
    return len(held), len(shown), len(held.classes)


def _expect(what: str, found: list[int], official: list[int]) -> None:
    if found != official:
        raise ValueError(f"found {found} training and test {what}, but the official numbers are {official}")


def _what_to_do(dataset: Dataset, root: Path) -> Iterator[str]:
    folder = root / dataset.folder
    if dataset.downloads and is_complete(dataset, folder):
        yield f"to do: move {folder} away, which `sleepconv data get {dataset.name}` would leave as it is"
    for download in dataset.downloads:
        place = (root if dataset.unpack else folder) / download.filename
        yield f"to do: run `sleepconv data get {dataset.name}`, or place {download.url}"
        yield f"       (MD5 {download.md5}) at {place} and run it then"
    if dataset.advice:
        yield f"to do: {dataset.advice}"
    if not dataset.downloads:
        yield f"       they belong in {folder}"
