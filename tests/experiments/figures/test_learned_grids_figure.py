"""The figure of learned grids, from a small simulation."""

import json

import pytest

from sleepconv.experiments.figures import learned_grids_figure
from sleepconv.experiments.figures.learned_grids_figure import LearnedGrids, draw, load_or_learn

SMALL = LearnedGrids(layers=((3, 1),), noises=(0.0,), sweeps=(3, 60), seeds=1, size=9)


def test_it_is_learned_once_and_drawn_from_the_record(tmp_path, monkeypatch):
    record = load_or_learn(tmp_path, SMALL)
    monkeypatch.delattr(LearnedGrids, "curves")  # nothing is simulated again
    assert load_or_learn(tmp_path, SMALL) == record
    paths = draw(record, tmp_path)
    assert [path.name for path in paths] == ["figure-learned-grids.png", "figure-learned-grids.svg"]
    with pytest.raises(AttributeError, match="curves"):
        load_or_learn(tmp_path, LearnedGrids(seed=1))


def test_the_record_has_the_index_of_every_case_and_the_control(tmp_path):
    record = load_or_learn(tmp_path, SMALL)
    index = {(c["sweeps"], c["noise"], c["field"] == "inf"): c["ari"] for c in record["curves"]}
    assert index[60, 0.0, False] == index[300, 0.0, False] == [1.0]
    assert abs(index[60, 0.0, True][0]) < 0.2
    assert abs(index[3, 0.0, False][0]) < 0.5
    assert json.loads((tmp_path / f"{learned_grids_figure.RECORD}.json").read_text()) == record
