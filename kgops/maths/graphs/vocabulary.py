"""Vocabularies of entities and relations, their readable names, and the text files that hold them."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kgops.errors import BadInput

_LONGEST = 64 << 20  # bytes per line: a gzipped file may expand a thousandfold


def is_comment(line: str) -> bool:
    """In a file that a person wrote. With a tab it is a row, whose first name begins with the sign."""
    return line.startswith("#") and "\t" not in line


def written_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that a person wrote, with their numbers, but for empty ones and comments."""
    return ((n, line) for n, line in enumerate(read_lines(path), 1) if line.strip() and not is_comment(line))


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text file without their line ends; `.gz` is recognised by content."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.open(raw) if packed else raw as file:
                # Splits bytes at line feeds only: labels may contain characters at which text mode splits lines.
                lines = iter(lambda: file.readline(_LONGEST + 1), b"") if packed else file
                for number, line in enumerate(lines, 1):
                    if len(line) > _LONGEST:
                        raise BadInput(
                            f"{path}, line {number}: longer than {_LONGEST >> 20} MiB.",
                            hint="give a text file with one triple or label per line.",
                        )
                    yield _decoded(path, number, line)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(
            f"{path} is a damaged gzip file: {error}.",
            hint=f"copy it again and check it with `gzip -t {path.name}`.",
        ) from error
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}.", hint="check the path and its permissions."
        ) from error


def _decoded(path: Path, number: int, line: bytes) -> str:
    try:
        # A byte order mark can only stand at the very start.
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}, line {number}: byte 0x{line[error.start]:02x} is not UTF-8.",
            hint=f"convert it: `iconv -f LATIN1 -t UTF-8 {path.name}`.",
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def is_id(text: str) -> bool:
    """Whether the text is an integer from 0 that fits into 64 bits."""
    return text.isascii() and text.isdigit() and len(text) < 19


def shown(label: str, most: int = 60) -> str:
    """A label for an error message: escaped and shortened."""
    quoted = ascii(label) if not label.isprintable() else f"'{label}'"
    return quoted if len(quoted) <= most else quoted[: most - 2] + "…'"


_LARGEST = 16 << 20


def read_node_names(path: Path) -> dict[str, str]:
    """Label → name, from two tab-separated columns; further columns and repeated labels are ignored."""
    names: dict[str, str] = {}
    for n, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        parts = line.split("\t")
        if len(parts) < 2:
            raise BadInput(
                f"{path}, line {n}: expected a label and its name, found {shown(line)}.",
                hint="separate label and name by a tab.",
            )
        names.setdefault(parts[0], parts[1].strip())
    return names


def read_edge_map(path: Path) -> dict[str, str]:
    """Relation → name, from a JSON object.

    ROBOKOP's maps are reversed: the key describes the edge, as JSON with a `predicate` and its qualifiers, and
    the value is the relation's label.
    """
    try:
        body = json.loads(_whole(path))
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{path} is not JSON: {error}.", hint="give the edge_map.json of the graph."
        ) from error
    if not isinstance(body, dict) or not all(isinstance(value, str) for value in body.values()):
        raise BadInput(
            f"{path} is not a JSON object of strings.", hint="give the edge_map.json of the graph."
        )
    names: dict[str, str] = {}
    for key, value in body.items():
        described = _described(key)
        label, name = (key, value) if described is None else (value, described)
        # Half a surrogate pair is valid JSON but cannot be written to a file.
        names[label] = name.encode("utf-8", "replace").decode()
    return names


def _whole(path: Path) -> str:
    lines: list[str] = []
    size = 0
    for line in read_lines(path):
        lines.append(line)
        size += len(line) + 1
        if size > _LARGEST:
            raise BadInput(
                f"{path} is larger than {_LARGEST >> 20} MiB.", hint="give the edge_map.json of the graph."
            )
    return "\n".join(lines)


def _described(key: str) -> str | None:
    """`treats (activity increased)` for a key that is an edge's description, or None."""
    try:
        edge: Any = json.loads(key)
    except (ValueError, RecursionError):
        return None
    if not isinstance(edge, Mapping) or not isinstance(edge.get("predicate"), str):
        return None
    qualifiers = [str(value) for name, value in edge.items() if name != "predicate" and value]
    predicate = bare(edge["predicate"])
    return f"{predicate} ({' '.join(map(bare, qualifiers))})" if qualifiers else predicate


def bare(word: str) -> str:
    """Removes the prefix `biolink:`."""
    return word.removeprefix("biolink:")


_HEADER_WORDS = {"id", "label", "entity", "relation", "index", "name", "entity_id", "relation_id", "node"}


