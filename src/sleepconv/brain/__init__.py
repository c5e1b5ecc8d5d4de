"""Fits of any PyTorch model to the ventral stream and to behaviour."""

from sleepconv.brain.activations import Preparation, activations, comparable_layers
from sleepconv.brain.behaviour import Agreement, agreement
from sleepconv.brain.predictivity import Predictivity, ceiling, predictivity, principal_axes, reliability
from sleepconv.brain.recordings import Dissimilarities, LabelCounts, Recording, read_dataset, read_folder
from sleepconv.brain.similarity import cka, dissimilarity, noise_ceiling, similarity

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
    "cka",
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
