"""Folders that something happened to."""

import json
import os
import shutil
from pathlib import Path

import pytest

from sleepconv.cli import main
from sleepconv.experiments.runs import Run, RunFolder, run_path
from sleepconv.experiments.runs.folder import CHECKPOINT, ENVIRONMENT, METRICS, RECIPE, SUMMARY, WEIGHTS
from sleepconv.experiments.training import train


def test_a_folder_in_which_nothing_was_learned_takes_another_recipe(tmp_path: Path, small: Run):
    with pytest.raises(ValueError, match="no network 'resnet21'"):
        train(small.changed(network="resnet21"), tmp_path, quiet=True)
    train(small, tmp_path, quiet=True, max_steps=1)
    assert RunFolder(tmp_path).recipe() == small


@pytest.mark.parametrize("content", [b"", b'{"top1": 12', b"[]", b"\0\0", b'{"top1": "\xff"}', b"[" * 100_000])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes):
    folder = RunFolder(tmp_path)
    for name, read in ((SUMMARY, folder.summary), (ENVIRONMENT, folder.environment)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            read()


@pytest.mark.parametrize("top5", ["", ', "top5": NaN', ', "top5": "high"'])
def test_a_summary_without_a_number_for_the_result_is_refused(tmp_path: Path, top5: str):
    (tmp_path / SUMMARY).write_text(f'{{"top1": 12.0{top5}}}')
    with pytest.raises(ValueError, match="has no number for top5"):
        RunFolder(tmp_path).summary()


@pytest.mark.parametrize("count", ["epochs", "weights_bytes"])
def test_a_summary_that_counts_in_words_is_refused(tmp_path: Path, count: str):
    result = {"top1": 12.0, "top5": 50.0, "seconds": 1.0, "seconds_per_epoch": 1.0, "set": "test"}
    (tmp_path / SUMMARY).write_text(json.dumps(result))
    assert RunFolder(tmp_path).summary() == result  # early summaries had no counts
    (tmp_path / SUMMARY).write_text(json.dumps({**result, count: "many"}))
    with pytest.raises(ValueError, match=f"summary.json has no number for {count}"):
        RunFolder(tmp_path).summary()


@pytest.mark.parametrize("line", [b"not json", b"3", b"{}", b'{"kind": "\xff"}'])
def test_a_damaged_line_of_the_metrics_is_named(tmp_path: Path, line: bytes):
    (tmp_path / METRICS).write_bytes(b'{"kind": "epoch"}\n' + line + b"\n")
    with pytest.raises(ValueError, match=r"line 2 of .*metrics.jsonl is damaged"):
        RunFolder(tmp_path).metrics()


def test_a_run_whose_records_were_lost_does_not_go_on_as_if_nothing_were_missing(tmp_path: Path, small: Run):
    train(small.changed(snr_every=1), tmp_path, quiet=True, max_steps=2)
    (tmp_path / METRICS).unlink()
    with pytest.raises(ValueError, match="records are lost"):
        train(small.changed(snr_every=1), tmp_path, quiet=True)


def contents(folder: Path) -> dict[str, bytes]:
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.parametrize(
    ("name", "target"),
    [(METRICS, "/proc/self/mem"), *((name, name) for name in (RECIPE, METRICS, SUMMARY, CHECKPOINT))],
)
def test_a_disk_that_does_not_answer_is_an_error_that_changes_nothing(
    tmp_path: Path, small: Run, name: str, target: str
):
    run, folder = small.changed(snr_every=1), tmp_path / "run"
    train(run, folder, quiet=True, max_steps=2)
    if (folder / name).exists():
        os.rename(folder / name, tmp_path / "elsewhere")
    (folder / name).symlink_to(target)  # an input/output error, or a link that leads to itself
    if target != name and not (folder / name).exists():
        pytest.skip("needs Linux")
    before = contents(folder)
    with pytest.raises(OSError, match=name):
        train(run, folder, quiet=True)
    assert contents(folder) == before
    assert (folder / name).is_symlink()
    (folder / name).unlink()
    if (tmp_path / "elsewhere").exists():
        os.rename(tmp_path / "elsewhere", folder / name)
    assert train(run, folder, quiet=True, max_steps=3) is None
    assert RunFolder(folder).metrics("snr")[-1]["step"] == 3


def test_a_lost_recipe_is_not_replaced_by_another(tmp_path: Path, small: Run):
    train(small, tmp_path, quiet=True, max_steps=2)
    (tmp_path / RECIPE).unlink()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"begun with another recipe: learning_rate was 0.003, is now 0.5"):
        train(small.changed(learning_rate=0.5), tmp_path, quiet=True)
    assert contents(tmp_path) == before
    train(small, tmp_path, quiet=True, max_steps=3)
    assert RunFolder(tmp_path).recipe() == small


