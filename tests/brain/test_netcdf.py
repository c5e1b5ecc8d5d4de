import numpy as np
import pytest
from PIL import Image

from sleepconv.brain.recordings import read_dataset

xarray = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")

VALUES = np.random.default_rng(0).random((5, 3, 2))


def write(path, *, pictures: bool = True, **changes):
    coordinates = {
        "stimulus_id": ("presentation", ["b", "a", "b", "a", "a"]),
        "group": ("presentation", [7, 8, 7, 8, 8]),
        "region": ("neuroid", ["V4", "IT", "V4"]),
    }
    coordinates = {key: value for key, value in (coordinates | changes).items() if value is not None}
    assembly = xarray.DataArray(VALUES, dims=("presentation", "neuroid", "time_bin"), coords=coordinates, name="x")
    assembly.to_netcdf(path)
    path.with_suffix("").mkdir()
    for name, value in [("a", 10), ("b", 20)] if pictures else []:
        Image.new("RGB", (8, 8), (value, 0, 0)).save(path.with_suffix("") / f"{name}.png")


def test_an_assembly_becomes_one_recording_per_region_with_its_repeats(tmp_path):
    write(tmp_path / "mine.nc")
    it, v4 = read_dataset(tmp_path / "mine.nc")
    assert (it.region, v4.region) == ("IT", "V4")
    assert v4.responses.shape == (2, 2, 3)
    np.testing.assert_allclose(v4.responses[0], VALUES.mean(axis=2)[[1, 3, 4]][:, [0, 2]].T, rtol=1e-6)
    np.testing.assert_allclose(v4.mean_responses()[1], VALUES.mean(axis=2)[[0, 2]][:, [0, 2]].mean(axis=0), rtol=1e-6)
    assert np.isnan(v4.responses[1, :, 2]).all()
    assert v4.groups.tolist() == [1, 0]
    assert v4.images[:, 0, 0, 0].tolist() == [10, 20]


def test_a_missing_picture_is_named(tmp_path):
    write(tmp_path / "mine.nc", pictures=False)
    with pytest.raises(FileNotFoundError, match="no picture named a"):
        read_dataset(tmp_path / "mine.nc")


def test_missing_coordinates_are_named(tmp_path):
    write(tmp_path / "mine.nc", region=None)
    with pytest.raises(ValueError, match="needs the coordinates stimulus_id and region"):
        read_dataset(tmp_path / "mine.nc")
