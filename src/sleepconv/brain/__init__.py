"""How well networks fit the ventral stream and behaviour: regressions, dissimilarities, people's labels."""

from sleepconv.brain.activations import activations, comparable_layers
from sleepconv.brain.behaviour import Agreement, agreement
from sleepconv.brain.predictivity import (
    Predictivity,
    ceiling,
    dissimilarity,
    noise_ceiling,
    predictivity,
    principal_axes,
    reliability,
    similarity,
)
from sleepconv.brain.recordings import Dissimilarities, LabelCounts, Recording, read_dataset, read_folder

__all__ = [
    "Agreement",
    "Dissimilarities",
    "LabelCounts",
    "Predictivity",
    "Recording",
    "activations",
    "agreement",
    "ceiling",
    "comparable_layers",
    "dissimilarity",
    "noise_ceiling",
    "predictivity",
    "principal_axes",
    "read_dataset",
    "read_folder",
    "reliability",
    "similarity",
]