@dataclass(frozen=True)
class Vocabulary:
    """Labels in the order of their ids."""

    labels: tuple[str, ...]
    ids: dict[str, int] = field(repr=False, compare=False)

    @classmethod
    def of(cls, labels: Iterable[str]) -> Vocabulary:
        kept = tuple(labels)
        return cls(kept, {label: i for i, label in enumerate(kept)})

    @classmethod
    def sorted(cls, labels: Iterable[str]) -> Vocabulary:
        """Sorts by number if all labels are numbers, so that dense ids keep their values. Otherwise sorts by text."""
        distinct = set(labels)
        if all(label.isascii() and label.isdigit() for label in distinct):
            return cls.of(sorted(distinct, key=_by_number))
        return cls.of(sorted(distinct))

    def __len__(self) -> int:
        return len(self.labels)

    def id_of(self, text: str) -> int | None:
        """Finds the label as written, or the text without surrounding blanks."""
        exact = self.ids.get(text)
        return self.ids.get(text.strip()) if exact is None else exact

    @cached_property
    def takes_ids(self) -> bool:
        """Whether a number that is no label means an id. If any label is a number, it is a misspelt label instead."""
        return not any(map(is_id, self.labels))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over labels in id order: equal digests mean equal numbering."""
        whole = hashlib.sha256()
        for label in self.labels:
            raw = label.encode("utf-8", "surrogatepass")
            # The length goes first, or ["a\nb"] and ["a", "b"] would be one vocabulary.
            whole.update(len(raw).to_bytes(8, "little") + raw)
        return whole.hexdigest()


def _by_number(label: str) -> tuple[int, str, str]:
    """Sort key by value, without int(), which Python refuses from 4300 digits on."""
    digits = label.lstrip("0")
    return len(digits), digits, label


def read_vocabulary(path: Path) -> Vocabulary:
    """Reads two columns, label and id in either order, with or without a count line or a header."""
    numbered = [(n, line) for n, line in enumerate(read_lines(path), 1) if line.strip()]
    if not numbered:
        raise BadInput(f"{path} is empty.", hint="it needs one line per entry: label, tab, id.")
    promised = None
    if is_id(numbered[0][1].strip()) and len(numbered) > 1:
        promised = int(numbered.pop(0)[1].strip())  # int() rejects some characters that strip() removes
    rows = [(n, *_two_columns(path, n, line)) for n, line in numbered]
    if len(rows) > 1 and {rows[0][1].lower(), rows[0][2].lower()} <= _HEADER_WORDS:
        rows.pop(0)
    if promised is not None and promised != len(rows):
        raise BadInput(
            f"{path}, line 1 promises {promised:,} entries; {len(rows):,} follow.",
            hint="the file was cut or the count is stale: write it again, or remove the count line.",
        )
    return _numbered(path, _label_first(path, rows))


def _two_columns(path: Path, line_number: int, line: str) -> tuple[str, str]:
    # Labels may contain spaces, so a tab decides when there is one.
    columns = line.split("\t") if "\t" in line else line.split()
    if len(columns) != 2 or not columns[0] or not columns[1].strip():
        raise BadInput(
            f"{path}, line {line_number}: expected two columns (label and id), found {len(columns)}: "
            f"{shown(line)}.",
            hint="separate label and id by one tab.",
        )
    return columns[0], columns[1]


def _label_first(path: Path, rows: list[tuple[int, str, str]]) -> list[tuple[int, str, int]]:
    """Rows as (line, label, id). The id column is the one that numbers from 0; the second if both do."""
    columns = [[left.strip() for _, left, _ in rows], [right.strip() for _, _, right in rows]]
    numberings = [{int(text) for text in column if is_id(text)} for column in columns]
    whole = [all(map(is_id, column)) for column in columns]
    dense = [whole[c] and numberings[c] == set(range(len(rows))) for c in (0, 1)]
    if dense[1] or (whole[1] and not dense[0]):
        return [(n, left, int(right.strip())) for n, left, right in rows]
    if whole[0]:
        return [(n, right, int(left.strip())) for n, left, right in rows]
    # Neither column is all numbers: report the first bad line of the column with more numbers.
    column = [right if len(numberings[1]) >= len(numberings[0]) else left for _, left, right in rows]
    n, bad = next((row[0], text) for row, text in zip(rows, column, strict=True) if not is_id(text.strip()))
    raise BadInput(
        f"{path}, line {n}: {shown(bad)} is not an id.",
        hint="each line needs a label and a whole number, 0 or more.",
    )


def _numbered(path: Path, rows: list[tuple[int, str, int]]) -> Vocabulary:
    seen_labels: dict[str, int] = {}
    by_id: dict[int, tuple[int, str]] = {}
    for n, label, number in rows:
        if label in seen_labels:
            raise BadInput(
                f"{path}, line {n}: {shown(label)} already stands on line {seen_labels[label]}.",
                hint="give each label one id.",
            )
        if number in by_id:
            raise BadInput(
                f"{path}, line {n}: id {number} already belongs to {shown(by_id[number][1])} "
                f"(line {by_id[number][0]}).",
                hint="give each label a different id.",
            )
        if number >= len(rows):
            raise BadInput(
                f"{path}, line {n}: id {number} is out of range: {len(rows):,} entries take ids 0 to "
                f"{len(rows) - 1}.",
                hint="number the entries from 0 without gaps.",
            )
        seen_labels[label] = n
        by_id[number] = (n, label)
    return Vocabulary.of(by_id[i][1] for i in range(len(rows)))
