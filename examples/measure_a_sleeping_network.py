"""Measure a sleeping network as neuroscience would: what drives it, how far it gets, theory, and what responses do.

``python measure_a_sleeping_network.py [sleep.png]`` takes seconds; with a path it draws, which needs matplotlib.
"""

import copy
import sys

import numpy as np
import torch
from torch import nn

import sleepconv
from sleepconv import analysis
from sleepconv.brain import activations, cka, dissimilarity, similarity
from sleepconv.sleep import Circuit, Hebbian

torch.manual_seed(0)
# Any network of yours. Its layers have no weight sharing; the mean over a grid is what its neurons have in common.
retina_to_v2 = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3))
model = sleepconv.to_locally_connected(retina_to_v2, torch.zeros(1, 1, 16, 16), copy_weights=True)
with torch.no_grad():
    for layer in (model[0], model[2]):
        layer.weight.add_(0.3 * layer.weight.std() * torch.randn_like(layer.weight))

# Directions of input that neurons can share (of 9 and 54), and −log SNR: before, predicted by Eq. 5, after.
rules = {
    "one input grid at a time": Hebbian(decay=1e-2, rate=1e-2, steps=60),
    "a feedforward chain": Hebbian(decay=1e-2, patterns="layer_by_layer", steps=30),
    "patterns of every layer": Hebbian(decay=1e-2, patterns="spontaneous", steps=30),
    "the circuit of Eq. 8": Circuit(decay=1e-2, presentations=60),
}
curves = {}
print(f"{'driven by':26} layer  directions  before  predicted  after")
for name, rule in rules.items():
    sleeper = copy.deepcopy(model)
    with analysis.watch(sleeper, covariance=True, every=10) as courses:
        rule(sleeper)
    for layer, course in courses.items():
        directions = int(torch.linalg.matrix_rank(course.covariance[0, 0], rtol=1e-4))
        predicted = course.predicted(decay=rule.decay, inhibition=rule.inhibition)
        curves[name] = course.curve()
        before, after = curves[name].values[0], curves[name].values[-1]
        print(f"{name:26} {layer:5} {directions:11} {before:7.1f} {predicted:10.1f} {after:6.1f}")

# Do responses to an image, and to it three pixels further (the spacing of a grid), become alike?
images = torch.randn(40, 1, 16, 16)
shifted = images.roll(3, dims=3)


def responses(pictures: torch.Tensor, columns: slice) -> np.ndarray:
    """The last layer's responses, in some columns of the visual field."""
    flat = activations(model, pictures, ["2"])["2"]
    return flat.reshape(len(flat), 6, 12, 12)[:, :, :, columns].reshape(len(flat), -1)


for state in ("awake", "asleep"):
    here, there = responses(images, slice(2, 5)), responses(shifted, slice(5, 8))
    rsa = similarity(dissimilarity(here), dissimilarity(there)[None])
    print(f"{state:6} RSA {rsa:.3f}  CKA {cka(here, there):.3f}  debiased {cka(here, there, debiased=True):.3f}")
    sleepconv.sleep.Instant()(model)

if len(sys.argv) > 1:
    axes = analysis.draw_curves(curves)  # of the second layer
    axes.legend(list(curves), frameon=False)
    axes.figure.savefig(sys.argv[1])
