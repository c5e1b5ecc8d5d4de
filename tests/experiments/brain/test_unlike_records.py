"""Scores on other data, with other settings or of other weights are neither averaged nor compared."""

import pytest

from sleepconv.experiments.brain import scoreboard as table
from sleepconv.experiments.brain.scoreboard import read_all_scores, write_scores

SETTINGS = {"components": 25, "folds": 10}


def record(seed: int, score: float, *, row: str = "conv", ceiling: float = 0.9, layers=("pool",), **more) -> dict:
    entry = {"dataset": "mine", "region": "V4", "method": "pls", "layer": "pool", "score": score, "score_error": 0.01}
    entry |= {"r": 0.3, "r_error": 0.02, "ceiling": ceiling, "ridge": {"r": 0.2}, "neurons": 9, "neurons_left_out": 0}
    entry["layers"] = {layer: {"r": 0.3} for layer in layers}
    made = {"data": {"mine": "1f3a"}, "settings": SETTINGS, "fingerprint": f"{row}{seed}"}
    return {"name": f"{row}-seed-{seed}", "row": row, "kind": "trained", "scores": [entry]} | made | more


def scores(*given: dict) -> list[float]:
    """The V4 scores of the table's rows."""
    return [cells["V4"].score for cells in table.cells_by_network(given).values()]


def test_seeds_that_are_scored_alike_are_averaged():
    assert scores(record(0, 0.25), record(1, 0.75)) == [0.5]


@pytest.mark.parametrize(
    "other",
    [
        {"data": {"mine": "77c0"}},
        {"data": None},
        {"settings": SETTINGS | {"folds": 5}},
        {"layers": ("relu", "pool")},
    ],
    ids=["another version of the recording", "not known", "other settings", "other layers"],
)
def test_seeds_that_are_scored_otherwise_are_rows_of_their_own(other):
    given = [record(0, 0.25), record(1, 0.75, **other)]
    assert scores(*given) == [0.25, 0.75]
    assert all(name.startswith("conv, scored as ") for _, name in table.cells_by_network(given))


def test_the_ceiling_and_the_best_are_those_of_the_data_that_most_records_share():
    stale = record(0, 0.9, row="LC", ceiling=0.5, data={"mine": "77c0"})
    given = [stale, record(0, 0.25), record(1, 0.25), record(0, 0.125, row="ws(1)")]
    assert table.ceilings(given) == {"V4": 0.9}
    rows = {row[0]: row[3] for row in table.main_sheet(given).rows}
    assert rows["LC"].startswith(".900")
    assert rows["conv"].startswith("**.250")
    assert "Scored on other data than conv-seed-0: LC-seed-0" in table.rendered(given, "markdown")
    assert table.as_data(given)["on_other_data"] == ["LC-seed-0"]


def test_two_records_of_one_network_are_an_error_unless_they_are_the_same(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    path = write_scores(old, record(0, 0.25, seconds=1.0))
    write_scores(new, record(0, 0.25, seconds=2.0))
    assert len(read_all_scores([old, path, new])) == 1
    write_scores(new, record(0, 0.75, fingerprint="other weights"))
    with pytest.raises(ValueError, match=r"old.* and .*new.* are different records of conv-seed-0, .*; leave one out"):
        read_all_scores([old, new])
