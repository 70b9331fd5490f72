"""`kgops bench claims --quick` measures on a GPU every row of the documents' tables that needs one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cuda_machine import consoles


@pytest.mark.slow
def test_every_row_that_needs_a_gpu_is_measured_on_it(tmp_path: Path, kgops_home: Path) -> None:
    with consoles(tmp_path, kgops_home) as open_on:
        console = open_on("t4")
        for table in ("a", "b"):
            done = console("bench", "claims", "--quick", "--only", table, "--json")
            assert done.code == 0, done.err
        page: dict[str, Any] = done.json()
    assert page["machine"] == ["Tesla T4"]
    training, tracin, analysis = (one["rows"] for one in page["documents"][:3])
    for row in (*training, *tracin, *analysis):
        if row["why"] != "4 GPUs":
            assert row["why"] == "" and row["seconds"] > 0 and row["mib"] > 0, row
    options = {(one["letter"], line["variant"]): line for one in page["tables"] for line in one["options"]}
    for letter, measured in (("a", "same loss"), ("b", "same scores")):
        # What rounds nothing gives the same values, and fp16 rounds a little.
        assert options[letter, "+ cleanup"]["results"] == options[letter, "+ checkpointing"]["results"]
        assert options[letter, "+ cleanup"]["results"] == measured
        assert all(options[letter, name]["mib"] for name in ("+ fp16", "+ fp16 + checkpointing"))
    assert options["b", "+ fp16"]["results"].startswith("scores ±0.")
    assert options["a", "+ fp16"]["memory"]["median"] > 1.05
    assert options["a", "+ fp16 + checkpointing"]["memory"]["median"] > 1.05
