"""How many bytes triples take as text in the files of a TracIn run: from a sample of the files that a job names."""

from __future__ import annotations

import functools
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from kgops.jobs.files import open_regular

Triple = tuple[str, str, str]

_SAMPLES, _SAMPLE_BYTES = 32, 8 << 10  # of a file: some ten thousand triples, in some ten milliseconds
_LARGEST = 256 << 20  # bytes of a file of names that are read for a plan


@dataclass(frozen=True, slots=True)
class TextSize:
    """Mean bytes of a triple: its three labels, and with their names the six fields of a CSV or a JSON object."""

    labels: float
    csv: float
    json: float


@dataclass(frozen=True, slots=True)
class Names:
    """What people call entities and relations; who is not named is called by its label."""

    nodes: Mapping[str, str]
    edges: Mapping[str, str]

    def of(self, triple: Triple) -> Triple:
        head, relation, tail = triple
        return self.nodes.get(head, head), self.edges.get(relation, relation), self.nodes.get(tail, tail)


NO_NAMES = Names({}, {})


def names_of(nodes: str | None, edges: str | None) -> Names:
    """Of files that cannot be read nothing: the run that reads them says what is wrong."""
    return _read_names(_identity(nodes), _identity(edges)) if nodes or edges else NO_NAMES


def size_of_file(path: Path, names: Names) -> TextSize | None:
    """Of its triples, by parts of it that lie evenly; None where it cannot be read."""
    same = _identity(str(path))
    known = _known.get(same)
    if known is None or known[0] is not names:
        try:
            _known[same] = known = names, size_of(_sampled(path), names)
        except (OSError, EOFError, zlib.error):
            return None
    return known[1]


_known: dict[
    tuple[str, int, int] | None, tuple[Names, TextSize | None]
] = {}  # a plan is made at every key press


def _identity(named: str | None) -> tuple[str, int, int] | None:
    """Of a file as it is now; None where there is none."""
    try:
        stat = Path(named).stat() if named else None
    except OSError:
        return None
    return (named, stat.st_size, stat.st_mtime_ns) if named and stat else None


@functools.lru_cache(maxsize=2)
def _read_names(nodes: tuple[str, int, int] | None, edges: tuple[str, int, int] | None) -> Names:
    found: dict[str, str] = {}
    for line in _lines_of(Path(nodes[0]) if nodes else None):
        label, _, name = line.partition("\t")
        found.setdefault(label, name.partition("\t")[0].strip())
    try:
        edge_names = json.loads("\n".join(_lines_of(Path(edges[0]) if edges else None)) or "{}")
    except ValueError:
        edge_names = {}
    pairs = edge_names.items() if isinstance(edge_names, dict) else ()
    return Names(found, dict(_edge(key, value) for key, value in pairs if isinstance(value, str)))


def size_of(triples: Iterable[Triple], names: Names) -> TextSize | None:
    sizes = [_sizes(triple, names.of(triple)) for triple in triples]
    if not sizes:
        return None
    labels, csv, as_json = (fmean(column) for column in zip(*sizes, strict=True))
    return TextSize(labels, csv, as_json)


def _sizes(triple: Triple, named: Triple) -> tuple[int, int, int]:
    both = [*triple, *named]
    keys = ("head", "relation", "tail", "head_label", "relation_label", "tail_label")
    whole = json.dumps(dict(zip(keys, both, strict=True)), ensure_ascii=False)
    return (
        sum(len(_bytes(label)) for label in triple),
        sum(_csv_size(field) for field in both) + len(both) - 1,
        len(_bytes(whole)),
    )


def _csv_size(field: str) -> int:
    quoted = any(sign in field for sign in '",\r\n')
    return len(_bytes(field)) + (2 + field.count('"') if quoted else 0)


def _sampled(path: Path) -> Iterator[Triple]:
    with os.fdopen(open_regular(path, follow=True), "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        size = os.fstat(raw.fileno()).st_size
        raw.seek(0)
        if packed or size <= _SAMPLES * _SAMPLE_BYTES:
            with gzip.open(raw) if packed else raw as file:
                parts = [file.read(_SAMPLES * _SAMPLE_BYTES)]
        else:
            parts = []
            for place in range(_SAMPLES):
                raw.seek(place * (size - _SAMPLE_BYTES) // (_SAMPLES - 1))
                parts.append(raw.read(_SAMPLE_BYTES))
    for i, part in enumerate(parts):
        lines = part.decode("utf-8", "surrogateescape").splitlines()
        # A sample begins and ends within a line.
        for line in lines if len(parts) == 1 else lines[i > 0 : -1]:
            fields = line.split("\t")
            if len(fields) >= 3:
                yield fields[0], fields[1], fields[2]


def _lines_of(path: Path | None) -> list[str]:
    if path is None:
        return []
    try:
        with os.fdopen(open_regular(path, follow=True), "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.open(raw) if packed else raw as file:
                return file.read(_LARGEST).decode("utf-8", "surrogateescape").splitlines()
    except (OSError, EOFError, zlib.error):
        return []


def _edge(key: str, value: str) -> tuple[str, str]:
    """ROBOKOP's maps stand the other way round: the key describes the edge, the value is its label."""
    if not key.startswith("{"):
        return key, value
    try:
        described = json.loads(key)
    except ValueError:
        return key, value
    words = [str(word).removeprefix("biolink:") for word in described.values() if word]
    return value, words[0] if len(words) < 2 else f"{words[0]} ({' '.join(words[1:])})"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
