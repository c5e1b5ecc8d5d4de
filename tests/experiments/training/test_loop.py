import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sleepconv.experiments.data import (
    Batches,
    CorruptImageError,
    Task,
    TensorSource,
    load_task,
    on_visual_field,
)
from sleepconv.experiments.runs import Run, RunFolder
from sleepconv.experiments.runs.folder import METRICS
from sleepconv.experiments.training import DivergedError, TrainingInterrupted, evaluate, train
from sleepconv.experiments.training.checkpoints import read_tensors
from sleepconv.experiments.training.learner import Learner
from sleepconv.experiments.training.parallel import Place
from sleepconv.testing import assert_convolutional

THOROUGH = {"learning_rate": 1e-2, "batch_size": 64, "padding": 0}


def test_all_three_kinds_of_network_learn(tmp_path: Path, small: Run):
    for connectivity, every in (("convolutional", None), ("local", None), ("local_after_first", 1)):
        run = small.changed(connectivity=connectivity, sleep_every=every, **THOROUGH)
        summary = train(run, tmp_path / connectivity, quiet=True)
        assert summary is not None
        assert summary["top1"] > 90, connectivity


def test_a_run_leaves_a_complete_record(tmp_path: Path, small: Run):
    summary = train(small, tmp_path / "run", quiet=True)
    folder = RunFolder(tmp_path / "run")
    assert folder.recipe() == small
    assert folder.summary() == summary
    assert folder.environment()["torch"] == torch.__version__
    evaluations = folder.metrics("evaluation")
    assert [report["epoch"] for report in evaluations] == [1, 2, 3]
    assert [report["step"] for report in folder.metrics("epoch")] == [3, 6, 9]
    assert evaluations[-1]["top1"] == summary["top1"]
    assert evaluations[-1]["steps_since_sleep"] == 0
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_a_record_says_with_what_each_start_was_computed(tmp_path: Path, small: Run):
    for steps in (2, 2, 3):
        train(small, tmp_path, quiet=True, max_steps=steps)
        torch.set_num_threads(2)
    begun, *resumed = RunFolder(tmp_path).environments()
    assert RunFolder(tmp_path).environment() == {**begun, "resumed": resumed}
    assert begun["threads"] == 1
    assert [(start["step"], start["threads"], start["torch"]) for start in resumed] == [(2, 2, torch.__version__)] * 2


def test_the_saved_network_scores_what_the_record_says(whole: Path):
    model = RunFolder(whole).load_model()
    batches = Batches(load_task("digits").evaluation, batch_size=512, shuffle=False)
    assert evaluate(model, batches.epoch(0)).means()["top1"] == RunFolder(whole).summary()["top1"]
    assert_convolutional(model)


def test_snr_is_the_sawtooth_of_training_and_sleep(tmp_path: Path, small: Run):
    train(small.changed(snr_every=1, learning_rate=1e-3), tmp_path, quiet=True)
    reports = RunFolder(tmp_path).metrics("snr")
    assert [report["step"] for report in reports if report["when"] == "asleep"] == [3, 6, 9]
    assert all(snr == "inf" for report in reports if report["when"] == "asleep" for snr in report["layers"].values())
    awake = {report["step"]: report["layers"]["layers.0.0"] for report in reports if report["when"] == "awake"}
    assert list(awake) == list(range(1, 10))
    assert awake[4] > awake[5] > awake[6]


def test_snr_is_measured_among_the_neurons_that_the_rule_lets_share(tmp_path: Path, small: Run):
    train(small.changed(snr_every=1, sleep_options={"period": 2}), tmp_path, quiet=True)
    asleep = [report["layers"] for report in RunFolder(tmp_path).metrics("snr") if report["when"] == "asleep"]
    assert [set(layers.values()) for layers in asleep] == [{"inf"}] * 3


def test_a_layer_whose_neurons_have_nobody_to_share_with_has_no_snr(tmp_path: Path, small: Run):
    task = load_task("digits", padding=2)
    narrow = [TensorSource(source.images, on_visual_field(field=(12, 12))) for source in (task.train, task.evaluation)]
    task = Task("narrow", task.classes, (1, 12, 12), *narrow)
    train(small.changed(sleep_every=None), tmp_path, task=task, quiet=True)
    assert list(RunFolder(tmp_path).metrics("snr")[0]["layers"]) == ["layers.0.0", "layers.1.0"]


