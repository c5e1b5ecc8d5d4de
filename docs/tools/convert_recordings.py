"""Convert the recordings behind docs/brain.md to the format that `sleepconv brain score` reads.

``python docs/tools/convert_recordings.py ARCHIVES OUT`` reads the ``.npz`` files of the folder ``ARCHIVES``, in the
layout in which their authors' data was collected, and writes one file per dataset to the folder ``OUT``.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from sleepconv.brain import Dissimilarities, LabelCounts, Recording

Arrays = Mapping[str, np.ndarray]
Datasets = list[Recording | Dissimilarities | LabelCounts]


def v1_movies(arrays: Arrays) -> Datasets:
    """Join the recording sessions (``counts_*``, −1 for a missing repeat) along the neurons; a movie is a group."""
    sessions = {key.removeprefix("counts_"): arrays[key] for key in sorted(arrays) if key.startswith("counts_")}
    repeats = max(counts.shape[2] for counts in sessions.values())
    responses = np.concatenate([_with_nan(counts, repeats) for counts in sessions.values()], axis=1)
    names = [f"{key}-{unit}" for key, counts in sessions.items() for unit in range(counts.shape[1])]
    groups = movie_of_each_image(arrays["index_scale_cat_movie_frame"], len(arrays["images"]))
    return [Recording("macaque_v1_movies", "V1", arrays["images"], responses, groups, neuron_names=names)]


def _with_nan(counts: np.ndarray, repeats: int) -> np.ndarray:
    values = np.where(counts >= 0, counts, np.nan).astype(np.float32)
    return np.pad(values, [(0, 0), (0, 0), (0, repeats - values.shape[2])], constant_values=np.nan)


def movie_of_each_image(index: np.ndarray, images: int) -> np.ndarray:
    """Return the movie (third axis of ``index``) of each image; its scales and categories belong together."""
    groups = np.full(images, -1)
    for movie in range(index.shape[2]):
        frames = np.unique(index[:, :, movie])
        frames = frames[frames >= 0]
        if (groups[frames] >= 0).any():
            raise ValueError(f"an image of movie {movie} also belongs to another movie")
        groups[frames] = movie
    if (groups < 0).any():
        raise ValueError(f"{(groups < 0).sum()} images belong to no movie")
    return groups


def v4_session(name: str) -> Callable[[Arrays], Datasets]:
    """Use the repeats (``responses_raw``: neurons × images × repeats) if the session has them, else the means."""

    def convert(arrays: Arrays) -> Datasets:
        raw = arrays.get("responses_raw")
        responses = arrays["responses"] if raw is None else raw.swapaxes(0, 1)
        return [Recording(name, "V4", arrays["images"], responses, image_names=arrays["image_names"].tolist())]

    return convert


def ninety_two_objects(arrays: Arrays) -> Datasets:
    """Split one macaque, four people in two sessions each (averaged), and fifteen people in two regions."""
    people = [name.split("|")[1].strip() for name in arrays["human_IT_session_names"]]
    sessions = arrays["human_IT_session_rdms"]
    human = np.stack([sessions[[p == person for p in people]].mean(axis=0) for person in dict.fromkeys(people)])
    return [
        Dissimilarities(name, region, arrays["images"], rdms)
        for name, region, rdms in [
            ("macaque-92", "IT", arrays["monkey_IT_rdm"][None]),
            ("human-92", "IT", human),
            ("human-92-second-study", "IT", arrays["cichy_IT_rdms"]),
            ("human-92-second-study-early", "early visual", arrays["cichy_EVC_rdms"]),
        ]
    ]


def cifar10h(arrays: Arrays) -> Datasets:
    """Keep the counts as they are."""
    return [LabelCounts("cifar10h_counts", arrays["counts"])]


ARCHIVES: dict[str, Callable[[Arrays], Datasets]] = {
    "cifar10h_counts": cifar10h,
    "it_rdm_92": ninety_two_objects,
    "macaque_v1_movies": v1_movies,
    "macaque_v4_201025": v4_session("macaque_v4_201025"),
    "macaque_v4_210325": v4_session("macaque_v4_210325"),
}


def convert(archives: Path, out: Path) -> list[Path]:
    """Convert those of the known archives that are in a folder; return the files written."""
    found = [archives / f"{name}.npz" for name in ARCHIVES if (archives / f"{name}.npz").is_file()]
    if not found:
        raise FileNotFoundError(f"{archives} has none of {', '.join(f'{name}.npz' for name in ARCHIVES)}")
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for path in found:
        with np.load(path, allow_pickle=False) as archive:
            for dataset in ARCHIVES[path.stem](archive):
                written.append(out / f"{dataset.name}.npz")
                dataset.save(written[-1])
    return written


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    for file in convert(Path(sys.argv[1]), Path(sys.argv[2])):
        print(file)
