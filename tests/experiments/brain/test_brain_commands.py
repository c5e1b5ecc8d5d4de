"""`sleepconv brain` from runs and recordings to table, figure and records."""

import json
import shutil

import numpy as np
import pytest
import torch
from torch import nn

from sleepconv.cli import main
from sleepconv.experiments.brain import scoring
from sleepconv.experiments.brain.candidates import preparation_for
from sleepconv.experiments.data import cifar10_16x16
from sleepconv.experiments.runs import RunFolder


def score(runs, recordings, out, *more: str) -> int:
    return main(["brain", "score", str(runs), "--data", str(recordings), "--out", str(out), *more])


def test_runs_and_baselines_become_a_table_a_figure_and_records(runs, recordings, small_cifar10, tmp_path, capsys):
    out = tmp_path / "out"
    options = ("--untrained", "--pixels", "--json", "--data-dir", str(small_cifar10), "--layers", "relu", "pool")
    assert score(runs, recordings, out, *options) == 0
    table = json.loads(capsys.readouterr().out)
    assert [(row["kind"], row["row"]) for row in table["rows"]] == [
        ("trained", "conv"),
        ("untrained", "conv"),
        ("pixels", "pixels"),
    ]
    conv, _, pixels = (row["scores"] for row in table["rows"])
    assert set(conv) == {"V4", "IT", "behaviour", "mean"}
    assert pixels["V4"]["score"] == pytest.approx(1, abs=0.35)
    assert pixels["IT"]["score"] > 0.8
    assert (out / "layers.png").stat().st_size > 1000
    assert not (out / "activations").exists()
    assert sorted(path.name for path in out.glob("*.json")) == [
        "pixels.json",
        "small-scale-1-seed-0.json",
        "untrained-resnet20-convolutional-cifar10-seed-0.json",
    ]


def test_what_is_recorded_is_not_scored_again_and_the_table_comes_from_records(
    runs, recordings, tmp_path, capsys, monkeypatch
):
    assert score(runs, recordings, tmp_path / "out", "--layers", "pool") == 0
    first = capsys.readouterr().out
    assert "Not scored: small-scale-1-seed-0 on labels" in first

    def scored_again(*_: object) -> None:
        raise AssertionError

    for name in ("fit_recording", "fit_dissimilarities"):
        monkeypatch.setattr(scoring, name, scored_again)
    assert score(runs, recordings, tmp_path / "out", "--layers", "pool") == 0
    assert capsys.readouterr().out == first
    assert main(["brain", "table", str(tmp_path / "out"), "--out", str(tmp_path / "again")]) == 0
    assert capsys.readouterr().out == first
    assert (tmp_path / "again" / "table.md").read_text() == (tmp_path / "out" / "table.md").read_text()


def test_changed_recordings_are_scored_again(runs, recordings, tmp_path, capsys):
    for name in ("it", "labels"):
        (recordings / f"{name}.npz").unlink()
    assert score(runs, recordings, tmp_path / "out", "--layers", "pool") == 0
    before = capsys.readouterr().out
    with np.load(recordings / "v4.npz") as archive:
        arrays = dict(archive) | {"responses": archive["responses"][:, ::-1] ** 3}
    np.savez(recordings / "v4.npz", **arrays)
    assert score(runs, recordings, tmp_path / "out", "--layers", "pool") == 0
    assert capsys.readouterr().out != before


def test_an_unknown_layer_is_one_line_with_the_nearest(runs, recordings, tmp_path, capsys):
    assert score(runs, recordings, tmp_path / "out", "--layers", "pol") == 1
    assert capsys.readouterr().err == "sleepconv: ResNetCIFAR has no layer 'pol'; did you mean 'pool'?\n"
    assert not list((tmp_path / "out").glob("*.json"))


def test_too_few_images_are_one_line_that_names_the_data(runs, recordings, tmp_path, capsys):
    for name in ("it", "labels"):
        (recordings / f"{name}.npz").unlink()
    with np.load(recordings / "v4.npz") as archive:
        arrays = dict(archive) | {key: archive[key][:48] for key in ("images", "responses", "groups")}
    np.savez(recordings / "v4.npz", **arrays)
    assert score(runs, recordings, tmp_path / "out", "--layers", "pool") == 1
    error = capsys.readouterr().err
    assert "small-scale-1-seed-0 on toy-v4: 16 training images are too few for 25 components" in error
    assert error.count("\n") == 1


def test_a_folder_without_finished_runs_is_an_error(recordings, tmp_path, capsys):
    assert score(tmp_path / "nothing", recordings, tmp_path / "out") == 1
    assert "no finished run in" in capsys.readouterr().err


