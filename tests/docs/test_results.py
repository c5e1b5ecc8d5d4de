"""What the pages say of results is what the records in results/ say."""

import json
import runpy
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest
from matplotlib.testing.compare import compare_images

from sleepconv.cli import main
from sleepconv.experiments.figures import robustness_figure, schedule_figure
from sleepconv.experiments.figures.convergence_figures import FIGURES, SETUPS, draw, read_simulation
from sleepconv.experiments.figures.learned_grids_figure import LearnedGrids
from sleepconv.experiments.figures.learned_grids_figure import draw as draw_learned_grids
from sleepconv.experiments.runs import find_runs
from sleepconv.experiments.runs.folder import ENVIRONMENT, METRICS, RECIPE, SUMMARY, RunFolder
from sleepconv.simulation.robustness import AGAINST, Robustness

ROOT = Path(__file__).parents[2]
REBUILD = runpy.run_path(str(ROOT / "docs/tools/rebuild.py"))


@pytest.mark.parametrize("page", REBUILD["PAGES"])
def test_every_table_is_what_its_command_prints_from_the_records(page):
    text = (ROOT / page).read_text()
    assert REBUILD["BLOCK"].search(text)
    assert REBUILD["rebuilt"](text) == text


def test_a_number_that_no_record_has_is_replaced():
    block = "<!-- sleepconv table 1 --dataset cifar10 --runs results --format markdown -->\nforged\n<!-- end -->"
    made = REBUILD["rebuilt"](block)
    assert "forged" not in made
    assert "| conv |" in made


def test_a_number_in_a_sentence_is_the_value_of_its_expression():
    page = "ends <!-- = cifar10_local.training - cifar10_local at scale 0.1 -->9.9<!-- --> points above"
    runs = [RunFolder(path) for path in (ROOT / "results/cifar10_local").glob("scale-0.1-seed-*")]
    assert len(runs) > 1
    expected = fmean(run.metrics("epoch")[-1]["top1"] - run.summary()["top1"] for run in runs)
    assert REBUILD["rebuilt"](page) == page.replace("9.9", f"{expected:.1f}")
    assert "-->77<!--" in REBUILD["rebuilt"]("ends at <!-- = round(miniature_sleep_every_1) --><!-- -->")


def test_a_negative_whole_number_is_replaced_again():
    page = "by <!-- = round(miniature_local - miniature_convolutional) -->7<!-- --> points"
    once = REBUILD["rebuilt"](page)
    assert "-->−2<!--" in once
    assert REBUILD["rebuilt"](once) == once


def test_one_run_and_its_course_can_be_in_a_sentence():
    folder = "search/miniature_search_ws100_paper/scale-0.04-seed-0"
    first, *_, last = RunFolder(ROOT / "results" / folder).metrics("evaluation")
    found = REBUILD["run"](folder)
    assert found == last["top1"] == found.seeds[0] == found.after_epoch(8)
    assert found.running == last["running"]["top1"] != last["top1"]
    assert found.after_epoch(1) == first["top1"]


def test_scores_in_sentences_are_those_of_the_records():
    records = [
        json.loads(path.read_text())
        for path in (ROOT / "results/brain-miniature").glob("miniature_convolutional-*.json")
    ]
    trained = [record for record in records if record["kind"] == "trained"]
    scores = [
        entry["score"] for record in trained for entry in record["scores"] if entry["dataset"] == "cifar10h_counts"
    ]
    assert len(scores) > 1
    assert sorted(REBUILD["fits"]("brain-miniature", "conv", "cifar10h_counts")) == sorted(scores)
    assert sorted(REBUILD["fits"]("brain-miniature", "conv", "behaviour")) == sorted(scores)
    assert REBUILD["row_means"]("brain-miniature", "conv", "behaviour") == [pytest.approx(fmean(scores))]
    assert REBUILD["apart"]("brain-miniature", "behaviour") >= max(scores) - min(scores)


@pytest.mark.parametrize(("value", "shown"), [(0.264, ".26"), (-0.264, "−.26"), (70.04, "70.04"), (1.0, "1.00")])
def test_scores_have_two_places_and_no_zero_before_them(value, shown):
    assert REBUILD["score"](value) == shown


