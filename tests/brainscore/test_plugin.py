"""The plugin through Brain-Score's own classes, its regression included, on a small local assembly."""

import shutil
from pathlib import Path

import brainscore_vision
import numpy as np
import pytest
from brainscore_core.metrics import Score
from brainscore_core.supported_data_standards.brainio.assemblies import NeuroidAssembly
from brainscore_core.supported_data_standards.brainio.stimuli import StimulusSet
from brainscore_vision.benchmark_helpers.neural_common import NeuralBenchmark
from brainscore_vision.model_interface import BrainModel
from PIL import Image

from sleepconv.brain import Preparation, activations
from sleepconv.experiments.brain.candidates import preparation_for
from sleepconv.experiments.brain.plugin import write_plugin
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.training import build_network
from sleepconv.experiments.training.checkpoints import write_tensors
from sleepconv.sleep import compact_state

IMAGES, LAYER, NEURONS = 60, "stages.1.0", 6
RELIABILITY = 0.8


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    recipe = Run(name="tiny", dataset="cifar10", connectivity="local", learning_rate=1e-3, sleep_every=1)
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.write("recipe.json", recipe.as_json())
    model = build_network(recipe, (3, 32, 32), 10)
    write_tensors(folder.path / "model.safetensors", compact_state(model), {"input_size": (3, 32, 32), "classes": 10})
    return folder


@pytest.fixture(scope="module")
def commitment(run, tmp_path_factory):
    """The plugin among Brain-Score's models, loaded by its name."""
    plugin = write_plugin(run.path, tmp_path_factory.mktemp("out"))
    installed = Path(brainscore_vision.__file__).parent / "models" / plugin.name
    shutil.copytree(plugin, installed, dirs_exist_ok=True)
    try:
        yield brainscore_vision.load_model(plugin.name)
    finally:
        shutil.rmtree(installed)


@pytest.fixture(scope="module")
def stimuli(tmp_path_factory) -> StimulusSet:
    folder, random = tmp_path_factory.mktemp("stimuli"), np.random.default_rng(0)
    names = [f"image{number:02d}" for number in range(IMAGES)]
    for name in names:
        coarse = Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        coarse.resize((64, 64), Image.Resampling.BICUBIC).save(folder / f"{name}.png")
    stimulus_set = StimulusSet([{"stimulus_id": name} for name in names])
    stimulus_set.stimulus_paths = {name: folder / f"{name}.png" for name in names}
    stimulus_set.identifier = "sleepconv-small"
    return stimulus_set


def pictures(stimuli: StimulusSet) -> np.ndarray:
    return np.stack([np.asarray(Image.open(stimuli.get_stimulus(name))) for name in stimuli["stimulus_id"]])


@pytest.fixture(scope="module")
def features(run, stimuli) -> np.ndarray:
    prepare = preparation_for("cifar10", (3, 32, 32))
    return activations(run.load_model(), pictures(stimuli), [LAYER], prepare=prepare)[LAYER]


@pytest.fixture(scope="module")
def assembly(features, stimuli) -> NeuroidAssembly:
    """Neurons that are linear functions of one of the network's layers."""
    centred = features - features.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:4]
    weights = np.random.default_rng(1).normal(size=(4, NEURONS))
    neurons = NeuroidAssembly(
        (centred @ directions.T @ weights)[:, :, None],
        coords={
            "stimulus_id": ("presentation", stimuli["stimulus_id"].values),
            "object_name": ("presentation", stimuli["stimulus_id"].values),
            "neuroid_id": ("neuroid", np.arange(NEURONS)),
            "region": ("neuroid", ["V4"] * NEURONS),
            "time_bin_start": ("time_bin", [70]),
            "time_bin_end": ("time_bin", [170]),
        },
        dims=["presentation", "neuroid", "time_bin"],
    ).squeeze("time_bin")
    neurons.attrs["stimulus_set"] = stimuli
    neurons.attrs["stimulus_set_identifier"] = stimuli.identifier
    return neurons


def test_the_commitment_lists_the_layers_and_looks_at_eight_degrees(commitment):
    assert commitment.identifier == "sleepconv_tiny_scale_1_seed_0"
    assert commitment.layers[0] == "relu"
    assert commitment.layers[-1] == "pool"
    assert commitment.visual_degrees() == 8


def test_its_activations_are_ours(commitment, stimuli, features):
    theirs = commitment.activations_model(stimuli, layers=[LAYER])
    order = [list(theirs["stimulus_id"].values).index(name) for name in stimuli["stimulus_id"]]
    np.testing.assert_allclose(theirs.values[order], features, rtol=1e-4, atol=1e-4)


def test_brain_scores_regression_finds_the_neurons_in_their_layer(commitment, assembly):
    benchmark = NeuralBenchmark(
        identifier="sleepconv-small.V4-pls",
        version=1,
        assembly=assembly,
        similarity_metric=brainscore_vision.load_metric("pls", crossvalidation_kwargs={"stratification_coord": None}),
        visual_degrees=8,
        number_of_trials=1,
        ceiling_func=lambda: Score(RELIABILITY),
        parent="V4",
        bibtex=None,
    )
    commitment.layer_model._layer_model.region_layer_map["V4"] = LAYER
    score = benchmark(commitment)
    r = float(score.attrs["raw"])
    assert r > 0.8
    assert float(score) == pytest.approx(r**2 / RELIABILITY)


def test_a_network_without_imagenets_classes_is_refused_for_labelling_by_brain_score_itself(commitment, stimuli):
    commitment.start_task(BrainModel.Task.label, "imagenet")
    with pytest.raises(ValueError, match="1000-dim"):
        commitment.look_at(stimuli)
    commitment.start_task(BrainModel.Task.passive)


def test_the_preparation_written_into_the_plugin_is_that_of_the_run(commitment):
    module = __import__(f"brainscore_vision.models.{commitment.identifier}.model", fromlist=["PREPARE"])
    assert isinstance(module.PREPARE, Preparation)
    assert preparation_for("cifar10", (3, 32, 32)) == module.PREPARE
