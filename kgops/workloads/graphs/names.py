"""Names of entities and relations that a job has, looked up in its data before a run is made, with the nearest ones."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kgops.errors import Usage
from kgops.jobs.option import triple_in
from kgops.workloads.graphs.counts import files_of, text_lines

_OFFERED = 3  # nearest names
_CLOSE = 0.6  # of 1: how alike a name must be to be offered
_MOST_BYTES = 32 << 20  # of all files: a second; with larger ones the worker reports a name
_KINDS = {"head": "entity", "relation": "relation", "tail": "entity"}


def folded(text: str) -> str:
    return text.strip().casefold().replace("_", " ")


def close_to(text: str, names: Iterable[str]) -> list[str]:
    """Case-folded names that are like the text."""
    return difflib.get_close_matches(folded(text), names, n=_OFFERED, cutoff=_CLOSE)


@dataclass(frozen=True, slots=True)
class _Known:
    """Names of one kind. `labels` have ids; `others` name some of these more readably."""

    labels: frozenset[str]
    others: frozenset[str]

    def has(self, text: str, *, only_labels: bool) -> bool:
        if text in self.labels or text.strip() in self.labels or text.strip().isdecimal():
            return True
        return not only_labels and folded(text) in {folded(name) for name in (*self.labels, *self.others)}

    def nearest(self, text: str) -> list[str]:
        names = (*self.others, *(label for label in self.labels if not label.isdecimal()))
        by_folded = {folded(name): name for name in names}
        return [by_folded[name] for name in close_to(text, by_folded)]


def check_names(stages: Collection[Mapping[str, Any]], cwd: Path) -> None:
    """Raises Usage for a name that the data do not have. Files that cannot be read now, or are large, are not looked
    into: the worker reports what is wrong there."""
    typed = [one for settings in stages for one in _typed(settings)]
    if not typed:
        return
    data = next((one for one in stages if one.get("dataset") or one.get("train")), {})
    tables = tuple(str(cwd / one["node_name_dict"]) for one in stages if one.get("node_name_dict"))
    maps = [cwd / one["edge_map"] for one in stages if one.get("edge_map")]
    try:
        files = {role: cwd / path for role, path in (files_of(data) or {}).items()}
        stamps = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files.values())
        if not files or sum(size for _, size, _ in stamps) > _MOST_BYTES:
            return
        known = _names_in(tuple(files.items()), stamps, tables)
    except (OSError, EOFError, ValueError):
        return
    for kind, text, only_labels in typed:
        if (kind == "relation" and maps and not only_labels) or known[kind].has(
            text, only_labels=only_labels
        ):
            continue
        near = " or ".join(map(repr, known[kind].nearest(text)))
        raise Usage(
            f"no {kind} is named {text.strip()!r:.60}{f': did you mean {near}?' if near else ''}",
            f"check the spelling; {'a label' if only_labels else 'a label, a readable name'} or an id names it",
        )


def _typed(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Kind and text of each name, and whether it has to be a label."""
    for name, kind in _KINDS.items():
        if text := settings.get(name):
            yield kind, text, False
    for name, only_labels in (("triple", False), ("test_triple", True)):
        triple = triple_in(settings.get(name) or "")
        yield from (
            (kind, text, only_labels) for kind, text in zip(_KINDS.values(), triple or (), strict=False)
        )


@lru_cache(maxsize=1)
def _names_in(
    files: tuple[tuple[str, Path], ...], stamps: tuple[Any, ...], tables: tuple[str, ...]
) -> dict[str, _Known]:
    """By kind. The stamps belong to the key: a changed file is reread."""
    entities, relations, others = set[bytes](), set[bytes](), set[bytes]()
    for role, path in files:
        for line in text_lines(path):
            row = line.split(b"\t" if b"\t" in line else None)
            if role == "entity_to_id":
                entities.update(row)
            elif role == "relation_to_id":
                relations.update(row)
            else:
                head, relation, tail = row
                entities |= {head, tail}
                relations.add(relation)
    for table in tables:
        rows = (line.split(b"\t") for line in text_lines(Path(table)))
        others.update(row[1] for row in rows if len(row) > 1)
    return {
        "entity": _Known(_texts(entities), _texts(others)),
        "relation": _Known(_texts(relations), frozenset()),
    }


def _texts(names: set[bytes]) -> frozenset[str]:
    return frozenset(name.decode() for name in names)
