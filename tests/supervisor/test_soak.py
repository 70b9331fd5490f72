"""What the soak calls growth is growth: a slow leak is told, an allocator's whims and a warm-up are not."""

from __future__ import annotations

import random

import pytest
from soak import Report, Taken, grown

MINUTES_30 = 360  # samples


def test_memory_that_is_filled_once_and_then_wavers_has_not_grown() -> None:
    chance = random.Random(3)
    warming = [40 + n / 5 for n in range(60)]
    assert not grown("MiB", warming + [52 + chance.uniform(-1, 1) for _ in range(MINUTES_30 - 60)])


@pytest.mark.parametrize("kib_a_minute", [200, 1000])
def test_a_leak_is_told(kib_a_minute: int) -> None:
    chance = random.Random(3)
    leaking = [52 + n / 12 * kib_a_minute / 1024 + chance.uniform(-1, 1) for n in range(MINUTES_30)]
    assert grown("MiB", leaking)


def test_files_that_come_and_go_are_no_growth_and_one_that_stays_is() -> None:
    assert not grown("files", [13.0, 14.0, 13.0] * 100)
    assert grown("files", [8.0] * 200 + [9.0] * 100)
    assert not grown("threads", [5.0] * 200 + [6.0] * 100, "screens")  # one more of a pool that has an end
    assert grown("threads", [5.0 + n / 10 for n in range(300)], "screens")


def test_the_verdict_names_what_grew_and_what_went_wrong() -> None:
    report = Report(journal=[4.0] * 100, database=[1.0] * 100, logs=[1.0] * 100)
    report.samples["screens"] = [Taken(50.0, 13, 5)] * 100
    assert report.verdict() == []
    report.samples["supervisor"] = [Taken(20.0 + n / 10, 8, 1) for n in range(100)]
    report.wrong.append("the screens closed")
    assert report.verdict() == ["GREW: MiB of the supervisor", "WRONG: the screens closed"]
    assert any(line.startswith("supervisor, MiB") and line.endswith("GREW") for line in report.lines())
