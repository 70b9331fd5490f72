"""Code, help, screens and documents use the words of the field: a word that only we would understand is noticed."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# word, as it is looked for → what to say
NOT = {
    "cards?": "GPU",
    "levers?": "option",
    "ladders?|rungs?": "OOM fallback",
    "giving way|gives way|stepped down": "OOM fallback",
    "effective": "applied",
    "told": "requested, applied, or what it is",
    "budgets?": "memory estimate",
    "figures?": "metric, value",
    "pace": "step time, throughput",
    "processors?": "CPU",
    "tracings?": "TracIn run",
    "dossier": "run detail",
    "seats?": "rank",
    "made up": "sample data",
    "lately": "recent",
    "taken in|takes? in": "imported, recorded",
    "half of them": "IQR",
    "elsewhere": "on another machine, imported",
    "whoever": "the person, the process",
    "worthwhile": "worth trying",
}
# file → words that stay there, with the reason
EXCEPT: dict[str, tuple[str, ...]] = {
    # Frozen: names of released databases, exports and job files.
    "storage/old_words.py": (
        "cards?",
        "levers?",
        "ladders?|rungs?",
        "effective",
        "budgets?",
        "figures?",
        "told",
    ),
    "storage/released_schema.py": tuple(NOT),
    "storage/migrations.py": ("cards?", "levers?", "effective", "figures?", "told"),
    "kgops/jobs/job.py": ("cards?", "levers?"),
    # A verdict, which is an option's effect that was measured.
    "kgops/experiments/verdicts.py": ("effective",),
    "kgops/experiments/advice.py": ("effective",),
    "screens/benchmark_detail.py": ("effective",),
    # HTML's element.
    "kgops/views/html_page.py": ("figures?",),
    # The name that platform has for it, in fingerprints that a changed key would part from older ones.
    "kgops/supervisor/environment.py": ("processors?",),
    "kgops/views/comparison.py": ("processors?",),
    "kgops/experiments/fingerprint.py": ("processors?",),
    "kgops/experiments/import_results.py": ("processors?",),
    "benchmarks/recipes.py": ("processors?",),
}
ROOMS = ("kgops", "screens", "storage", "benchmarks")
PAGES = ("README.md", "ARCHITECTURE.md", "docs/MIGRATING.md", "docs/SECURITY.md")


def words(path: Path) -> Iterator[tuple[int, str]]:
    """Each name and each text of a file with its line; a name's parts stand apart."""
    text = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME or token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", token.string)


def misses(path: Path) -> list[str]:
    name = str(path.relative_to(ROOT))
    looked_for = [word for word in NOT if word not in EXCEPT.get(name, ())]
    return [
        f"{name}:{line}: {found[0]!r}; say {NOT[word]}"
        for line, text in words(path)
        for word in looked_for
        for found in re.finditer(rf"\b(?:{word})\b", text, re.I)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_no_file_of_a_room_uses_a_private_word(room: str) -> None:
    found = [one for path in sorted((ROOT / room).rglob("*.py")) for one in misses(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "page", [*PAGES, *(f"profiles/{one.name}" for one in (ROOT / "profiles").glob("*.toml"))]
)
def test_no_page_uses_a_private_word(page: str) -> None:
    text = re.sub(r"`[^`]*`", "", (ROOT / page).read_text())  # names of tests and files stay as they are
    found = [word for word in NOT if re.search(rf"\b(?:{word})\b", text, re.I)]
    assert not found, [f"{word}: say {NOT[word]}" for word in found]


def test_every_exception_is_needed() -> None:
    for name, allowed in EXCEPT.items():
        text = " ".join(text for _, text in words(ROOT / name))
        for word in allowed:
            assert name == "storage/released_schema.py" or re.search(rf"\b(?:{word})\b", text, re.I), (
                name,
                word,
            )
