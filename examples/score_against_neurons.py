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
    predictivity,
    principal_axes,
    read_dataset,
)

prepare = Preparation((3, 16, 16), mean=(127.5,) * 3, std=(60.0,) * 3)


def made_up_brain() -> Recording:
    """Neurons that answer like a block in the middle of a random network, with noise, to coarse and fine patterns."""
    random = np.random.default_rng(0)
    coarse, fine = random.normal(size=(300, 4, 4, 3)), random.normal(size=(300, 16, 16, 3))
    images = np.clip(127.5 + 45 * coarse.repeat(4, axis=1).repeat(4, axis=2) + 15 * fine, 0, 255).astype(np.uint8)
    block = "stages.1.0"
    neurons = activations(random_network(), images, [block], prepare=prepare)[block]
    neurons = neurons[:, neurons.std(axis=0) > 0][:, ::80]
    noise = neurons.std(axis=0)[:, None] * random.normal(size=(*neurons.shape, 8))
    return Recording("made up", "V4", images, neurons[:, :, None] + noise)


def random_network() -> torch.nn.Module:
    """The same at each call."""
    torch.manual_seed(1)
    return sleepconv.models.resnet20()


def read_recording(path: str) -> Recording:
    """The first recording of neurons in a file."""
    for dataset in read_dataset(path):
        if isinstance(dataset, Recording):
            return dataset
    raise SystemExit(f"{path} holds no responses of neurons; `sleepconv brain score` also takes other data")


recording = read_recording(sys.argv[1]) if len(sys.argv) > 1 else made_up_brain()
network = random_network()
local = sleepconv.to_locally_connected(network, torch.zeros(1, 3, 16, 16))  # with fresh weights
print(f"{recording.name}: {recording.responses.shape[1]} neurons of {recording.region}, {len(recording.images)} images")
limit = ceiling(recording.responses) if recording.responses.ndim == 3 else None  # no repeats: an r, but no score
layers = ["stages.0.0", "stages.1.0", "stages.2.0"]
for name, model in {"convolutional": network, "locally connected": local}.items():
    answers = activations(model, recording.images, layers, prepare=prepare)
    for layer in layers:
        fit = predictivity(
            principal_axes(answers[layer]), recording.mean_responses(), groups=recording.groups, ceiling=limit
        )
        score = "" if fit.score is None else f" of {limit:.2f}, score {fit.score:.2f} ± {fit.score_error:.2f}"
        print(f"{name:18} {layer:12} r {fit.r:.2f}{score}")
