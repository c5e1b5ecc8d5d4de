"""Fit of a network to a dataset: the best layer is chosen on half of the images and scored on the other half."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.model_selection import KFold

from sleepconv.brain.behaviour import agreement
from sleepconv.brain.predictivity import (
    COMPONENTS,
    FOLDS,
    Predictivity,
    ceiling,
    halves,
    predictivity,
    principal_axes,
    varying,
)
from sleepconv.brain.recordings import Dissimilarities, LabelCounts, Recording
from sleepconv.brain.similarity import NoiseCeiling, dissimilarity, noise_ceiling, similarity

_Features = Mapping[str, Float[np.ndarray, "images features"]]
Entry = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Options of a fit, which its record keeps.

    Attributes:
        components: of partial least squares.
        folds: of cross-validation on the half that scores.
        choice_folds: of cross-validation on the half that chooses the layer.
        halvings: random halves of the images for dissimilarities, where nothing is trained.
        seed: of the halves and folds.
    """

    components: int = COMPONENTS
    folds: int = FOLDS
    choice_folds: int = 5
    halvings: int = 10
    seed: int = 0


def fit_recording(recording: Recording, features: _Features, settings: Settings) -> Entry:
    """Score a network on a recording: neural predictivity of every layer, and of the layer that the other half chose.

    >>> random = np.random.default_rng(0)
    >>> layers = {name: random.normal(size=(200, 40)) for name in ("first", "second")}
    >>> brain = layers["second"] @ random.normal(size=(40, 6))
    >>> entry = fit_recording(Recording("toy", "V4", np.zeros((200, 2, 2), np.uint8), brain), layers, Settings())
    >>> entry["layer"], round(entry["r"], 1)
    ('second', 1.0)
    """
    means = recording.mean_responses()
    choosing, scoring = halves(len(means), groups=recording.groups, seed=settings.seed)
    kept = varying(means[choosing]) & varying(means[scoring])
    if not kept.any():
        raise ValueError(f"{recording.name}: no neuron has a response to every image that is not constant")
    limit = _ceiling_of(recording, tuple(scoring), tuple(np.flatnonzero(kept)), settings.seed)
    layers: dict[str, Entry] = {}
    for name, rows in features.items():
        chosen = _predictivity(rows, means, kept, choosing, recording, settings, folds=settings.choice_folds)
        scored = _predictivity(rows, means, kept, scoring, recording, settings, ceiling=limit)
        layers[name] = {"choice_r": chosen.r} | _numbers(scored)
    best = max(layers, key=lambda name: layers[name]["choice_r"])
    ridge = _predictivity(features[best], means, kept, scoring, recording, settings, ceiling=limit, regression="ridge")
    return {
        "dataset": recording.name,
        "region": recording.region,
        "method": "pls",
        "layer": best,
        **{key: value for key, value in layers[best].items() if key != "choice_r"},
        "ceiling": limit,
        "ridge": _numbers(ridge),
        "images": len(means),
        "neurons": int(kept.sum()),
        "neurons_left_out": int((~kept).sum()),
        "layers": layers,
    }


def fit_dissimilarities(data: Dissimilarities, features: _Features, settings: Settings) -> Entry:
    """Score a network on dissimilarities, over several random halves of the images.

    >>> rows = np.random.default_rng(0).normal(size=(40, 9))
    >>> data = Dissimilarities("toy", "IT", np.zeros((40, 2, 2), np.uint8), dissimilarity(rows)[None])
    >>> round(fit_dissimilarities(data, {"layer": rows}, Settings())["r"], 3)
    1.0
    """
    rdms = {name: dissimilarity(rows) for name, rows in features.items()}
    parts = [halves(len(data.images), seed=settings.seed + i) for i in range(settings.halvings)]
    chosen = [
        max(rdms, key=lambda name: similarity(_part(rdms[name], half), _part(data.rdms, half))) for half, _ in parts
    ]
    r = {
        name: np.array([similarity(_part(rdm, half), _part(data.rdms, half)) for _, half in parts])
        for name, rdm in rdms.items()
    }
    ceilings = [noise_ceiling(_part(data.rdms, half)) for _, half in parts]
    chosen_r = np.array([r[name][i] for i, name in enumerate(chosen)])
    return {
        "dataset": data.name,
        "region": data.region,
        "method": "rsa",
        "layer": Counter(chosen).most_common(1)[0][0],
        **_similarity_numbers(chosen_r, ceilings),
        "images": len(data.images),
        "subjects": len(data.rdms),
        "layers": {name: _similarity_numbers(values, ceilings) for name, values in r.items()},
    }


def fit_behaviour(data: LabelCounts, logits: np.ndarray, labels: np.ndarray, settings: Settings) -> Entry:
    """Score a network's answers against people's; the error is the deviation over parts of the images."""
    overall = agreement(logits, data.counts, labels, seed=settings.seed)
    if not overall.people_kappa > 0:
        raise ValueError(
            f"people agree in their errors no more than by chance (κ = {overall.people_kappa:.2g}): there is no ceiling"
        )
    folds = [rows for _, rows in KFold(settings.folds, shuffle=True, random_state=settings.seed).split(logits)]
    scores = [agreement(logits[rows], data.counts[rows], labels[rows], seed=settings.seed).score for rows in folds]
    return {
        "dataset": data.name,
        "region": data.region,
        "method": "error consistency",
        "score": overall.score,
        "score_error": float(np.std(scores, ddof=1)),
        "ceiling": overall.people_kappa,
        **asdict(overall),
        "accuracy": float((logits.argmax(axis=1) == labels).mean()),
        "images": len(labels),
    }


def _predictivity(
    rows: np.ndarray,
    means: np.ndarray,
    kept: np.ndarray,
    half: np.ndarray,
    recording: Recording,
    settings: Settings,
    **options: Any,
) -> Predictivity:
    shared = {"folds": settings.folds, "components": settings.components, "seed": settings.seed} | options
    groups = None if recording.groups is None else recording.groups[half]
    return predictivity(principal_axes(rows, half), means[half][:, kept], groups=groups, **shared)


def _numbers(fit: Predictivity) -> Entry:
    return {"score": fit.score, "score_error": fit.score_error, "r": fit.r, "r_error": fit.r_error}


def _similarity_numbers(r: np.ndarray, ceilings: list[NoiseCeiling | None]) -> Entry:
    """Summarise ρ and ρ / upper ceiling, the score that Brain-Score uses for RSA."""
    plain: Entry = {"r": float(r.mean()), "r_error": float(r.std(ddof=1))}
    known = [c for c in ceilings if c is not None]
    if not known:
        return {"score": None, "score_error": None, **plain, "ceiling": None, "ceiling_lower": None}
    upper, lower = (np.array([getattr(c, side) for c in known]) for side in ("upper", "lower"))
    if (upper <= 0).any():
        raise ValueError("the subjects' dissimilarities do not agree, so there is no ceiling to compare with")
    scores = r / upper
    normalised = {"score": float(scores.mean()), "score_error": float(scores.std(ddof=1))}
    return normalised | plain | {"ceiling": float(upper.mean()), "ceiling_lower": float(lower.mean())}


def _part(rdms: np.ndarray, half: np.ndarray) -> np.ndarray:
    return rdms[..., half[:, None], half]


@lru_cache(maxsize=16)
def _ceiling_of(recording: Recording, rows: tuple[int, ...], neurons: tuple[int, ...], seed: int) -> float | None:
    """Compute the ceiling once for all networks that are scored on a recording."""
    if not recording.has_repeats:
        return None
    return ceiling(recording.responses[list(rows)][:, list(neurons)], seed=seed)
