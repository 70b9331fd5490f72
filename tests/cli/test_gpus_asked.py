"""What a run asks of the machine's GPUs, and what the devices it is spread over make of that."""

from __future__ import annotations

from typing import Any

import pytest

from kgops.jobs.cluster import WantedGpus, gpus_for_devices


@pytest.mark.parametrize(
    ("gpu", "devices", "asked"),
    [
        (None, 1, "auto"),
        ("auto", 1, "auto"),
        (None, 4, "auto:4"),
        ("auto", "all", "all"),
        (None, "0,2", "0,2"),
        ("1", 2, "1"),
        ("0,1", "all", "0,1"),
    ],
)
def test_a_run_over_several_devices_asks_for_as_many_gpus_unless_it_names_them(
    gpu: str | None, devices: Any, asked: str
) -> None:
    assert gpus_for_devices(gpu, devices) == asked


@pytest.mark.parametrize(
    ("text", "many", "includes", "leaves_out"),
    [
        (None, 1, ["0", "GPU-x"], []),
        ("auto:3", 3, ["0"], []),
        ("all", None, ["0", "7"], []),
        ("0,GPU-b", None, ["0", "GPU-b"], ["1", "GPU-a"]),
    ],
)
def test_what_is_asked_says_which_gpus_and_how_many(
    text: str | None, many: int | None, includes: list[str], leaves_out: list[str]
) -> None:
    asked = WantedGpus.read(text)
    assert asked.count == many
    assert all(asked.includes(name) for name in includes)
    assert not any(asked.includes(name) for name in leaves_out)
