"""An end fits the room that was taken for it, in whatever script its reason is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgops.supervisor import run_folder


@pytest.mark.parametrize("letter", ["x", "é", "内", "🙂", "\0", '"', "\\"])
def test_an_end_is_kept_whatever_its_reason_is_written_in(tmp_path: Path, letter: str) -> None:
    path = tmp_path / "outcome.slot"
    run_folder.reserve(path)
    ending = run_folder.Ending("out_of_memory", letter * 5000, -(1 << 40), 1 << 40, 1234567890.123456)
    run_folder.write_ending(path, ending)
    found = run_folder.read_ending(path)
    assert found is not None and found.reason is not None
    assert found.reason == letter * len(found.reason) and len(found.reason) >= 200
    assert (found.state, found.exit_code, found.attempt) == (ending.state, ending.exit_code, ending.attempt)
    assert path.stat().st_size == run_folder.SIZE