@pytest.mark.parametrize(
    "mark",
    [
        "<!-- =miniature_local -->75.4<!-- -->",
        "<!-- = miniature_local -->75.4<!---->",
        "<!-- = miniature_local -->75.4",
        "<!-- = miniature_local -->a sentence<!-- -->",
        "<!-- = miniature_local at scale full -->75.4<!-- -->",
        "<!-- = miniature_lokal -->75.4<!-- -->",
        "<!-- = cifar10_local -->75.4<!-- -->",
        "<!-- = miniature_local.after(1, first=1, last=200) -->75.4<!-- -->",
        "<!-- = miniature_local.after_epoch(201) -->75.4<!-- -->",
        "<!-- = 75.4 -->75.4<!-- -->",
        "<!-- = max(75.4, 1) -->75.4<!-- -->",
        "<!-- = (75.4).real -->75.4<!-- -->",
        "<!-- = miniature_local > 75 -->75.4<!-- -->",
        "<!-- = miniature_local.seeds -->75.4<!-- -->",
        "<!-- = miniature_local at scale 1.0.0 -->75.4<!-- -->",
        "\n- <!-- = miniature_local -->75.4<!-- -->",
        "\n1. <!-- = miniature_local -->75.4<!-- -->",
        '<!-- = fits("brain-miniature", "ws(1)", "V4")[0] -->.26<!-- -->',
        '<!-- = run("miniature_local/scale-1-seed-0") at scale 1 -->75.4<!-- -->',
        '<!-- = run("miniature_lokal/scale-1-seed-0") -->75.4<!-- -->',
        '<!-- = fits("brain-miniature", "ws(2)", "V4")[0] -->.26<!-- -->',
        '<!-- = fits("brain-miniature", "ws(1)", "V5")[0] -->.26<!-- -->',
        '<!-- = fits("brain-miniature", "ws(1)", "V4", "r")[0] -->.26<!-- -->',
        '<!-- = apart("brain-relu", "V4") -->.26<!-- -->',
    ],
)
def test_a_number_that_could_not_be_made_again_is_an_error(mark):
    with pytest.raises(ValueError, match=r"must be written|must not be the first|cannot be computed"):
        REBUILD["rebuilt"](f"ends at {mark} %")


def test_in_the_miniature_every_run_is_in_the_order_that_the_page_states():
    accuracy, run = REBUILD["accuracy"], REBUILD["run"]
    conv, local = accuracy("miniature_convolutional"), accuracy("miniature_local")
    sleeping = [accuracy(f"miniature_sleep_every_{n}") for n in (1, 10, 100)]
    assert min(conv.seeds.values()) > max(sleeping[0].seeds.values())
    for every in sleeping:
        assert min(every.seeds.values()) > max(local.seeds.values())
    repeated = accuracy("miniature_4_repetitions")
    assert min(repeated.seeds.values()) > max(local.seeds.values())
    assert min(sleeping[0].seeds.values()) < repeated < max(sleeping[0].seeds.values())
    for every, name in zip(sleeping, ("two_periods_sleep_every_1", "slow_momentum_sleep_every_10"), strict=False):
        assert min(accuracy(f"miniature_{name}").seeds.values()) > max(every.seeds.values())
    two_periods = (run(f"miniature_two_periods_sleep_every_1/scale-1-seed-{seed}").running for seed in range(3))
    assert min(two_periods) > max(conv.seeds.values())


def test_learned_sleep_ends_where_the_page_states():
    accuracy = REBUILD["accuracy"]
    hebbian, circuit = accuracy("miniature_disinhibited_sleep_every_100"), accuracy("miniature_circuit_sleep_every_100")
    twin, local = accuracy("miniature_sleep_every_100"), accuracy("miniature_local")
    assert min(twin.seeds.values()) < hebbian < max(twin.seeds.values())
    assert min(hebbian, circuit) > max(local.seeds.values())


def test_brain_fits_of_the_miniature_are_in_the_order_that_the_page_states():
    fit = partial(REBUILD["row_means"], "brain-miniature")
    for column in ("V4", "behaviour"):
        (conv,), (local,) = fit("conv", column), fit("LC", column)
        assert all(local < sleeping < conv for sleeping in fit("ws*", column))
    (conv,), (local,) = fit("conv", "IT"), fit("LC", "IT")
    every_1, every_10, every_100 = (fit(f"ws({n})", "IT")[0] for n in (1, 10, 100))
    assert min(every_1, every_10) > max(every_100, local)
    assert min(every_100, local) > conv


def test_a_command_that_fails_is_an_error_and_not_an_empty_table():
    with pytest.raises(RuntimeError, match="exit code 1"):
        REBUILD["rebuilt"]("<!-- sleepconv table 99 -->\n<!-- end -->")