def test_snr_is_measured_at_sleeps_where_nothing_else_is_asked_for(tmp_path: Path, small: Run):
    train(small.changed(sleep_every=2), tmp_path, quiet=True)
    steps = [report["step"] for report in RunFolder(tmp_path).metrics("snr") if report["when"] == "asleep"]
    assert steps == [2, 4, 6, 8]


def test_a_run_that_stops_anywhere_ends_with_the_same_bits(tmp_path: Path, small: Run, whole: Path, assert_same_end):
    for stops in [(1,), (3,), (4, 5, 8), (9,)]:
        folder = tmp_path / f"stopped {stops}"
        for stop in stops:
            train(small, folder, quiet=True, max_steps=stop)
        train(small, folder, quiet=True)
        assert_same_end(whole, folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "learning_rate": 0.1, "slow_momentum": 0.5, "share_moments": True},
        {"sleep_every": 1, "share_gradients": True, "start": "shared", "warm_up": 4, "rest_learning_rate": 1e-2},
        {"restart_each_epoch": True, "momentum": 0.95, "statistics": "reestimated", "slow_momentum": 0.5},
        {"grids": "learned", "sleep_rule": "hebbian", "sleep_options": {"patterns": "disinhibited", "steps": 1}},
    ],
)
def test_a_run_with_other_settings_ends_with_the_same_bits_too(tmp_path: Path, small: Run, assert_same_end, changes):
    run = small.changed(**changes)
    train(run, tmp_path / "whole", quiet=True)
    for stop in (2, 4, None):
        train(run, tmp_path / "stopped", quiet=True, max_steps=stop)
    assert_same_end(tmp_path / "whole", tmp_path / "stopped")


def test_the_rate_rises_over_the_warm_up_and_the_rest_has_its_own(tmp_path: Path, small: Run, monkeypatch):
    rates: list[list[float]] = []
    learn = Learner.learn

    def watched(self, *arguments):
        answer = learn(self, *arguments)
        rates.append([group["lr"] for group in self.optimizer.param_groups[-2:]])
        return answer

    monkeypatch.setattr(Learner, "learn", watched)
    train(small.changed(warm_up=2, rest_learning_rate=1e-2, epochs=4), tmp_path, quiet=True)
    expected = [0.5, 1, 1] + [1] * 3 + [1 / 4] * 3 + [1 / 16] * 3
    assert rates == [[pytest.approx(3e-3 * part), pytest.approx(1e-2 * part)] for part in expected]


def test_sleep_can_be_counted_from_each_epochs_first_step(tmp_path: Path, small: Run):
    train(small.changed(sleep_every=100, restart_each_epoch=True), tmp_path, quiet=True)  # an epoch has 3 steps
    asleep = [report["step"] for report in RunFolder(tmp_path).metrics("snr") if report["when"] == "asleep"]
    assert asleep == [1, 4, 7]
    assert RunFolder(tmp_path).summary()["steps_since_sleep"] == 2


