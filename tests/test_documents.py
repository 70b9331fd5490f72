"""What the documents say of one another and of the code holds: figures, rooms, files, the picture, the version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kgops import __version__

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ROW = re.compile(r"^\| (.+?) \| ([\d.,]+) ", re.M)
MEASURED = dict(ROW.findall((ROOT / "BENCHMARKS.md").read_text()))
HEADLINES = ROW.findall(README.partition("## What was measured")[2].partition("\n## ")[0])
# Medians of quick sets move from one to the next; beyond this a headline is of another day.
STALE = 1.5


def number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize(("name", "value"), HEADLINES, ids=[name for name, _ in HEADLINES])
def test_a_headline_is_a_figure_of_the_benchmarks(name: str, value: str) -> None:
    assert name in MEASURED, "BENCHMARKS.md has no such row: copy one that it has"
    ratio = number(MEASURED[name]) / number(value)
    assert 1 / STALE < ratio < STALE, f"BENCHMARKS.md says {MEASURED[name]}: copy it anew"


def test_there_are_headlines() -> None:
    assert len(HEADLINES) >= 4


def test_what_readme_leads_to_is_there() -> None:
    for name in re.findall(r"`([A-Z]+\.md)`|\]\((docs/[^)]+)\)", README):
        assert (ROOT / (name[0] or name[1])).is_file(), name


def test_its_picture_is_small_and_asks_nothing_of_another_machine() -> None:
    (picture,) = re.findall(r"\]\((docs/[^)]+\.svg)\)", README)
    drawn = (ROOT / picture).read_text()
    assert len(drawn.encode()) < 150_000
    assert set(re.findall(r"https?://[^\"' <]+", drawn)) == {"http://www.w3.org/2000/svg"}


def test_every_room_stands_in_the_architecture_and_no_other_does() -> None:
    rooms = (ROOT / "ARCHITECTURE.md").read_text().partition("## Rooms")[2].partition("\n## ")[0]
    told = set(re.findall(r"\bkgops/([a-z]+)/", rooms))
    there = {path.parent.name for path in (ROOT / "kgops").glob("*/*") if path.suffix in (".py", ".toml")}
    assert told == there


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "docs/SECURITY.md", "docs/MIGRATING.md", "README.md"])
def test_every_file_that_a_document_names_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    for path in re.findall(r"`((?:kgops|screens|storage|tests|docs)/[\w/]+\.\w+)`", text):
        assert (ROOT / path).is_file(), path


def test_this_version_stands_in_the_changelog() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
