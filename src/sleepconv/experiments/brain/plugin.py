"""Write a run as a submission to Brain-Score 2.4: a folder for its ``models``, weights included."""

import re
import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from string import Template

from sleepconv.brain.activations import comparable_layers, find_layers
from sleepconv.experiments.brain.candidates import preparation_for
from sleepconv.experiments.data.description import StrPath
from sleepconv.experiments.runs import RunFolder
from sleepconv.experiments.runs.folder import RECIPE, WEIGHTS
from sleepconv.experiments.training.checkpoints import read_tensors
from sleepconv.files import atomic_folder

_INIT = Template("""\
from brainscore_vision import model_registry
from brainscore_vision.model_helpers.brain_transformation import ModelCommitment

from .model import LAYERS, READOUT, get_model

model_registry["$identifier"] = lambda: ModelCommitment(
    identifier="$identifier", activations_model=get_model(), layers=LAYERS, behavioral_readout_layer=READOUT
)
""")
_MODEL = Template('''\
"""$row, trained on $dataset: a network of sleepconv (Pogodin et al., 2021)."""

from pathlib import Path

import numpy as np
from brainscore_vision.model_helpers.activations.pytorch import PytorchWrapper, load_images
from sleepconv.brain import Preparation
from sleepconv.experiments.runs import RunFolder

IDENTIFIER = "$identifier"
LAYERS = $layers
READOUT = "$readout"
PREPARE = $prepare
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
_TEST = Template("""\
import brainscore_vision
import pytest


@pytest.mark.travis_slow
def test_has_identifier():
    assert brainscore_vision.load_model("$identifier").identifier == "$identifier"
""")


def write_plugin(path: StrPath, out: StrPath, *, layers: Sequence[str] | None = None) -> Path:
    """Write a finished run atomically as the folder ``out/identifier``, and return it.

    Brain-Score labels images with the last layer of a network that was trained on ImageNet. For other networks it
    trains its own classifier on the layer before the last. It chooses the layer of each region among ``layers``, by
    default all `comparable_layers`.
    """
    folder = RunFolder(path)
    run = folder.recipe()
    model = folder.load_model()
    _, facts = read_tensors(folder.path / WEIGHTS)
    channels, height, width = facts["input_size"]
    comparable = comparable_layers(model)
    identifier = re.sub(r"\W+", "_", f"sleepconv_{run.name}_scale_{run.scale:g}_seed_{run.seed}").lower()
    words = {
        "identifier": identifier,
        "row": run.name,
        "dataset": run.dataset,
        "layers": repr(list(find_layers(model, layers)) if layers else comparable),
        "readout": comparable[-1],
        "prepare": repr(preparation_for(run.dataset, (channels, height, width))),
        "image_size": str(height),
    }
    target = Path(out) / identifier
    if target.exists() and not (target / "run" / RECIPE).is_file():
        raise ValueError(f"{target} exists and was not written by `sleepconv brain plugin`; move it away")
    with atomic_folder(target) as new:
        for name, template in [("__init__.py", _INIT), ("model.py", _MODEL), ("test.py", _TEST)]:
            (new / name).write_text(template.substitute(words))
        (new / "requirements.txt").write_text(f"sleepconv[brain]=={version('sleepconv')}\n")
        (new / "run").mkdir()
        for name in (RECIPE, WEIGHTS):
            shutil.copy(folder.path / name, new / "run" / name)
    return target
