"""Flights: synthetic ones depend on images and angles, windows come lazily, bad files are named with reasons."""

import math
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kgops.errors import BadInput, Unavailable
from kgops.maths.regress.batches import Windows, ahead
from kgops.maths.regress.flights import DATASETS, read_flights
from kgops.maths.regress.made_flights import Sky, main, make_flights
from kgops.maths.regress.stages import hold_out, leave_one_out

SKY = Sky(frames=20, size=16)


def arrays(frames: int = 6, size: tuple[int, int] = (8, 9), dtype: str = "float32") -> dict[str, Any]:
    random = np.random.default_rng(3)
    images = (100 * random.uniform(size=(frames, *size))).astype(dtype)
    columns = random.uniform(1, 2, (3, frames))
    return dict(zip(DATASETS, (images, *columns, np.arange(frames) * 2.0), strict=True))


def write(folder: Path, name: str, **change: Any) -> Path:
    """A flight of six frames with some datasets replaced, or left out where None."""
    body = {key: value for key, value in {**arrays(), **change}.items() if value is not None}
    np.savez(folder / f"{name}.npz", **body)
    return folder / f"{name}.npz"


# --- synthetic flights ----------------------------------------------------------------------------


def test_the_same_seed_makes_the_same_flights_and_each_flight_is_another(tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_flights(tmp_path / folder, 2, SKY, seed)
    a, b, c = (read_flights(tmp_path / folder, 4) for folder in "abc")
    assert np.array_equal(a[0].frames, b[0].frames) and np.array_equal(a[1].heights, b[1].heights)
    assert not np.array_equal(a[0].frames, c[0].frames)
    assert not np.array_equal(a[0].frames, a[1].frames)


def best_shift(frame: np.ndarray[Any, Any], reach: int) -> float:
    """How far, in pixels, the darkest copy of the clouds lies from them: the shadows' distance."""
    clouds = np.clip(frame - 170.0, 0, None)
    shadows = np.clip(80.0 - frame, 0, None)
    by_shift = np.fft.ifft2(np.conj(np.fft.fft2(clouds)) * np.fft.fft2(shadows)).real
    row, column = np.unravel_index(by_shift.argmax(), by_shift.shape)
    return math.hypot((row + reach) % (2 * reach) - reach, (column + reach) % (2 * reach) - reach)


def test_a_height_follows_from_the_shadows_distance_and_the_suns_zenith_and_from_neither_alone(
    tmp_path: Path,
) -> None:
    make_flights(tmp_path, 6, Sky(frames=60), seed=5)
    flights = read_flights(tmp_path, 1)
    height = np.concatenate([f.heights for f in flights])
    tangent = np.tan(np.radians(np.concatenate([f.zenith for f in flights])))
    shift = np.array([best_shift(np.asarray(frame, float), 16) for f in flights for frame in f.frames])
    far = height * tangent * 3 > 3  # nearer shadows hide under their clouds
    alone = np.polyfit(shift[far], height[far], 1)

    def error(of: np.ndarray[Any, Any]) -> float:
        return float(np.median(np.abs(of - height)[far]))

    assert error(shift / (3 * tangent)) < 0.25
    assert error(np.polyval(alone, shift)) > 1.5 * error(shift / (3 * tangent))
    assert error(np.full_like(height, np.median(height[far]))) > 2 * error(shift / (3 * tangent))
    assert np.corrcoef(tangent, height)[0, 1] ** 2 < 0.1


def test_the_command_that_makes_flights_writes_what_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "new"), "--flights", "3", "--frames", "7", "--size", "8"]) == 0
    flights = read_flights(tmp_path / "new", 5)
    assert capsys.readouterr().out.split() == [str(flight.path) for flight in flights]
    assert [(len(flight), flight.image_size) for flight in flights] == [(7, (8, 8))] * 3
    assert all(flight.heights.min() > 0.5 and flight.heights.max() < 3 for flight in flights)


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [1, 2, 5])
def test_a_window_is_its_frames_with_their_angles_and_the_height_in_their_middle(
    tmp_path: Path, frames: int
) -> None:
    make_flights(tmp_path, 2, SKY)
    flights = read_flights(tmp_path, frames)
    windows = Windows(flights, frames)
    each = SKY.frames - frames + 1
    assert len(windows) == 2 * each and list(windows.of(1)) == list(range(each, 2 * each))
    batch = windows.batch([each + 3, 0])
    assert batch.images.dtype == torch.uint8 and batch.images.shape == (2, frames, 16, 16)
    assert np.array_equal(batch.images[0].numpy(), flights[1].frames[3 : 3 + frames])
    assert np.array_equal(batch.angles[0, :, 0].numpy(), flights[1].zenith[3 : 3 + frames])
    assert np.array_equal(batch.angles[1, :, 1].numpy(), flights[0].azimuth[:frames])
    assert batch.heights.tolist() == [flights[1].heights[3 + frames // 2], flights[0].heights[frames // 2]]
    assert batch.flights.tolist() == [1, 0]


def test_a_compressed_file_and_one_in_column_order_hold_the_same_frames(tmp_path: Path) -> None:
    body = arrays()
    np.savez_compressed(tmp_path / "packed.npz", **body)
    np.savez(tmp_path / "turned.npz", **{**body, "frames": np.asfortranarray(body["frames"])})
    for flight in read_flights(tmp_path, 2):
        assert np.array_equal(flight.frames, body["frames"]), flight.path


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float64"])
def test_a_survey_has_the_moments_of_all_pixels_and_the_mean_frame(tmp_path: Path, dtype: str) -> None:
    body = arrays(frames=11, dtype=dtype)
    np.savez(tmp_path / "one.npz", **body)
    survey = read_flights(tmp_path, 1)[0].survey
    exact = body["frames"].astype(np.float64)
    assert survey.mean == pytest.approx(exact.mean(), rel=1e-9)
    assert survey.std == pytest.approx(exact.std(), rel=1e-9)
    np.testing.assert_allclose(survey.mean_frame, exact.mean(axis=0), rtol=1e-6)


def test_no_window_reaches_over_a_pause_of_the_camera(tmp_path: Path) -> None:
    write(tmp_path, "paused", time=np.array([0, 1, 2, 60, 61, 62.0]))
    flights = read_flights(tmp_path, 2)
    assert [int(n) for n in Windows(flights, 2)._starts] == [0, 1, 3, 4]
    with pytest.raises(BadInput, match=r"paused.npz has no 4 frames \(temporal_frames\) in a row"):
        Windows(flights, 4)


def test_what_is_loaded_ahead_comes_in_order_and_an_error_on_the_way_is_raised() -> None:
    def fail() -> int:
        raise ValueError("the third")

    def give(n: int) -> Any:
        return lambda: n

    assert list(ahead([give(n) for n in range(20)])) == list(range(20))
    before = threading.active_count()
    found = []
    with pytest.raises(ValueError, match="the third"):
        for one in ahead([give(0), give(1), fail, give(3)]):
            found.append(one)
    assert found == [0, 1]
    for _ in ahead([give(n) for n in range(100)]):
        break
    assert threading.active_count() == before


def test_the_next_window_is_read_while_the_one_before_is_worked_on() -> None:
    made: list[int] = []
    second = threading.Event()

    def make(n: int) -> Any:
        def do() -> int:
            made.append(n)
            if n == 1:
                second.set()
            return n

        return do

    stream = ahead([make(n) for n in range(10)])
    assert next(stream) == 0
    assert second.wait(5)
    stream.close()  # type: ignore[attr-defined]
    assert len(made) <= 4


# --- splits ---------------------------------------------------------------------------------------


def test_each_flight_is_held_out_once_and_never_trained_on_then(tmp_path: Path) -> None:
    make_flights(tmp_path, 3, SKY)
    flights = read_flights(tmp_path, 2)
    splits = list(leave_one_out(flights))
    assert [split.held_out.name for split in splits] == [flight.name for flight in flights]
    for split in splits:
        assert {*split.train, split.held_out} == set(flights) and split.held_out not in split.train
    assert hold_out(flights).held_out is flights[-1]
    with pytest.raises(BadInput, match="no flight 'flight_1'; did you mean 'flight_01'"):
        hold_out(flights, "flight_1")


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"solar_zenith": None}, "has no dataset 'solar_zenith'; it has frames, height, solar_azimuth, time"),
        ({"frames": np.ones((6, 8))}, r"frames has shape \(6, 8\) of float64; expected numbers"),
        ({"frames": np.array(["a"] * 6).reshape(6, 1, 1)}, "expected numbers"),
        ({"height": np.ones(5)}, r"height has shape \(5,\) of float64; expected a number for each of 6"),
        (
            {"height": np.array([1, 2, np.nan, 4, np.nan, 6])},
            "height is NaN or infinite at 2 of 6 frames, first at",
        ),
        ({"time": np.array([0, 1, 2, 2, 3, 4.0])}, "time does not rise at frame 3"),
        ({"frames": np.ones((3, 8, 9)), "height": None}, "has no dataset 'height'"),
        (
            {"frames": np.where(np.arange(6) % 2, np.nan, 1.0)[:, None, None] * np.ones((6, 8, 9))},
            r": 3 of 6 frames hold NaN or infinity, the first is frame 1\.$",
        ),
        ({"height": np.array([{}] * 6)}, "it holds Python objects"),
    ],
    ids=["missing", "flat", "text", "length", "nan-height", "time", "two", "nan-frames", "objects"],
)
def test_a_faulty_flight_is_named_with_its_file_and_its_fault(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = write(tmp_path, "bad", **change)
    write(tmp_path, "good")
    with pytest.raises(BadInput, match=said) as caught:
        read_flights(tmp_path, 4)
    assert caught.value.message.startswith(str(path))
    assert "good.npz" not in caught.value.message


def test_images_of_two_sizes_are_named_with_both_files(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", **arrays(size=(8, 10)))
    with pytest.raises(BadInput, match=r"b.npz has images of 8x10, .*a.npz of 8x9"):
        read_flights(tmp_path, 2)


def test_all_faulty_flights_are_named_at_once(tmp_path: Path) -> None:
    write(tmp_path, "a", height=None)
    write(tmp_path, "b", time=None)
    (tmp_path / "c.npz").write_bytes(b"not a zip")
    with pytest.raises(BadInput) as caught:
        read_flights(tmp_path, 2)
    lines = caught.value.message.splitlines()
    assert [Path(line.split(" ")[0].rstrip(":")).name for line in lines] == ["a.npz", "b.npz", "c.npz"]
    assert "damaged" in lines[2]


def test_no_flight_cannot_be_trained_on_and_one_alone_cannot_be_held_out(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"{tmp_path} has no flights"):
        read_flights(tmp_path, 2)
    write(tmp_path, "only")
    with pytest.raises(BadInput, match="one is held out"):
        hold_out(read_flights(tmp_path, 2))


def test_without_h5py_an_hdf5_flight_is_refused_with_the_name_of_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "flight.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(Unavailable, match="h5py is not installed") as caught:
        read_flights(tmp_path, 2)
    assert "kgops[flights]" in (caught.value.hint or "")


def test_an_hdf5_flight_reads_like_an_npz_one(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "flight.h5", "w") as file:
        for name, array in arrays().items():
            file[name] = array
    flight = read_flights(tmp_path, 2)[0]
    batch = Windows([flight], 2).batch([3])
    assert np.array_equal(batch.images[0].numpy(), arrays()["frames"][3:5])