def test_figure_6_is_drawn_from_the_records(tmp_path):
    assert main(["figure", "6", "--runs", str(ROOT / "results"), "--out", str(tmp_path)]) == 0
    shown = ROOT / "docs/pictures/figure-6.png"
    assert compare_images(str(shown), str(tmp_path / "figure-6.png"), tol=5) is None


@pytest.mark.parametrize("name", ["4a", "4b"])
def test_figure_4_is_drawn_from_the_record_of_its_simulation(name, tmp_path):
    simulation = FIGURES[name].record
    record = read_simulation(ROOT / f"results/convergence/{simulation}.json")
    assert record["setup"] == json.loads(json.dumps(asdict(SETUPS[simulation])))
    draw(name, record, tmp_path)
    shown = ROOT / f"docs/pictures/figure-{name}.png"
    assert compare_images(str(shown), str(tmp_path / shown.name), tol=5) is None


def test_the_figure_of_learned_grids_is_drawn_from_the_record_of_its_simulation(tmp_path):
    record = read_simulation(ROOT / "results/convergence/learned-grids.json")
    assert record["setup"] == json.loads(json.dumps(asdict(LearnedGrids())))
    draw_learned_grids(record, tmp_path)
    shown = ROOT / "docs/pictures/figure-learned-grids.png"
    assert compare_images(str(shown), str(tmp_path / shown.name), tol=5) is None


def test_the_figure_of_the_schedule_is_drawn_from_the_record_of_its_simulation(tmp_path):
    record = read_simulation(ROOT / "results/convergence/schedule.json")
    assert record["setup"] == json.loads(json.dumps(asdict(schedule_figure.Schedule())))
    schedule_figure.draw(record, tmp_path)
    shown = ROOT / "docs/pictures/figure-schedule.png"
    assert compare_images(str(shown), str(tmp_path / shown.name), tol=5) is None


def test_the_picture_of_activity_is_what_its_command_draws(tmp_path):
    assert main(["figure", "activity", "--out", str(tmp_path)]) == 0
    shown = ROOT / "docs/pictures/figure-activity.png"
    assert compare_images(str(shown), str(tmp_path / shown.name), tol=5) is None


@pytest.mark.parametrize("against", AGAINST)
def test_robustness_is_drawn_from_the_record_of_its_simulation(against, tmp_path):
    record = read_simulation(ROOT / f"results/convergence/robustness-{against}.json")
    assert record["setup"] == json.loads(json.dumps(asdict(Robustness(against))))
    robustness_figure.draw(record, tmp_path)
    shown = ROOT / f"docs/pictures/figure-robustness-{against}.png"
    assert compare_images(str(shown), str(tmp_path / shown.name), tol=5) is None


@pytest.mark.parametrize(("dataset", "scale"), [("cifar10", "0.1"), ("cifar10-16x16", "1")])
def test_the_learning_curves_are_drawn_from_the_records(dataset, scale, tmp_path):
    options = ["--runs", str(ROOT / "results"), "--dataset", dataset, "--scale", scale, "--out", str(tmp_path)]
    assert main(["figure", "learning", *options]) == 0
    shown = ROOT / f"docs/pictures/learning-{dataset}-scale-{scale}.png"
    assert compare_images(str(shown), str(tmp_path / shown.name), tol=5) is None


def test_the_angles_of_feedback_weights_are_drawn_from_the_records(tmp_path):
    options = ["--runs", str(ROOT / "results"), "--scale", "0.03", "--out", str(tmp_path)]
    assert main(["figure", "alignment", *options]) == 0
    shown = ROOT / "docs/pictures/alignment-wake-scale-0.03.png"
    assert compare_images(str(shown), str(tmp_path / shown.name), tol=5) is None


def test_the_layers_fit_to_the_brain_are_drawn_from_the_records(tmp_path):
    assert main(["brain", "table", str(ROOT / "results/brain"), "--out", str(tmp_path)]) == 0
    shown = ROOT / "docs/pictures/brain-layers.png"
    assert compare_images(str(shown), str(tmp_path / "layers.png"), tol=5) is None


def test_records_are_finished_runs_with_nothing_but_what_tables_need():
    runs = find_runs(ROOT / "results")
    assert runs
    for run in runs:
        assert run.summary() is not None, run.path
        assert {file.name for file in run.path.iterdir()} == {RECIPE, METRICS, ENVIRONMENT, SUMMARY}, run.path
        assert run.path.parent.name == run.recipe().name
