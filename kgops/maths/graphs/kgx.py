"""Reads a graph of KGX, nodes and edges as TSV or JSON lines, and writes triples, names and types as kgops reads them.

    python -m kgops.maths.graphs.kgx FOLDER OUT < options as JSON

A line that cannot be read is counted and left out, and so is an edge to a node that the nodes do not have.
"""

from __future__ import annotations

import gzip
import json
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kgops.errors import BadInput, KgopsError
from kgops.jobs.option_reading import nearest
from kgops.maths.graphs.vocabulary import bare

ENDINGS = (".tsv", ".tsv.gz", ".jsonl", ".jsonl.gz")
_SHOWN = 5  # lines that are shown of each trouble
_AT_ONCE = 1 << 16  # triples as Python's numbers
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """Which edges are kept; empty: all. `symmetric` predicates have one direction."""

    predicates: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    levels: frozenset[str] = frozenset()
    symmetric: frozenset[str] = frozenset()
    qualifiers: bool = False
    date: str | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Choice:
        sets = {
            name: frozenset(map(bare, told.get(name, ())))
            for name in ("predicates", "categories", "sources", "levels", "symmetric")
        }
        return cls(**sets, qualifiers=bool(told.get("qualifiers")), date=told.get("date"))


@dataclass
class Found:
    """What was read. Triples are numbers of nodes and relations, in the order of the file."""

    nodes: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    relations: dict[str, int] = field(default_factory=dict)
    triples: array[int] = field(default_factory=lambda: array("q"))
    dates: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    troubles: dict[str, list[str]] = field(default_factory=dict)
    predicates: Counter[str] = field(default_factory=Counter)

    def trouble(self, kind: str, where: str) -> None:
        self.counts[kind] += 1
        shown = self.troubles.setdefault(kind, [])
        if len(shown) < _SHOWN:
            shown.append(where)


def convert(folder: Path, out: Path, choice: Choice) -> dict[str, Any]:
    """Writes `triples.txt`, `names.tsv` and `nodes.tsv` to `out`; returns the counts."""
    found = Found()
    _read_nodes(_file(folder, "nodes"), found)
    _read_edges(_file(folder, "edges"), found, choice)
    unknown = [name for name in choice.predicates | choice.symmetric if name not in found.predicates]
    if unknown:
        raise BadInput(f"no edge has the predicate {unknown[0]!r}{nearest(unknown[0], found.predicates)}")
    kept = _distinct(found, choice)
    if not len(kept):
        why = ", ".join(f"{kind} ({count:,})" for kind, count in found.counts.items() if count)
        raise BadInput(f"no edge is left: {why or 'the file has none'}")
    _write(out, found, kept)
    used = len(np.unique(kept[:, [0, 2]]))
    counts = {
        "edges": len(kept),
        "nodes": used,
        "relations": len(np.unique(kept[:, 1])),
        "nodes without edges": len(found.nodes) - used,
        **dict(found.counts),
    }
    told = {"counts": counts, "first": found.troubles}
    (out / "kgx.json").write_text(json.dumps(told, indent=1) + "\n")
    return told


def _file(folder: Path, name: str) -> Path:
    paths = [path for end in ENDINGS if (path := folder / f"{name}{end}").is_file()]
    # ROBOKOP calls its files after the graph: `robokop_nodes.jsonl`.
    paths = paths or [path for end in ENDINGS for path in sorted(folder.glob(f"*_{name}{end}"))]
    if not paths:
        raise BadInput(
            f"{folder} has no file of {name}",
            hint=f"it is called {name}{' or '.join(('.tsv', '.jsonl'))}, or .gz",
        )
    return paths[0]


def _rows(path: Path, found: Found) -> Iterator[tuple[int, Row]]:
    """Each line as a mapping, with its number."""
    opened = gzip.open if path.suffix == ".gz" else open
    is_table = path.name.removesuffix(".gz").endswith(".tsv")
    with opened(path, "rt", encoding="utf-8", errors="replace", newline="\n") as file:
        header = file.readline().rstrip("\r\n").split("\t") if is_table else []
        width = len(header)
        for number, line in enumerate(file, 2 if is_table else 1):
            if is_table:
                values = line.rstrip("\r\n").split("\t")
                if len(values) != width:
                    found.trouble("lines of another width", f"{path.name}:{number}")
                    continue
                yield number, dict(zip(header, values, strict=True))
            elif line.strip():
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
                if not isinstance(row, dict):
                    found.trouble("lines that are no JSON object", f"{path.name}:{number}")
                    continue
                yield number, row


