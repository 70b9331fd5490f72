"""`python -m benchmarks.regress` says of each architecture what its own run found."""

from __future__ import annotations

from pathlib import Path

from benchmarks.regress import LEAST_R2, MOST_S, Setting, measure


def test_each_architecture_is_told_by_its_r2_and_its_time_and_too_few_frames_miss_the_target(
    tmp_path: Path,
) -> None:
    lines = list(measure(tmp_path, ["cnn"], Setting(flights=3, frames=8, seeds=1)))
    assert [line.name for line in lines] == ["regress_r2_cnn", "regress_s_cnn"]
    r2, took = lines
    assert (r2.target, took.target) == (LEAST_R2, MOST_S)
    assert r2.value < LEAST_R2 and r2.reached is False  # from sixteen windows nobody learns
    assert 0 < took.value < MOST_S
