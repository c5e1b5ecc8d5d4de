"""Folders that something happened to."""

from pathlib import Path

import pytest

from sleepconv.training import Run, RunFolder, train
from sleepconv.training.folder import ENVIRONMENT, METRICS, SUMMARY


def test_a_folder_in_which_nothing_was_learned_takes_another_recipe(tmp_path: Path, small: Run):
    with pytest.raises(ValueError, match="no network 'resnet21'"):
        train(small.changed(network="resnet21"), tmp_path, quiet=True)
    train(small, tmp_path, quiet=True, max_steps=1)
    assert RunFolder(tmp_path).recipe() == small


@pytest.mark.parametrize("content", ["", '{"top1": 12', "[]", "\0\0"])
def test_a_damaged_file_is_named(tmp_path: Path, content: str):
    folder = RunFolder(tmp_path)
    for name, read in ((SUMMARY, folder.summary), (ENVIRONMENT, folder.environment)):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            read()


@pytest.mark.parametrize("top5", ["", ', "top5": NaN', ', "top5": "high"'])
def test_a_summary_without_a_number_for_the_result_is_refused(tmp_path: Path, top5: str):
    (tmp_path / SUMMARY).write_text(f'{{"top1": 12.0{top5}}}')
    with pytest.raises(ValueError, match="has no number for top5"):
        RunFolder(tmp_path).summary()


@pytest.mark.parametrize("line", ["not json", "3", "{}"])
def test_a_damaged_line_of_the_metrics_is_named(tmp_path: Path, line: str):
    (tmp_path / METRICS).write_text('{"kind": "epoch"}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"line 2 of .*metrics.jsonl is damaged"):
        RunFolder(tmp_path).metrics()


def test_a_run_whose_records_were_lost_does_not_go_on_as_if_nothing_were_missing(tmp_path: Path, small: Run):
    train(small.changed(snr_every=1), tmp_path, quiet=True, max_steps=2)
    (tmp_path / METRICS).unlink()
    with pytest.raises(ValueError, match="records are lost"):
        train(small.changed(snr_every=1), tmp_path, quiet=True)