def _read_nodes(path: Path, found: Found) -> None:
    for number, row in _rows(path, found):
        node = row.get("id")
        if not isinstance(node, str) or not _is_plain(node):
            found.trouble("nodes without an id", f"{path.name}:{number}")
            continue
        name = _one_line(row.get("name")) or node
        known = found.nodes.get(node)
        if known is not None:
            if found.names[known] != name:
                found.trouble("ids with two names, the first is kept", f"{path.name}:{number}: {node}")
            continue
        found.nodes[node] = len(found.nodes)
        found.names.append(name)
        found.types.append("|".join(bare(one) for one in _several(row.get("category"))))


def _read_edges(path: Path, found: Found, choice: Choice) -> None:
    nodes, relations, triples = found.nodes, found.relations, found.triples
    wanted = _wanted(found, choice)
    for number, row in _rows(path, found):
        subject, predicate, other = row.get("subject"), row.get("predicate"), row.get("object")
        if not (isinstance(subject, str) and isinstance(predicate, str) and isinstance(other, str)):
            found.trouble("edges without subject, predicate or object", f"{path.name}:{number}")
            continue
        name = bare(predicate)
        found.predicates[name] += 1
        head, tail = nodes.get(subject), nodes.get(other)
        if head is None or tail is None:
            missing = subject if head is None else other
            found.trouble("edges to missing nodes", f"{path.name}:{number}: {missing}")
            continue
        if (choice.predicates and name not in choice.predicates) or not wanted(row, head, tail):
            found.counts["edges not asked for"] += 1
            continue
        if name in choice.symmetric and tail < head:
            head, tail = tail, head
        relation = _with_qualifiers(name, row) if choice.qualifiers else name
        if not _is_plain(relation):
            found.trouble("edges without subject, predicate or object", f"{path.name}:{number}")
            continue
        triples.extend((head, relations.setdefault(relation, len(relations)), tail))
        if choice.date is not None:
            found.dates.append(_one_line(row.get(choice.date)))


def _wanted(found: Found, choice: Choice) -> Callable[[Row, int, int], bool]:
    """Whether an edge has one of the sources and levels, and ends of the categories."""
    of_category = [
        not choice.categories or not choice.categories.isdisjoint(types.split("|")) for types in found.types
    ]

    def wanted(row: Row, head: int, tail: int) -> bool:
        if not (of_category[head] and of_category[tail]):
            return False
        if choice.sources and bare(str(row.get("primary_knowledge_source"))) not in choice.sources:
            return False
        return not choice.levels or str(row.get("knowledge_level")) in choice.levels

    return wanted


def _with_qualifiers(name: str, row: Row) -> str:
    """`affects|decreased|activity`, in the order of the qualifiers' names."""
    keys = sorted(key for key in row if key.endswith("_qualifier") or key == "qualified_predicate")
    values = [bare(_one_line(row[key])) for key in keys if row[key]]
    return "|".join([name, *(value for value in values if value)])


def _distinct(found: Found, choice: Choice) -> npt.NDArray[np.int64]:
    """The triples without repetitions, in their order; dates of the first of each."""
    rows = np.frombuffer(found.triples, dtype=np.int64).reshape(-1, 3)
    key = (rows[:, 0] * max(len(found.relations), 1) + rows[:, 1]) * len(found.nodes) + rows[:, 2]
    _, first = np.unique(key, return_index=True)
    first.sort()
    found.counts["edges given again"] += len(rows) - len(first)
    if choice.date is not None:
        found.dates = [found.dates[at] for at in first]
    return rows[first]


def _write(out: Path, found: Found, rows: npt.NDArray[np.int64]) -> None:
    ids, relations = list(found.nodes), list(found.relations)
    dated = found.dates or None
    with (out / "triples.txt").open("w") as file:
        for start in range(0, len(rows), _AT_ONCE):
            for at, (h, r, t) in enumerate(rows[start : start + _AT_ONCE].tolist(), start):
                date = f"\t{dated[at]}" if dated is not None else ""
                file.write(f"{ids[h]}\t{relations[r]}\t{ids[t]}{date}\n")
    with (out / "names.tsv").open("w") as names, (out / "nodes.tsv").open("w") as nodes:
        nodes.write("id\ttype\n")
        for at in np.unique(rows[:, [0, 2]]).tolist():
            names.write(f"{ids[at]}\t{found.names[at]}\n")
            nodes.write(f"{ids[at]}\t{found.types[at]}\n")


def _several(value: object) -> list[str]:
    if isinstance(value, list):
        return [_one_line(one) for one in value]
    return _one_line(value).split("|") if value else []


def _one_line(value: object) -> str:
    return " ".join(str(value).split()) if value is not None else ""


def _is_plain(text: str) -> bool:
    return bool(text.strip()) and "\t" not in text and "\n" not in text and "\r" not in text


def main() -> None:
    folder, out = map(Path, sys.argv[1:3])
    try:
        told = convert(folder, out, Choice.of(json.load(sys.stdin)))
    except KgopsError as error:
        sys.exit(json.dumps({"error": error.message, "hint": error.hint}))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
