"""`sleepconv data get`: download, verify and unpack a dataset; without a network, say what to place where."""

import sys
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from sleepconv.experiments.data.description import Dataset, Download, StrPath, data_directory, md5_of_file, writing_to
from sleepconv.experiments.data.inspection import check
from sleepconv.files import atomic_folder

_ATTEMPTS = 3
_TIMEOUT_S = 30
_CHUNK_BYTES = 1 << 20


class DownloadError(RuntimeError):
    """A download that failed; nothing of it is left on the disk."""


def get(dataset: Dataset, data_dir: StrPath | None = None, *, mirror: str | None = None) -> str:
    """Bring a dataset to the data directory and return a sentence that says what was done.

    Args:
        dataset: the dataset.
        data_dir: the data directory; see `data_directory`.
        mirror: an address to take the files from instead of the official one; the checksums stay the official ones.
    """
    root = data_directory(data_dir)
    folder = root / dataset.folder
    if not dataset.folder:
        return f"{dataset.title}: {dataset.advice}"
    if not dataset.downloads:
        return _placed_by_hand(dataset, root)
    if dataset.is_complete(folder):
        return (
            f"{dataset.title} is already in {folder} and was left unchanged; `sleepconv data check {dataset.name}` "
            "verifies it. To download it again, move that folder away first"
        )
    for download in dataset.downloads:
        url = download.url if mirror is None else f"{mirror.rstrip('/')}/{download.filename}"
        if not dataset.unpack:
            fetch(download, folder, url=url)
            continue
        keep = (root / download.filename).exists()
        archive = fetch(download, root, url=url)
        unpack(archive, folder)
        if not keep:
            archive.unlink()
    if not dataset.is_complete(folder):
        raise ValueError(f"the archive of {dataset.title} lacks files; run `sleepconv data check {dataset.name}`")
    return f"{dataset.title} is in {folder}; the official checksum was verified"


def fetch(download: Download, folder: Path, *, url: str | None = None) -> Path:
    """Download a file to ``folder`` and return its path; a file that is already there is only verified.

    The file appears under its name once it is complete and has the official checksum.

    Args:
        download: the file and its official checksum.
        folder: the folder to download to.
        url: another address to download from.
    """
    target = folder / download.filename
    if not target.exists():
        with writing_to(folder):
            _download(download, target, url or download.url)
    elif (found := md5_of_file(target)) != download.md5:
        raise DownloadError(
            f"{target} has MD5 {found}, but the official one is {download.md5}; "
            "remove it and run the same command again"
        )
    return target


def unpack(archive: Path, target: Path) -> None:
    """Unpack a .zip or .tar archive, all of whose files are in one folder with the name of ``target``.

    ``target`` appears once everything is unpacked; after an error nothing is left behind.
    """
    with writing_to(target.parent), atomic_folder(target) as draft:
        try:
            (_unpack_zip if archive.suffix == ".zip" else _unpack_tar)(archive, draft, target.name)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{archive} is truncated or damaged ({error}); remove it and download it again") from error
        if not any(draft.iterdir()):
            raise ValueError(f"{archive} contains no files; remove it and download it again")


def _placed_by_hand(dataset: Dataset, root: Path) -> str:
    """Check a dataset that cannot be downloaded; if it is not usable, raise an error that says where to get it."""
    report = check(dataset, root)
    lines = "; ".join(line.strip() for line in report.lines)
    if not report.usable:
        raise FileNotFoundError(lines)
    return f"{dataset.title} is already here; {lines}"


def _download(download: Download, target: Path, url: str) -> None:
    try:
        import pooch
        from requests import RequestException
    except ImportError as error:
        raise ImportError("downloading needs pooch: pip install pooch") from error
    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=_CHUNK_BYTES,
        timeout=_TIMEOUT_S,
        headers={"Accept-Encoding": "identity"},  # the checksum is that of the archive as it is stored
    )
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            pooch.retrieve(url, f"md5:{download.md5}", target.name, target.parent, downloader=downloader)
            return
        except RequestException as error:
            response = error.response
            if attempt < _ATTEMPTS and (response is None or response.status_code >= 500):
                continue
            reason = type(error).__name__ if response is None else f"{response.status_code} {response.reason}"
            raise DownloadError(
                f"cannot download {url} ({reason}); run the same command again. Without a network, get {download.url} "
                f"on another machine and place it at {target} (MD5 {download.md5}) first"
            ) from error
        except ValueError as error:
            raise DownloadError(
                f"{url} does not have the official MD5 {download.md5}; the download was removed: "
                "run the same command again, or download from elsewhere with --mirror"
            ) from error


def _unpack_tar(archive: Path, draft: Path, top: str) -> None:
    def inside(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        if not (member.isreg() or member.isdir()):
            raise ValueError(f"{archive} is refused: its member {member.name!r} is a link or a device")
        name = _inside(archive, member.name, top, is_folder=member.isdir())
        return tarfile.data_filter(member.replace(name=name), path) if name else None

    with tarfile.open(archive, "r:*") as tar:
        tar.extractall(draft, filter=inside)


def _unpack_zip(archive: Path, draft: Path, top: str) -> None:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            name = _inside(archive, member.filename, top, is_folder=member.is_dir())
            if not member.is_dir():
                member.filename = name
                packed.extract(member, draft)


def _inside(archive: Path, name: str, top: str, *, is_folder: bool) -> str:
    """Return the path of a member below the top folder; refuse any other place."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if parts[:1] != (top,) or ".." in parts or (len(parts) == 1 and not is_folder):
        raise ValueError(f"{archive} is refused: its member {name!r} is not inside the folder {top!r}")
    return "/".join(parts[1:])
