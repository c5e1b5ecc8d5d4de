import numpy as np
import pytest

from sleepconv.brain.recordings import Dissimilarities, LabelCounts, Recording, read_dataset, read_folder

RANDOM = np.random.default_rng(0)
PICTURES = RANDOM.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
NINE_PICTURES = RANDOM.integers(0, 256, (9, 8, 8), dtype=np.uint8)
ON_A_LINE = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))


def test_a_recording_that_is_saved_reads_back_the_same(tmp_path):
    groups = np.array(["a", "a", "b", "b", "c", "c"])
    saved = Recording("mine", "V2", PICTURES, RANDOM.random((6, 3, 2)), groups, list("uvwxyz"), list("abc"))
    saved.save(tmp_path / "any.npz")
    (read,) = read_dataset(tmp_path / "any.npz")
    for field, value in vars(saved).items():
        np.testing.assert_array_equal(getattr(read, field), value)


def test_dissimilarities_that_are_saved_read_back_the_same(tmp_path):
    saved = Dissimilarities("mine", "IT", NINE_PICTURES, ON_A_LINE[None])
    saved.save(tmp_path / "any.npz")
    (read,) = read_dataset(tmp_path / "any.npz")
    assert (read.name, read.region) == ("mine", "IT")
    np.testing.assert_array_equal(read.rdms, saved.rdms)


def test_label_counts_that_are_saved_read_back_the_same(tmp_path):
    saved = LabelCounts("mine", RANDOM.integers(1, 9, (6, 10)))
    saved.save(tmp_path / "any.npz")
    (read,) = read_dataset(tmp_path / "any.npz")
    assert (read.name, read.region) == ("mine", "behaviour")
    np.testing.assert_array_equal(read.counts, saved.counts)


def test_the_region_is_taken_from_the_name_of_the_file_if_need_be(tmp_path):
    np.savez(tmp_path / "macaque_v4_x.npz", images=PICTURES, responses=np.zeros((6, 3)))
    (read,) = read_dataset(tmp_path / "macaque_v4_x.npz")
    assert (read.name, read.region) == ("macaque_v4_x", "V4")


def test_an_array_that_does_not_belong_to_the_format_is_ignored_with_a_warning(tmp_path):
    np.savez(tmp_path / "mine_v4.npz", images=PICTURES, responses=np.zeros((6, 3)), group=np.zeros(6))
    with pytest.warns(UserWarning, match=r"mine_v4.npz: ignored group; expected only images, .*groups"):
        (read,) = read_dataset(tmp_path / "mine_v4.npz")
    assert read.groups is None


def test_images_and_responses_of_different_count_are_an_error():
    with pytest.raises(ValueError, match="`responses` must have length 6, got 5"):
        Recording("mine", "V4", PICTURES, np.zeros((5, 3)))


def test_groups_and_names_of_another_count_are_an_error():
    with pytest.raises(ValueError, match="`groups` must have length 6, got 2"):
        Recording("mine", "V4", PICTURES, np.zeros((6, 3)), groups=np.zeros(2))
    with pytest.raises(ValueError, match="`neuron_names` must have length 3, got 2"):
        Recording("mine", "V4", PICTURES, np.zeros((6, 3)), neuron_names=["a", "b"])


def test_images_that_are_no_bytes_are_an_error():
    with pytest.raises(ValueError, match="float64"):
        Recording("mine", "V4", PICTURES / 255, np.zeros((6, 3)))


def test_infinite_responses_are_an_error():
    with pytest.raises(ValueError, match="infinity"):
        Recording("mine", "V4", PICTURES, np.full((6, 3), np.inf))


def test_matrices_that_are_no_dissimilarities_of_the_images_are_an_error():
    with pytest.raises(ValueError, match="must be subjects × 6 × 6"):
        Dissimilarities("mine", "IT", PICTURES, np.zeros((2, 5, 5)))
    with pytest.raises(ValueError, match="symmetric"):
        Dissimilarities("mine", "IT", NINE_PICTURES, RANDOM.random((2, 9, 9)))
    with pytest.raises(ValueError, match="all dissimilarities of subject 1 are equal"):
        Dissimilarities("mine", "IT", NINE_PICTURES, np.stack([ON_A_LINE, 1 - np.eye(9)]))
    with pytest.raises(ValueError, match="at least 8 images, got 6"):
        Dissimilarities("mine", "IT", PICTURES, ON_A_LINE[None, :6, :6])


