"""The command line as a user meets it: real processes, or main() where the start of one proves nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sleepconv.cli import CLOSED_PIPE, main
from sleepconv.experiments.paper import recipe


def test_help_does_not_import_pytorch_and_fits_on_a_screen():
    code = (
        "import sys; from sleepconv.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    *help_text, imported = done.stdout.splitlines()
    assert imported == "False"
    assert len(help_text) <= 24


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("sweep table1 --dataset cifar10 --runs no/such/folder --dry-run", "runs would be trained"),
        ("sweep tabel1", "there is nothing to sweep called 'tabel1'; did you mean 'table1'?"),
        ("train cifar10_lokal", "did you mean 'cifar10_local'?"),
        ("report no/such/folder", "no run in no/such/folder"),
        ("data check cifer10", "there is no dataset 'cifer10'; did you mean 'cifar10'?"),
    ],
)
def test_what_a_command_can_say_without_pytorch_does_not_import_it(command, shown):
    code = (
        "import sys; from sleepconv.cli import main\n"
        "main(sys.argv[1:])\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'torch'])"
    )
    arguments = [sys.executable, "-c", code, *command.split()]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert shown in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("verb", "unbuffered"), [("list", ""), ("list", "1"), ("--help", "")])
def test_a_reader_that_has_seen_enough_is_no_error(verb, unbuffered):
    command, environment = [sys.executable, "-m", "sleepconv", verb], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == CLOSED_PIPE


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes standard output")
def test_without_standard_output_it_does_its_work():
    done = subprocess.run(f"{sys.executable} -m sleepconv list >&-", shell=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_another_pipe_that_breaks_is_an_error(monkeypatch, capsys):
    def broken(options):
        raise BrokenPipeError("a worker is gone")

    monkeypatch.setattr("sleepconv.cli.results._list", broken)
    assert main(["list"]) == 1
    assert "a worker is gone" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["train", "list", "sweep", "table", "figure", "report", "demo", "bench", "data"])
def test_every_verb_has_an_example(verb: str, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert "example: sleepconv " + verb in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train cifar10_locl", "did you mean 'cifar10_local'?"),
        ("train cifar10_local --set learning_rat=1", "did you mean 'learning_rate'?"),
        ("train cifar10_local --set learning_rate", "FIELD=VALUE"),
        ("train cifar10_local --scale 0", "`scale` must be finite and above 0, got 0.0"),
        ("train cifar10_local --scale nan", "`scale` must be finite and above 0, got nan"),
        ("train cifar10_local --set epochs=many", "`epochs` must be an int, got 'many'"),
        ("train cifar10_local --set sleep_options=[", "`sleep_options` must be an object"),
        ("table 99", "99"),
        ("report nowhere", "no run in nowhere"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(command, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 1
    said = capsys.readouterr().err
    assert expected in said
    assert len(said.splitlines()) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", ['{"top1": 1', '{"top1": 1, "top5": 1, "seconds": 1, "seconds_per_epoch": 1}'])
def test_a_damaged_summary_is_one_line(content, tmp_path, capsys):
    folder = tmp_path / "cifar10_local" / "scale-1-seed-0"
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text(recipe("cifar10_local").as_json())
    (folder / "summary.json").write_text(content)
    assert main(["train", "cifar10_local", "--runs", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder / 'summary.json'} " in line


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("recipe.json", "1" + 400 * "0"),
        ("metrics.jsonl", "1e999"),
        ("summary.json", "1" + 400 * "0"),
        ("environment.json", "1e999"),
    ],
)
def test_a_number_too_large_for_a_float_is_one_line(name, number, record, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file = record("cifar10_local", top1=50.0) / name
    known = file.read_text() if file.exists() else '{"kind": "evaluation", "seconds": 1}\n'
    file.write_text(re.sub(r'("(learning_rate|seconds|cores)": )[\d.e-]+', rf"\g<1>{number}", known))
    for verb in ("report runs", "runs", "table 1", "list", "figure learning"):
        main(verb.split())
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
        assert name in line
        assert f"the number {number[:16]}" in line


def test_an_unknown_verb_suggests_the_nearest(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as ended:
        main(["trian", "cifar10_local"])
    assert ended.value.code == 2
    assert "did you mean 'train'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        "--debug train nothing",
        "train nothing --debug",
        "train --debug nothing --set epochs=1",
        "sweep nothing --debug",
        "table 99 --debug",
        "--debug report nowhere",
        "report --debug nowhere",
        "keep nowhere --debug",
        "data check nothing --debug",
        "data --debug check nothing",
        "--debug brain plugin nowhere --out here",
        "brain plugin nowhere --out here --debug",
    ],
)
def test_debug_may_stand_before_and_after_the_verb(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, OSError)):
        main(command.split())
    assert main([word for word in command.split() if word != "--debug"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_missing_data_say_how_to_get_them(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["train", "cifar10_local", "--runs", str(tmp_path), "--data-dir", str(tmp_path)]) == 1
    assert "sleepconv data get cifar10" in capsys.readouterr().err


def test_train_prints_the_summary_for_a_script_and_goes_on_after_a_signal(tmp_path: Path, capsys):
    settings = ["dataset=digits", "network=three_layers", "epochs=12", "batch_size=64", "padding=2"]
    command = [
        "train",
        "cifar10_sleep_every_10",
        "--name",
        "mine",
        "--json",
        "--runs",
        str(tmp_path),
        "--set",
        *settings,
    ]
    process = subprocess.Popen([sys.executable, "-m", "sleepconv", *command], stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "mine" / "scale-1-seed-0"
    while not (folder / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    assert "the same command resumes from there" in process.stderr.read()
    assert main(command) == 0
    said = capsys.readouterr()
    assert "resumes after step" in said.err
    assert json.loads(said.out)["folder"] == str(folder)


@pytest.mark.parametrize("verb", [["table", "1"], ["list"], ["figure", "6"]])
def test_records_looked_for_where_no_folder_is_are_an_error_not_an_empty_answer(verb, tmp_path, capsys):
    assert main([*verb, "--runs", str(tmp_path / "rnus")]) == 1
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_one_line(device, tmp_path, capsys):
    assert main(["train", "cifar10_local", "--runs", str(tmp_path), "--device", device]) == 1
    error = capsys.readouterr().err
    assert f"cannot compute on device {device!r}" in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_is_left_out_of_a_report_and_named(tmp_path: Path, capsys: pytest.CaptureFixture):
    runs = [tmp_path / name for name in ("whole", "damaged")]
    for run in runs:
        run.mkdir()
        (run / "recipe.json").write_text(recipe("cifar10_local").as_json())
    (tmp_path / "damaged" / "summary.json").write_text("{half")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    said = capsys.readouterr()
    assert f"{runs[1]} left out" in said.err
    assert "cifar10_local" in (tmp_path / "page.html").read_text()


def test_figure_6_without_records_says_how_to_get_them(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["figure", "6", "--runs", str(tmp_path), "--out", str(tmp_path)]) == 0
    assert "sleepconv sweep cifar10_figure_6a" in capsys.readouterr().err
