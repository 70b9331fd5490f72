"""Fuzzing guided by what it reaches finds a fault where there is one, and none where a parser refuses."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest
from guided_fuzz import PARSERS, PLANTED, input_of, main, reader, seeds

needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="atheris is not installed: `pip install atheris`"
)


@needs_atheris
def test_a_planted_fault_is_found_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", PLANTED, "--seconds", "20"]) == 1
    told = capsys.readouterr().out
    kept = re.search(r"(found-crash-\w+) in (\S+)", told)
    assert told.startswith("FOUND") and kept is not None, told
    folder = Path(kept[2])
    assert b"!" in (folder / kept[1]).read_bytes()
    assert "ValueError: what was planted" in (folder / "said.txt").read_text()
    shutil.rmtree(folder.parent)


@needs_atheris
def test_a_parser_that_refuses_what_it_does_not_understand_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "filter", "--seconds", "2"]) == 0
    assert capsys.readouterr().out.startswith("ok")


@pytest.mark.parametrize("parser", PARSERS)
def test_every_parser_begins_with_what_it_understands(parser: str, tmp_path: Path) -> None:
    """Else nothing beyond its first refusal would be reached."""
    path, read = input_of(parser, tmp_path), reader(parser)
    for content in seeds(parser):
        path.write_bytes(content)
        assert read(path) is not None
    assert seeds(parser)