def test_reestimated_statistics_are_those_of_training_images_and_the_running_ones_are_recorded_too(
    tmp_path: Path, small: Run
):
    both = [train(small.changed(statistics=s), tmp_path / s, quiet=True) for s in ("running", "reestimated")]
    evaluations = RunFolder(tmp_path / "reestimated").metrics("evaluation")
    assert {report["statistics"] for report in evaluations} == {"reestimated"}
    assert evaluations[-1]["running"]["loss"] == both[0]["loss"] != both[1]["loss"]
    assert [summary["statistics"] for summary in both] == ["running", "reestimated"]
    first, second = (RunFolder(tmp_path / s).load_model().state_dict() for s in ("running", "reestimated"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_was_reported_after_the_checkpoint_is_not_reported_twice(
    tmp_path: Path, small: Run, whole: Path, assert_same_end
):
    train(small, tmp_path / "run", quiet=True, max_steps=4)
    with open(tmp_path / "run" / METRICS, "a") as file:
        file.write(json.dumps({"kind": "epoch", "step": 6}) + "\n" + '{"kind": "half a li')
    train(small, tmp_path / "run", quiet=True)
    assert_same_end(whole, tmp_path / "run")


def test_a_finished_run_is_not_trained_again(small: Run, whole: Path):
    before = (whole / METRICS).stat().st_mtime_ns
    assert train(small, whole, quiet=True) == RunFolder(whole).summary()
    assert (whole / METRICS).stat().st_mtime_ns == before


def test_seeds_differ(tmp_path: Path, small: Run, whole: Path):
    assert train(small.changed(seed=1), tmp_path, quiet=True)["loss"] != RunFolder(whole).summary()["loss"]


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(
    tmp_path: Path, small: Run, whole: Path, assert_same_end, caplog
):
    for stop in (3, 6):
        train(small, tmp_path / "run", quiet=True, max_steps=stop)
    newest = RunFolder(tmp_path / "run").checkpoints.paths()[0]
    os.truncate(newest, newest.stat().st_size // 2)
    train(small, tmp_path / "run")
    said = caplog.text
    assert "step-00000006.safetensors is damaged" in said
    assert "resumes after step 3" in said
    assert_same_end(whole, tmp_path / "run")


def test_a_changed_recipe_is_refused_and_the_difference_shown(tmp_path: Path, small: Run):
    train(small, tmp_path, quiet=True, max_steps=2)
    with pytest.raises(ValueError, match=r"learning_rate was 0.003, is now 0.5"):
        train(small.changed(learning_rate=0.5), tmp_path, quiet=True)
    assert RunFolder(tmp_path).recipe() == small


def diverging(run: Run) -> Run:
    return run.changed(learning_rate=1e30, weight_decay=0.0, connectivity="convolutional", sleep_every=None)


def test_a_loss_that_is_no_number_stops_the_run_with_its_step(tmp_path: Path, small: Run):
    train(diverging(small), tmp_path, quiet=True, max_steps=1)
    with pytest.raises(DivergedError, match=r"step [2-9] is (nan|inf).*step-00000001.safetensors"):
        train(diverging(small), tmp_path, quiet=True)
    assert RunFolder(tmp_path).checkpoints.paths()


def test_weights_that_are_no_numbers_are_never_saved(tmp_path: Path, small: Run):
    with pytest.raises(DivergedError, match="step 1 .*contains NaN or infinity; no checkpoint had been written yet"):
        train(small.changed(learning_rate=1e39, padding=0, snr_every=100), tmp_path, quiet=True, max_steps=1)
    assert RunFolder(tmp_path).checkpoints.paths() == []


def test_an_snr_or_an_evaluation_that_is_no_number_is_a_divergence_too(tmp_path: Path, small: Run):
    with pytest.raises(DivergedError, match="SNR of layers.0.0 after step 1 is nan"):
        train(small.changed(learning_rate=1e30, snr_every=1), tmp_path / "snr", quiet=True)
    with pytest.raises(DivergedError, match="evaluation set after step 1 is nan"):
        train(diverging(small).changed(batch_size=10_000), tmp_path / "evaluation", quiet=True)


def test_the_second_process_on_a_folder_is_refused(tmp_path: Path, small: Run):
    with RunFolder(tmp_path).locked():
        code = (
            "import sys; from sleepconv.experiments import Run, train\n"
            f"train(Run.from_json(open({str(tmp_path / 'small.json')!r}).read()), {str(tmp_path)!r}, quiet=True)"
        )
        (tmp_path / "small.json").write_text(small.as_json())
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another process is training" in result.stderr
    train(small, tmp_path, quiet=True, max_steps=1)


def test_ctrl_c_finishes_the_step_and_the_run_goes_on_from_there(
    tmp_path: Path, small: Run, whole: Path, assert_same_end
):
    interrupted = []

    def press(report: dict) -> None:
        if not interrupted:
            interrupted.append(report["step"])
            os.kill(os.getpid(), 2)

    with pytest.raises(TrainingInterrupted, match=r"after step \d of 9; the same command resumes"):
        train(small, tmp_path / "run", quiet=True, listeners=[press])
    train(small, tmp_path / "run", quiet=True)
    assert_same_end(whole, tmp_path / "run")


def test_ctrl_c_that_is_ignored_does_not_stop_a_run(tmp_path: Path, small: Run):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    press = [lambda report: signal.raise_signal(signal.SIGINT)]
    assert train(small.changed(epochs=1), tmp_path, quiet=True, listeners=press) is not None
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_unwritable_folder_is_one_clear_error(tmp_path: Path, small: Run):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        train(small, tmp_path / "file" / "run", quiet=True)


def test_quiet_lines_tell_loss_accuracy_and_snr_where_there_is_no_terminal(tmp_path: Path, small: Run, caplog):
    train(small, tmp_path)
    lines = caplog.text.splitlines()
    assert sum("epoch" in line and "top-1" in line and "−log SNR" in line for line in lines) == 3


def test_float16_responses_train_as_well_with_a_scaled_loss(tmp_path: Path, small: Run):
    run = small.changed(precision="float16", **THOROUGH)
    summary = train(run, tmp_path / "whole", quiet=True)
    assert RunFolder(tmp_path / "whole").environment()["precision"] == "float16"
    assert summary["top1"] > 90
    train(run, tmp_path / "parts", quiet=True, max_steps=5)
    assert read_tensors(RunFolder(tmp_path / "parts").checkpoints.paths()[0])[1]["scaler"]["scale"] == 2.0**16
    assert train(run, tmp_path / "parts", quiet=True)["loss"] == summary["loss"]


def test_steps_whose_scaled_gradients_overflow_are_skipped(small: Run):
    learner, (inputs, labels) = learner_and_batch(small, torch.float16)
    before = {name: value.clone() for name, value in learner.model.named_parameters()}
    learner.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    learner.learn(inputs, labels, len(labels))
    assert learner.scaler.get_scale() == 2.0**119
    assert all(torch.equal(value, before[name]) for name, value in learner.model.named_parameters())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_step_reads_numbers_from_its_device_once_for_the_report_of_its_loss(small, precision, monkeypatch):
    learner, (inputs, labels) = learner_and_batch(small.changed(sleep_every=1, snr_every=100), precision)
    learner.learn(inputs, labels, len(labels))  # the first step makes the optimizer's state
    reads = []
    tolist = Tensor.tolist
    monkeypatch.setattr(
        Tensor, "tolist", lambda t: (reads.append(t.shape) if t.is_floating_point() else 0, tolist(t))[1]
    )
    with HostReads() as host:
        learner.learn(inputs, labels, len(labels))
    assert host.reads == []
    assert reads == [(3,)]  # the loss, and how many answers were right


class HostReads(TorchDispatchMode):
    """Lists the operations for which a program has to wait for its device: those that ``.item()`` and ``if`` call."""

    WAITING = ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal")

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in self.WAITING and args[0].is_floating_point():  # the grids, which are int64, lie on the CPU
            self.reads.append(name)
        return function(*args, **(kwargs or {}))


def learner_and_batch(run: Run, precision: torch.dtype):
    task = load_task("digits", padding=0)
    batches = Batches(task.train, batch_size=64)
    learner = Learner(run, task, Place(precision=precision), steps_per_epoch=len(batches))
    return learner, next(iter(batches.epoch(0)))


def test_bfloat16_responses_train_as_well(tmp_path: Path, small: Run):
    summary = train(small.changed(precision="bfloat16", sleep_every=None, **THOROUGH), tmp_path, quiet=True)
    assert RunFolder(tmp_path).environment()["precision"] == "bfloat16"
    assert summary is not None
    assert summary["top1"] > 90


def test_corrupt_images_stop_a_run_unless_they_are_to_be_skipped(small_tiny_imagenet, data_dir, tmp_path):
    (small_tiny_imagenet / "train" / "n02" / "images" / "n02_4.JPEG").write_bytes(b"garbage")
    run = Run("mine", "tiny-imagenet", "convolutional", 1e-2, network="three_layers", epochs=1, batch_size=8)
    with pytest.raises(CorruptImageError, match=r"n02_4\.JPEG .*--on-corrupt skip"):
        train(run, tmp_path / "run", data_dir=data_dir, complete=False, quiet=True)
    with pytest.warns(UserWarning, match="1 corrupt images were left out"):
        summary = train(run, tmp_path / "run", data_dir=data_dir, complete=False, on_corrupt="skip", quiet=True)
    assert summary["steps"] == 4


@pytest.mark.parametrize(
    ("rule", "options", "says"),
    [
        ("instant", {"period": "x"}, "`period` must be an int"),
        ("instant", {"decay": 0.1}, "unexpected keyword argument 'decay'"),
        ("instant", {3: 4}, "keywords must be strings"),
        ("hebbian", {"decay": "small"}, "`decay` must be a finite number"),
        ("hebbian", {"image_shape": 3}, r"must be \(channels, \*size\)"),
        ("circuit", {"rate": None}, "`rate` must be a finite number"),
    ],
)
def test_options_that_do_not_fit_the_rule_are_refused_before_anything_is_written(tmp_path, small, rule, options, says):
    with pytest.raises(ValueError, match=f"sleep_options=.* do not fit the rule '{rule}': .*{says}"):
        train(small.changed(sleep_rule=rule, sleep_options=options), tmp_path / "run")
    assert not (tmp_path / "run").exists()