def test_images_that_nobody_labelled_are_an_error():
    with pytest.raises(ValueError, match="at least two labels per image"):
        LabelCounts("mine", np.zeros((3, 10), int))
    with pytest.raises(ValueError, match="must be integers, got float64"):
        LabelCounts("mine", np.ones((3, 10)))


def test_groups_of_any_kind_become_numbers_that_can_be_saved(tmp_path):
    groups = np.array(["b", "a", "a", "c", "b", "c"], dtype=object)
    Recording("mine", "V4", PICTURES, np.zeros((6, 3)), groups).save(tmp_path / "mine.npz")
    assert read_dataset(tmp_path / "mine.npz")[0].groups.tolist() == [1, 0, 0, 2, 1, 2]


def test_a_region_is_known_in_small_letters_too(tmp_path):
    Recording("mine", "v4", PICTURES, np.zeros((6, 3))).save(tmp_path / "mine.npz")
    assert read_dataset(tmp_path / "mine.npz")[0].region == "V4"
    with pytest.raises(ValueError, match="reserved for label counts"):
        Recording("mine", "behaviour", PICTURES, np.zeros((6, 3)))


@pytest.mark.parametrize("damage", [lambda file: file[: len(file) // 2], lambda _: b"", lambda file: _flipped(file)])
def test_a_damaged_file_is_named(damage, tmp_path):
    path = tmp_path / "mine_v4.npz"
    Recording("mine", "V4", PICTURES, RANDOM.random((6, 3))).save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="mine_v4.npz cannot be read"):
        read_dataset(path)


def _flipped(file: bytes) -> bytes:
    place = file.index(b"images.npy") + 60
    return file[:place] + bytes(255 - byte for byte in file[place : place + 9]) + file[place + 9 :]


def test_files_that_hold_something_else_say_what(tmp_path):
    np.savez(tmp_path / "other.npz", weights=np.zeros(3))
    with pytest.raises(ValueError, match="has weights; expected responses, rdms or counts"):
        read_dataset(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset(tmp_path / "text.npz")
    np.savez(tmp_path / "nameless.npz", images=PICTURES, responses=np.zeros((6, 2)))
    with pytest.raises(ValueError, match="has no region"):
        read_dataset(tmp_path / "nameless.npz")
    np.savez(tmp_path / "blind_v4.npz", responses=np.zeros((6, 2)))
    with pytest.raises(ValueError, match="no images"):
        read_dataset(tmp_path / "blind_v4.npz")
    with open(tmp_path / "array.npz", "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset(tmp_path / "array.npz")


def test_pickled_objects_are_refused(tmp_path):
    np.savez(tmp_path / "mine_v4.npz", images=PICTURES, responses=np.array([object()] * 6, dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset(tmp_path / "mine_v4.npz")


def test_a_folder_without_data_says_what_to_put_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no .npz or .nc file"):
        read_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        read_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"responses": RANDOM.random((6, 3)) + 1j}, "must be real numbers, got complex128"),
        ({"responses": RANDOM.random((6, 3)).astype(str)}, "must be real numbers, got <U"),
        ({"groups": np.zeros((6, 2))}, r"`groups` must have one label per image, got shape \(6, 2\)"),
        ({"images": PICTURES[:, :0]}, r"`images` must be .*, got uint8 of shape \(6, 0, 8, 3\)"),
        ({"region": 4}, "`region` must be one string, got 4"),
        ({"region": ["V1", "V4"]}, "`region` must be one string, got"),
    ],
)
def test_what_is_no_recording_is_refused_in_words(tmp_path, change, said):
    arrays = {"images": PICTURES, "responses": RANDOM.random((6, 3)), "region": "V4"}
    np.savez(tmp_path / "mine.npz", **arrays | change)
    with pytest.raises(ValueError, match=f"mine.*{said}"):
        read_dataset(tmp_path / "mine.npz")


def test_a_region_in_an_array_of_one_is_a_region(tmp_path):
    np.savez(tmp_path / "mine.npz", images=PICTURES, responses=RANDOM.random((6, 3)), region=["v4"], name=[201025])
    (read,) = read_dataset(tmp_path / "mine.npz")
    assert (read.region, read.name) == ("V4", "201025")
