"""Write a run as a submission for Brain-Score 2.4: a folder for its `models`, weights included."""

import re
import shutil
from importlib.metadata import version
from pathlib import Path
from string import Template

from sleepconv.brain.activations import comparable_layers
from sleepconv.experiments.brain.candidates import preparation_for
from sleepconv.experiments.data.description import StrPath
from sleepconv.experiments.runs import RunFolder
from sleepconv.experiments.runs.folder import RECIPE, WEIGHTS
from sleepconv.experiments.training.checkpoints import read_tensors
from sleepconv.files import atomic_folder

INIT = Template("""\
from brainscore_vision import model_registry
from brainscore_vision.model_helpers.brain_transformation import ModelCommitment

from .model import LAYERS, READOUT, get_model

model_registry["$identifier"] = lambda: ModelCommitment(
    identifier="$identifier", activations_model=get_model(), layers=LAYERS, behavioral_readout_layer=READOUT
)
""")
MODEL = Template('''\
"""$row, trained on $dataset: a network of sleepconv (Pogodin et al., 2021)."""

from pathlib import Path

import numpy as np
from brainscore_vision.model_helpers.activations.pytorch import PytorchWrapper, load_images
from sleepconv.experiments.brain import Preparation
from sleepconv.experiments.data import Statistics
from sleepconv.experiments.training import RunFolder

IDENTIFIER = "$identifier"
LAYERS = $layers
READOUT = "$readout"
PREPARE = Preparation($input_size, $statistics)
BIBTEX = """@inproceedings{pogodin2021towards,
    title = {Towards Biologically Plausible Convolutional Networks},
    author = {Pogodin, Roman and Mehta, Yash and Lillicrap, Timothy and Latham, Peter E.},
    booktitle = {Advances in Neural Information Processing Systems},
    year = {2021}
}"""


def preprocess(paths):
    images = [np.asarray(image.convert("RGB")) for image in load_images(paths)]
    return np.concatenate([PREPARE(image[None]).numpy() for image in images])


def get_model():
    model = RunFolder(Path(__file__).parent / "run").load_model()
    wrapper = PytorchWrapper(identifier=IDENTIFIER, model=model, preprocessing=preprocess)
    wrapper.image_size = $image_size
    return wrapper
''')
TEST = Template("""\
import brainscore_vision
import pytest


@pytest.mark.travis_slow
def test_has_identifier():
    assert brainscore_vision.load_model("$identifier").identifier == "$identifier"
""")


def write_plugin(path: StrPath, out: StrPath) -> Path:
    """Write a finished run as the folder ``out/identifier``, whole or not at all, and return it.

    Brain-Score labels images with the network's last layer, which is ImageNet's readout if the run is trained on
    ImageNet; the behaviour of other networks it reads out from the layer before, with a classifier of its own.
    """
    folder = RunFolder(path)
    run = folder.recipe()
    model = folder.load_model()
    _, facts = read_tensors(folder.path / WEIGHTS)
    channels, height, width = facts["input_size"]
    layers = comparable_layers(model)
    prepare = preparation_for(run.dataset, (channels, height, width))
    identifier = re.sub(r"\W+", "_", f"sleepconv_{run.name}_scale_{run.scale:g}_seed_{run.seed}").lower()
    words = {
        "identifier": identifier,
        "row": run.name,
        "dataset": run.dataset,
        "layers": repr(layers),
        "readout": layers[-1],
        "input_size": repr(prepare.input_size),
        "statistics": repr(prepare.statistics),
        "image_size": str(height),
    }
    target = Path(out) / identifier
    if target.exists() and not (target / "run" / RECIPE).is_file():
        raise ValueError(f"{target} is there and is no submission of this command; move it away")
    with atomic_folder(target) as new:
        for name, template in [("__init__.py", INIT), ("model.py", MODEL), ("test.py", TEST)]:
            (new / name).write_text(template.substitute(words))
        (new / "requirements.txt").write_text(f"sleepconv[brain]=={version('sleepconv')}\n")
        (new / "run").mkdir()
        for name in (RECIPE, WEIGHTS):
            shutil.copy(folder.path / name, new / "run" / name)
    return target