@pytest.mark.parametrize("steps", [1, None])
def test_a_lost_recipe_of_which_no_checkpoint_tells_is_refused(tmp_path: Path, small: Run, steps: int | None):
    run = small.changed(snr_every=1)
    train(run, tmp_path, quiet=True, max_steps=steps)
    (tmp_path / RECIPE).unlink()
    for file in RunFolder(tmp_path).checkpoints.paths():
        file.unlink()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"its recipe.json is lost and no checkpoint contains it"):
        train(run, tmp_path, quiet=True)
    assert contents(tmp_path) == before


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, small: Run):
    for seed in (0, 1):
        train(small.changed(seed=seed), tmp_path / str(seed), quiet=True, max_steps=2)
    (source,), (target,) = (RunFolder(tmp_path / seed).checkpoints.paths() for seed in "10")
    os.replace(source, target)
    with pytest.raises(ValueError, match=r"begun with another recipe: seed was 1, is now 0"):
        train(small, tmp_path / "0", quiet=True)


@pytest.mark.parametrize("change", [b"{" * 20, b"\n" * 3])
def test_damaged_metrics_stop_a_run_before_it_goes_on_not_at_its_end(tmp_path: Path, small: Run, change: bytes):
    run = small.changed(snr_every=1)
    train(run, tmp_path, quiet=True, max_steps=2)
    content = (tmp_path / METRICS).read_bytes()
    (tmp_path / METRICS).write_bytes(change + content[len(change) :])
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"metrics.jsonl is damaged"):
        train(run, tmp_path, quiet=True, max_steps=3)
    assert contents(tmp_path) == before


def test_damaged_checkpoints_do_not_crowd_out_whole_ones(tmp_path: Path, small: Run):
    for steps in (1, 6):
        train(small, tmp_path, quiet=True, max_steps=steps)
    checkpoints = RunFolder(tmp_path).checkpoints
    os.truncate(checkpoints.paths()[0], 100)
    for steps in (2, 4):
        train(small, tmp_path, quiet=True, max_steps=steps)
    assert [path.name for path in checkpoints.paths()] == [f"step-{step:08d}.safetensors" for step in (4, 3)]
    assert (checkpoints.folder / "step-00000006.damaged").is_file()


def test_a_run_without_a_whole_checkpoint_begins_anew_and_says_so(
    tmp_path: Path, small: Run, whole: Path, assert_same_end, caplog
):
    train(small, tmp_path / "run", quiet=True, max_steps=4)
    for path in RunFolder(tmp_path / "run").checkpoints.paths():
        os.truncate(path, 100)
    train(small, tmp_path / "run")
    said = caplog.text
    assert "starts again: there is no intact checkpoint" in said
    assert said.count("set aside as") == 2
    assert_same_end(whole, tmp_path / "run")


def damage(file: Path, left: int | str | None) -> None:
    """Remove a file, cut it or flip a byte near its end."""
    if left is None:
        file.unlink()
    elif isinstance(left, int):
        os.truncate(file, left)
    else:
        content = bytearray(file.read_bytes())
        content[-9] ^= 1
        file.write_bytes(content)


def test_a_finished_run_that_lost_weights_or_reports_is_not_taken_for_done(
    tmp_path: Path, small: Run, whole: Path, capsys
):
    folder, kept = (RunFolder(run_path(tmp_path / name, small)) for name in ("runs", "kept"))
    shutil.copytree(whole, folder.path)
    folder.copy_records(tmp_path / "kept")
    assert folder.state(small) == kept.state(small) == "done"
    for name, left, loss in (
        (WEIGHTS, 0, "model.safetensors has 0 of [0-9]+ bytes"),
        (WEIGHTS, None, "model.safetensors is missing"),
        (WEIGHTS, "a byte", "model.safetensors is damaged: the checksum of .* is not the one it was saved with"),
        (METRICS, 100, "metrics.jsonl has 0 of 3 evaluations"),
    ):
        damage(folder.path / name, left)
        assert folder.state(small) == "damaged"
        with pytest.raises(ValueError, match=f"{loss}; put it back, or remove the folder to train the run again"):
            train(small, folder.path, quiet=True)
        assert main(["runs", str(tmp_path)]) == 0
        shown = capsys.readouterr()
        assert shown.out.count("weights lost") == (name == WEIGHTS)
        assert shown.err.count("left out") == (name == METRICS)
        shutil.copy(whole / name, folder.path)
        shutil.copy(whole / name, folder.path)
    assert folder.state(small) == "done"


def test_damaged_weights_are_not_loaded_and_the_error_says_what_to_do(tmp_path: Path, whole: Path):
    shutil.copytree(whole, tmp_path / "run")
    damage(tmp_path / "run" / WEIGHTS, "a byte")
    with pytest.raises(ValueError, match=r"run/model.safetensors is damaged: .*; put it back, or remove the folder"):
        RunFolder(tmp_path / "run").load_model()
