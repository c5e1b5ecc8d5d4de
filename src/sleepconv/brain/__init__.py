"""How well networks fit the ventral stream and behaviour: regressions, dissimilarities, people's labels."""

from sleepconv.brain.activations import activations
from sleepconv.brain.behaviour import Agreement, agreement
from sleepconv.brain.ceiling import ceiling, reliability
from sleepconv.brain.datasets import Dissimilarities, LabelCounts, Recording
from sleepconv.brain.layers import comparable_layers
from sleepconv.brain.predictivity import Predictivity, predictivity, principal_axes
from sleepconv.brain.preparation import Preparation, preparation_for
from sleepconv.brain.readers import read_dataset, read_folder
from sleepconv.brain.similarity import dissimilarity, noise_ceiling, similarity

__all__ = [
    "Agreement",
    "Dissimilarities",
    "LabelCounts",
    "Predictivity",
    "Preparation",
    "Recording",
    "activations",
    "agreement",
    "ceiling",
    "comparable_layers",
    "dissimilarity",
    "noise_ceiling",
    "predictivity",
    "preparation_for",
    "principal_axes",
    "read_dataset",
    "read_folder",
    "reliability",
    "similarity",
]
