"""What the documents say of one another and of the code holds: metrics, rooms, files, the picture, the version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.document import HEADLINES, with_headlines
from kgops import __version__

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BENCHMARKS = (ROOT / "BENCHMARKS.md").read_text()
MEASURED = README.partition("## What was measured")[2].partition("\n## ")[0]
# A number with a unit, as in "0.4907 x" and "3 to 10 %".
METRIC = re.compile(
    r"(?<![\w.,:/-])\d[\d,]*(?:\.\d+)?(?: to [\d.,]*\d)? ?"
    r"(?:µs|ms|s|h|[KMG]iB|[kMG]?B|bytes|%|×|x|minutes|seconds|hours)(?!\w)"
)
# Metrics that no benchmark writes, in their order: what a session printed (test_readme.py holds its shape), settings,
# and what docs/decisions.md measured once, by the command and on the day it names. Whoever changes one decides again.
TYPED = {
    "README.md": "356.1 MiB · 2.00 GiB · 8.738 MiB · 30 s · 10 %",
    "docs/MIGRATING.md": "1,204 MiB · 0.02%",
    "docs/SECURITY.md": "128 KiB",
    "docs/PREDICTIONS.md": "95 % · 95 %",
    "docs/TUTORIAL.md": "288 MiB · 248.5 MiB",
    "docs/SCREENS.md": "",
    "CHANGELOG.md": "72 MiB · 128 KiB · 14,100 MiB",
    "ARCHITECTURE.md": "",
    "docs/decisions.md": (
        "8 MiB · 525 to 2,912 MiB · 6 to 18 % · 32 MiB · 95 % · 11 s · 72 s · 68 s · 125 s"
        " · 0.1 % · 1 % · 80 MB · 54.9 MB · 20 minutes · 8 to 13 % · 2.4 MB"
        " · 3 to 10 % · 0.17 ms · 0.18 ms · 0.17 µs · 1.6 s · 1.7 µs · 0.2 µs · 0.3 µs · 1.8 ms · 0.06 µs"
        " · 0.8 ms · 0.04 µs · 1.0 µs · 6 µs · 590 bytes · 9 µs · 5 GB · 1 ms"
        " · 459 h · 58 h · 7.6 h · 1.4 h · 62 % · 0.24 h · 458 h · 57 h · 7.4 h · 1.2 h · 78 % · 0.18 h"
        " · 290 h · 37 h · 5.0 h · 1.1 h · 51 % · 0.24 h · 289 h · 36 h · 4.7 h · 0.8 h · 69 % · 0.18 h"
        " · 290 h · 36 h · 4.6 h · 0.6 h · 88 % · 0.06 h · 154 GB · 33 h · 512 MiB · 49 GB · 64 GB · 69 h"
        " · 170 s · 7 GB · 30 s"
    ),
}


def metrics(text: str) -> list[str]:
    return METRIC.findall(text)


def typed(name: str) -> str:
    """A document without the rows that `make bench` writes into it; of the changelog what is not released."""
    text = (ROOT / name).read_text()
    if name == "CHANGELOG.md":
        return text.partition("## Unreleased")[2].partition("\n## ")[0]
    return re.sub(r"(?s)<!-- rows of BENCHMARKS.md.*<!-- end of these rows -->", "", text)


def test_readme_shows_the_very_metrics_of_the_benchmarks() -> None:
    assert with_headlines(README, BENCHMARKS) == README, (
        "python -m benchmarks.document --write-only writes it anew"
    )


def test_every_headline_is_a_row_of_the_benchmarks() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", MEASURED, re.M)
    shown = dict(rows[1:])
    assert tuple(shown) == HEADLINES
    for name, metric in shown.items():
        assert f"| {name} | {metric} |" in BENCHMARKS


def test_a_row_not_measured_yet_is_shown_as_unknown_and_any_change_is_noticed() -> None:
    without = BENCHMARKS.replace("| supervisor: memory |", "| supervisor: something else |")
    assert "| supervisor: memory | n/a |" in with_headlines(README, without)
    for metric in metrics(MEASURED):
        changed = README.replace(metric, metric.replace(metric[0], str((int(metric[0]) + 1) % 10), 1))
        assert with_headlines(changed, BENCHMARKS) != changed, metric


@pytest.mark.parametrize("name", TYPED)
def test_a_metric_is_one_of_the_benchmarks_or_known_to_be_none(name: str) -> None:
    measured = set(metrics(BENCHMARKS))
    allowed = [one for one in TYPED[name].split(" · ") if one]
    for metric in metrics(typed(name)):
        if allowed and metric == allowed[0]:
            allowed.pop(0)
        else:
            assert metric in measured, (
                f"{name} says {metric}: no benchmark does, and TYPED has no such metric there"
            )
    assert not allowed, f"{name} says {allowed[0]} no more"


def test_a_correlation_of_scores_is_one_that_the_decisions_have_measured() -> None:
    measured = (ROOT / "docs/decisions.md").read_text()
    correlations = re.findall(r"[+-]\.\d+", (ROOT / "docs/PREDICTIONS.md").read_text())
    assert len(correlations) >= 15
    assert not [one for one in correlations if one not in measured]


def test_what_readme_leads_to_is_there() -> None:
    for name in re.findall(r"`([A-Z]+\.md)`|\]\((docs/[^)]+)\)", README):
        assert (ROOT / (name[0] or name[1])).is_file(), name


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


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "docs/SECURITY.md", "docs/MIGRATING.md", "README.md"])
def test_every_file_that_a_document_names_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    for path in re.findall(r"`((?:kgops|screens|storage|tests|docs)/[\w/]+\.\w+)`", text):
        assert (ROOT / path).is_file(), path


def test_this_version_stands_in_the_changelog() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