def test_two_runs_that_would_share_a_record_are_an_error(runs, recordings, tmp_path, capsys):
    shutil.copytree(runs / "small", runs / "twin")
    assert score(runs, recordings, tmp_path / "out") == 1
    assert "would share the record small-scale-1-seed-0" in capsys.readouterr().err


def test_a_plugin_is_a_folder_of_valid_python_with_the_weights(runs, tmp_path, capsys):
    assert main(["brain", "plugin", str(runs / "small"), "--out", str(tmp_path / "plugins")]) == 0
    folder = tmp_path / "plugins" / "sleepconv_small_scale_1_seed_0"
    assert capsys.readouterr().out.strip() == str(folder)
    for name in ("__init__.py", "model.py", "test.py"):
        compile((folder / name).read_text(), name, "exec")
    assert "sleepconv[brain]" in (folder / "requirements.txt").read_text()
    weights = [
        path.read_bytes() for path in (folder / "run" / "model.safetensors", runs / "small" / "model.safetensors")
    ]
    assert weights[0] == weights[1]


def test_a_plugin_names_the_layers_that_were_chosen(runs, tmp_path):
    assert main(["brain", "plugin", str(runs / "small"), "--out", str(tmp_path), "--layers", "ReLU"]) == 0
    written = (tmp_path / "sleepconv_small_scale_1_seed_0" / "model.py").read_text()
    model = RunFolder(runs / "small").load_model()
    relus = [name for name, module in model.named_modules() if isinstance(module, nn.ReLU)]
    assert len(relus) > 1
    assert f"LAYERS = {relus}\n" in written


def test_a_plugin_of_an_unfinished_run_leaves_nothing(runs, tmp_path, capsys):
    (runs / "small" / "model.safetensors").unlink()
    assert main(["brain", "plugin", str(runs / "small"), "--out", str(tmp_path / "plugins")]) == 1
    assert "not finished" in capsys.readouterr().err
    assert not (tmp_path / "plugins").exists()


def test_a_path_without_a_finished_run_is_an_error_and_an_unfinished_one_is_named(runs, recordings, tmp_path, capsys):
    out, typo = tmp_path / "out", tmp_path / "rnus"
    command = ["--data", str(recordings), "--out", str(out), "--layers", "pool"]
    assert main(["brain", "score", str(runs), str(typo), *command]) == 1
    assert f"no finished run in {typo}" in capsys.readouterr().err
    unfinished = runs / "unfinished"
    shutil.copytree(next(path.parent for path in runs.rglob("recipe.json")), unfinished)
    (unfinished / "model.safetensors").unlink()
    assert main(["brain", "score", str(runs), *command]) == 0
    assert f"{unfinished} left out" in capsys.readouterr().err


def test_only_label_counts_make_a_table_without_a_figure(runs, recordings, small_cifar10, tmp_path, capsys):
    for name in ("it", "v4"):
        (recordings / f"{name}.npz").unlink()
    assert score(runs, recordings, tmp_path / "out", "--data-dir", str(small_cifar10)) == 0
    assert "soft-label cross-entropy" in capsys.readouterr().out
    assert not (tmp_path / "out" / "layers.png").exists()


def test_networks_of_the_miniature_answer_for_its_own_images(miniature_runs, recordings, small_cifar10, tmp_path):
    for name in ("it", "v4"):
        (recordings / f"{name}.npz").unlink()
    assert score(miniature_runs, recordings, tmp_path / "out", "--data-dir", str(small_cifar10)) == 0
    record = json.loads((tmp_path / "out" / "mini-scale-1-seed-0.json").read_text())
    images = cifar10_16x16(small_cifar10, train=False, complete=False).pixels
    prepare = preparation_for("cifar10-16x16", (3, 16, 16))
    mean, std = (torch.tensor(channels)[:, None, None] for channels in (prepare.mean, prepare.std))
    logits = RunFolder(miniature_runs / "mini").load_model().eval()((images - mean) / std)
    counts = torch.from_numpy(np.load(recordings / "labels.npz")["counts"]).float()
    loss = nn.functional.cross_entropy(logits, counts / counts.sum(1, keepdim=True))
    assert record["scores"][0]["cross_entropy"] == pytest.approx(loss.item(), rel=1e-5)


def test_a_second_call_keeps_the_rows_of_the_first_and_names_what_saw_other_data(runs, recordings, tmp_path, capsys):
    assert score(runs, recordings, tmp_path / "out", "--layers", "pool", "--pixels") == 0
    (recordings / "it.npz").unlink()
    assert score(runs, recordings, tmp_path / "out", "--layers", "pool") == 0
    printed = capsys.readouterr().out
    assert "pixels" in (tmp_path / "out" / "table.md").read_text()
    assert "Scored on other data than pixels: small-scale-1-seed-0" in printed
