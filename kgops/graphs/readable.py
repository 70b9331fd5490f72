"""Readable names of entities and relations: `--node-name-dict` and `--edge-map`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgops.errors import BadInput
from kgops.graphs.text import read_lines, shown

__all__ = ["read_edge_map", "read_node_names"]

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
    """`treats (activity increased)` for a key that is an edge's description; else None."""
    try:
        edge: Any = json.loads(key)
    except (ValueError, RecursionError):
        return None
    if not isinstance(edge, Mapping) or not isinstance(edge.get("predicate"), str):
        return None
    qualifiers = [str(value) for name, value in edge.items() if name != "predicate" and value]
    predicate = _bare(edge["predicate"])
    return f"{predicate} ({' '.join(map(_bare, qualifiers))})" if qualifiers else predicate


def _bare(word: str) -> str:
    """Removes the prefix `biolink:`."""
    return word.removeprefix("biolink:")
