"""What the documents say of one another and of the code holds: metrics, rooms, files, the picture, the version."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import reference
from documented import commands, document_pages

from benchmarks.document import with_headlines
from kgops import __version__
from screens.actions import ACTIONS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


REFERENCE = (ROOT / "docs/COMMANDS.md").read_text()

BENCHMARKS = (ROOT / "BENCHMARKS.md").read_text()


def test_readme_shows_the_very_metrics_of_the_benchmarks() -> None:
    assert with_headlines(README, BENCHMARKS) == README, (
        "python -m benchmarks.document --write-only writes it anew"
    )


def test_what_readme_leads_to_is_there() -> None:
    for name in re.findall(r"`([A-Z]+\.md)`|\]\((docs/[^)]+)\)", README):
        assert (ROOT / (name[0] or name[1])).is_file(), name


def test_the_site_has_every_page_and_its_links_lead_somewhere() -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    listed = {name for one in config["nav"] for name in _names(one)}
    written = {f"docs/{name}" for name in listed if not name.startswith("reference/")}
    assert written == {name for name in document_pages() if name.startswith("docs/")}
    generated = reference.pages()
    assert {f"reference/{name}" for name in generated} == {name for name in listed if "reference/" in name}
    shown = generated["help.md"]
    assert all(f"## `{words.replace('kgops run ', 'kgops ')}`" in shown for words, _ in commands())
    for name in document_pages():
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text()):
            assert ((ROOT / name).parent / target).is_file(), f"{name}: {target}"


def _names(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for one in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _names(one)


def test_pictures_are_small_and_ask_nothing_of_another_machine() -> None:
    pictures = list((ROOT / "docs").glob("*.svg"))
    assert len(pictures) == 6
    for picture in pictures:
        drawn = picture.read_text()
        assert len(drawn.encode()) < 100_000
        assert set(re.findall(r"https?://[^\"' <]+", drawn)) == {"http://www.w3.org/2000/svg"}
        assert "sample&#160;data" in drawn


def test_every_room_stands_in_the_architecture_and_no_other_does() -> None:
    rooms = (ROOT / "ARCHITECTURE.md").read_text().partition("## Rooms")[2].partition("\n## ")[0]
    told = set(re.findall(r"\bkgops/([a-z]+)/", rooms))
    there = {path.parent.name for path in (ROOT / "kgops").glob("*/*") if path.suffix in (".py", ".toml")}
    assert told == there


@pytest.mark.parametrize("name", document_pages())
def test_every_file_that_a_document_names_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    for path in re.findall(r"`((?:kgops|screens|storage|tests|docs)/[\w/]+\.\w+)`", text):
        assert (ROOT / path).is_file(), path


def test_what_always_holds_names_the_tests_that_hold_it() -> None:
    part = (ROOT / "ARCHITECTURE.md").read_text().partition("## What always holds")[2].partition("\n## ")[0]
    items = re.split(r"^\d+\. ", part, flags=re.M)[1:]
    assert len(items) >= 9
    for item in items:
        named = re.findall(r"\b(test_\w+\.py)", item)
        assert named, item
        for file in named:
            assert list((ROOT / "tests").rglob(file)), file


def test_the_keys_that_readme_names_are_those_of_the_screens() -> None:
    (row,) = re.findall(r"^\| `kgops` \| (.*) \|$", REFERENCE, re.M)
    there = {action.sign for action in ACTIONS}
    named = re.findall(r"`(.)` ([a-z]+)", row)
    assert len(named) >= 7
    for sign, _ in named:
        assert sign in there, sign


def test_this_version_stands_in_the_changelog() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
