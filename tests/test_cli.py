"""The command line as a user meets it: real processes, or main() where the start of one proves nothing."""

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import fields
from pathlib import Path

import pytest

import sleepconv
from sleepconv.cli import CLOSED_PIPE, _parser, completion, main
from sleepconv.experiments import Run, train
from sleepconv.experiments.paper import recipe
from sleepconv.experiments.sweep import runs_of


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
        ("train cifar10_local --set network=resnet21", "there is no network 'resnet21'; did you mean 'resnet20'?"),
        ("sweep cifar10_local --set epochs=many", "`epochs` must be an int, got 'many'"),
        ("sweep cifar10_local_grid --set epochs=3", "settings change recipes, but cifar10_local_grid is a search"),
        ("sweep cifar10_local --set seed=3", "seed=3 cannot be set for all runs of a sweep"),
        (
            "sweep cifar10_local --slurm foo --dry-run",
            "a SLURM option must be NAME=VALUE, like partition=gpu, got 'foo'",
        ),
        ("demo --scale -1", "`scale` must be finite and above 0, got -1.0"),
        ("table 99", "99"),
        ("report nowhere", "no run in nowhere"),
        ("brain table nowhere", "nowhere does not exist; name a record"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(command, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 1
    said = capsys.readouterr().err
    assert expected in said
    assert len(said.splitlines()) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("table 1 --out folder", "folder is a folder; name a file"),
        ("figure 4a --out file", "file is a file; name a folder"),
        ("figure 6 --out file/below", "file is a file; name a folder"),
        ("report folder --out file/page.html", "file is a file; name a folder"),
        ("runs file", "file is a file; name a folder of runs"),
        ("keep file", "file is a file; name a folder of runs"),
        ("sweep cifar10_local --runs file", "file is a file; name a folder"),
        ("train cifar10_local --runs file", "file is a file; name a folder"),
        ("demo --out file", "file is a file; name a folder"),
        ("brain table folder --out file", "file is a file; name a folder"),
        ("bench --json folder", "folder is a folder; name a file"),
    ],
)
def test_a_path_that_is_a_file_or_a_folder_by_mistake_is_one_line(command, says, record, tmp_path, monkeypatch, capsys):
    record("cifar10_local", top1=50.0, runs="folder")
    (tmp_path / "file").write_text("hello")
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "hello"


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"sleepconv {sleepconv.__version__} (Python {sys.version_info[0]}.")


@pytest.mark.parametrize("verb", ["train", "sweep"])
def test_the_help_lists_every_field_that_can_be_set(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    listed = capsys.readouterr().out.partition("fields for --set")[2]
    for field in fields(Run):
        assert (field.name in ("name", "seed", "scale")) != bool(re.search(rf"^  {field.name}\b", listed, re.M)), (
            field.name
        )


def test_a_sweep_changes_all_its_recipes_and_their_names_tell_how(tmp_path, capsys):
    command = ["sweep", "demo_local", "demo_convolutional", "--set", "epochs=1", "--runs", str(tmp_path), "--dry-run"]
    assert main(command) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == [f"new    demo_{kind}-epochs=1 scale 1 seed 0" for kind in ("local", "convolutional")]
    assert [run.epochs for run in runs_of(["demo_local"], seeds=2, scale=1.0, settings=["epochs=1"])] == [1, 1]


def test_set_can_be_given_several_times(tmp_path, capsys):
    settings = ["--set", "epochs=1", "--set", "batch_size=6"]
    assert main(["sweep", "demo_local", *settings, "--runs", str(tmp_path), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("new    demo_local-epochs=1-batch_size=6 ")


def test_the_recipes_of_the_demo_can_be_swept_and_make_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "demo", "--dry-run"]) == 0
    assert "3 of 3 runs would be trained" in capsys.readouterr().out
    assert main(["table", "demo"]) == 0
    assert capsys.readouterr().out.startswith("Demo, digits-left, digits shown only on the left")


def test_toy_folders_of_imagenet_train_if_the_flag_is_given(small_imagenet, data_dir, tmp_path, capsys):
    command = ["train", "imagenet_convolutional", "--scale", "0.005", "--runs", str(tmp_path / "runs"), "--json"]
    command += ["--data-dir", str(data_dir), "--name", "toy", "--set", "batch_size=6"]
    assert main(command) == 1
    assert "2 class folders, but ImageNet has 1000; --incomplete" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    assert main([*command, "--incomplete"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["images"], summary["steps"]) == (6, 2)


def test_a_run_that_is_too_short_to_sleep_says_so(tmp_path, caplog):
    run = recipe("demo_local_with_sleep", scale=0.03)
    train(run.changed(sleep_every=13), tmp_path / "short")
    assert "will never sleep: it ends after 12 steps, before its first sleep" in caplog.text
    caplog.clear()
    train(run.changed(sleep_every=12), tmp_path / "long")
    assert "will never sleep" not in caplog.text


def test_messages_go_where_logging_is_configured_to_send_them(tmp_path, capsys):
    heard = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append((record.levelname, record.getMessage()))
    logging.getLogger("sleepconv").addHandler(handler)
    try:
        train(recipe("demo_local", scale=0.03), tmp_path / "run")
        assert main(["train", "nothing"]) == 1
    finally:
        logging.getLogger("sleepconv").removeHandler(handler)
    assert [level for level, text in heard if "epoch 1/1" in text] == ["INFO"]
    assert [level for level, text in heard if "there is no recipe 'nothing'" in text] == ["ERROR"]
    assert "epoch 1/1" not in capsys.readouterr().err


def test_a_warning_is_a_line_like_other_messages(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sleepconv.cli.results._list", lambda options: warnings.warn("look here", stacklevel=1))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["list"]) == 0
    assert capsys.readouterr().err == "sleepconv: look here\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sleepconv tr", {"train"}),
        ("sleepconv train cifar10_sleep_every_10", {"cifar10_sleep_every_10", "cifar10_sleep_every_100"}),
        ("sleepconv sweep --dry", {"--dry-run"}),
        ("sleepconv sweep table1 --on r", {"ray"}),
        ("sleepconv data ch", {"check"}),
        ("sleepconv data check fash", {"fashion-mnist"}),
        ("sleepconv table mini", {"miniature", "miniature-padding0", "miniature-vit", "miniature-mixer"}),
    ],
)
def test_bash_completes_verbs_options_and_names(typed, offered, tmp_path):
    if not (bash := shutil.which("bash")):
        pytest.skip("needs bash")
    (tmp_path / "completion").write_text(completion.script(_parser()))
    words = " ".join(f"'{word}'" for word in typed.split())
    code = (
        f"source {tmp_path}/completion; COMP_WORDS=({words}); COMP_CWORD={len(typed.split()) - 1}; "
        '_sleepconv; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "--norc", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered


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


def test_missing_data_say_how_to_get_them_and_leave_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main(["train", "cifar10_local", "--runs", str(tmp_path / "runs"), "--data-dir", str(tmp_path)]) == 1
    assert "sleepconv data get cifar10" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs").mkdir()
    assert main(["train", "cifar10_local", "--runs", str(tmp_path / "runs"), "--data-dir", str(tmp_path)]) == 1
    assert list((tmp_path / "runs").iterdir()) == []


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
