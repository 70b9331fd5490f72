"""`kgops bench claims --quick` measures on a GPU every row of the documents' tables that needs one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cuda_machine import consoles

# Table → its results without rounding, and its place among the documents.
TABLES = {"a": ("same loss", [0]), "b": ("same scores", [1, 2])}


@pytest.mark.long
@pytest.mark.parametrize("letter", TABLES)
def test_every_row_that_needs_a_gpu_is_measured_on_it(tmp_path: Path, kgops_home: Path, letter: str) -> None:
    with consoles(tmp_path, kgops_home) as open_on:
        done = open_on("t4")("bench", "claims", "--quick", "--only", letter, "--json")
        assert done.code == 0, done.err
        page: dict[str, Any] = done.json()
    assert page["machine"] == ["Tesla T4"]
    exact, places = TABLES[letter]
    for row in (row for place in places for row in page["documents"][place]["rows"]):
        if row["why"] != "4 GPUs":
            assert row["why"] == "" and row["seconds"] > 0 and row["mib"] > 0, row
    (table,) = (one for one in page["tables"] if one["letter"] == letter)
    options = {line["variant"]: line for line in table["options"]}
    # What rounds nothing gives the same values, and fp16 rounds a little.
    assert options["+ cleanup"]["results"] == options["+ checkpointing"]["results"] == exact
    assert all(options[name]["mib"] for name in ("+ fp16", "+ fp16 + checkpointing"))
    if letter == "b":
        assert options["+ fp16"]["results"].startswith("scores ±0.")
    else:
        assert options["+ fp16"]["memory"]["median"] > 1.05
        assert options["+ fp16 + checkpointing"]["memory"]["median"] > 1.05
