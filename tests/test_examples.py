"""Every example runs as it stands, and the notebook cell by cell."""

import io
import json
import runpy
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sleepconv.brain import Recording

EXAMPLES = Path(__file__).parents[1] / "examples"


@cache
def output_of(name: str, *arguments: str) -> str:
    """What it prints when it is run as a program, here in this process: to import PyTorch again would take longer."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return printed.getvalue()


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_runs_and_prints_what_it_found(name):
    assert output_of(name)


def test_the_layer_that_a_made_up_brain_is_made_of_fits_it_best():
    fits = {
        tuple(line.split()[:2]): line.split()[3] for line in output_of("score_against_neurons.py").splitlines()[1:4]
    }
    assert max(fits, key=lambda layer: float(fits[layer])) == ("convolutional", "stages.1.0")


def test_a_filter_per_pixel_calibrates_a_camera_better_than_a_convolution():
    (line,) = [line for line in output_of("layer_in_an_application.py").splitlines() if line.startswith("after")]
    convolution, local = (float(part.split()[-1]) for part in line.split(", "))
    assert local < convolution / 2


def test_frames_of_a_movie_do_not_help_to_predict_each_other(tmp_path):
    """Every neuron answers at random to a movie, and alike to all its frames: nothing that holds for other movies."""
    random, movies = np.random.default_rng(0), np.arange(160) // 16
    frames = random.integers(60, 196, (10, 16, 16, 3))[movies] + random.integers(-3, 4, (160, 16, 16, 3))
    answers = random.normal(size=(10, 9))[movies] + 0.1 * random.normal(size=(160, 9))
    Recording("movies", "V1", frames.astype(np.uint8), answers, movies).save(tmp_path / "movies.npz")
    lines = output_of("score_against_neurons.py", str(tmp_path / "movies.npz")).splitlines()[1:]
    fits = [float(line.split(" r ")[1]) for line in lines]
    assert len(fits) == 6
    assert max(fits) < 0.3


def test_the_hebbian_rule_is_watched_as_an_animation(tmp_path):
    from PIL import Image

    gif = tmp_path / "hebbian.gif"
    output_of("watch_the_hebbian_rule.py", str(gif))
    assert Image.open(gif).n_frames == 41


@pytest.fixture(scope="module")
def notebook():
    """The notebook, run again, and the names that its cells leave."""
    tool = runpy.run_path(str(EXAMPLES.parent / "docs" / "tools" / "notebook.py"))
    return tool["executed"](json.loads((EXAMPLES / "quick_start.ipynb").read_text()))


def test_the_notebook_shows_that_only_the_sleeper_knows_digits_twelve_pixels_away(notebook):
    _, names = notebook
    local, sleeper = names["results"]["local"], names["results"]["local with sleep"]
    assert min(local[2], sleeper[2], sleeper[14]) > 85
    assert max(local[8], sleeper[8], local[14]) < 40


def test_the_notebook_has_the_outputs_of_its_cells(notebook):
    again, _ = notebook
    kept = json.loads((EXAMPLES / "quick_start.ipynb").read_text())
    for cell, now in zip(kept["cells"], again["cells"], strict=True):
        if "".join(cell["source"]).endswith("results"):  # trained: another machine rounds otherwise
            assert cell["outputs"]
        else:
            assert cell == now
