"""Score networks against recorded neurons; without data, against a made-up brain. Runs in seconds.

``python score_against_neurons.py [recording.npz]``: docs/brain.md says what such a file holds.
"""

import sys

import numpy as np
import torch

import sleepconv
from sleepconv.brain import (
    Preparation,
    Recording,
    activations,
    ceiling,
    comparable_layers,
    predictivity,
    principal_axes,
    read_dataset,
)
from sleepconv.data import Statistics

prepare = Preparation((3, 16, 16), Statistics((127.5,) * 3, (60.0,) * 3))


def made_up_brain() -> Recording:
    """Neurons that answer like the first block of a random network, with noise, to mixtures of 20 textures."""
    random = np.random.default_rng(0)
    mixtures = random.normal(size=(240, 20)) @ random.normal(size=(20, 16 * 16 * 3))
    images = np.clip(127.5 + 15 * mixtures, 0, 255).astype(np.uint8).reshape(240, 16, 16, 3)
    torch.manual_seed(1)
    block = "stages.0.0"
    neurons = activations(sleepconv.models.resnet20(), images, [block], prepare=prepare)[block][:, ::97]
    neurons = neurons[:, neurons.std(axis=0) > 0][:, :24]
    noise = neurons.std(axis=0)[:, None] * random.normal(size=(*neurons.shape, 8))
    return Recording("made up", "V1", images, neurons[:, :, None] + noise)


recording = read_dataset(sys.argv[1])[0] if len(sys.argv) > 1 else made_up_brain()
torch.manual_seed(1)
network = sleepconv.models.resnet20()
local = sleepconv.to_locally_connected(network, torch.zeros(1, 3, 16, 16))  # with fresh weights
print(f"{recording.name}: {recording.responses.shape[1]} neurons of {recording.region}, {len(recording.images)} images")
limit = ceiling(recording.responses)
layers = comparable_layers(network)[:3]
for name, model in {"convolutional": network, "locally connected": local}.items():
    answers = activations(model, recording.images, layers, prepare=prepare)
    for layer in layers:
        fit = predictivity(principal_axes(answers[layer]), recording.mean_responses(), ceiling=limit)
        print(f"{name:18} {layer:12} r {fit.r:.2f} of {limit:.2f}, score {fit.score:.2f} ± {fit.score_error:.2f}")
