"""Names of a run's entities and relations, from its training triples and its dictionary of names, to be completed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgops.jobs.files import open_regular
from kgops.present.influences import training_triples
from kgops.settings import Home
from kgops.supervisor.plan_file import read_plan
from kgops.supervisor.run_folder import RunFolder
from kgops.workloads.graphs.names import folded
from storage import runs
from storage.database import open_reader
from storage.runs import Run

_MOST_BYTES = 64 << 20  # of a dictionary of names


@dataclass(frozen=True, slots=True)
class GraphNames:
    """What people type, in order: readable names where there are some, otherwise labels."""

    entities: tuple[str, ...]
    relations: tuple[str, ...]


def read_graph_names(home: Home, run: Run) -> GraphNames:
    """Raises Unavailable where the training triples cannot be read."""
    entities, relations = set[str](), set[str]()
    for head, relation, tail in training_triples(home, run):
        entities |= {head, tail}
        relations.add(relation)
    names = node_names(home, run)
    shown = {names.get(label, label) for label in entities}
    return GraphNames(tuple(sorted(shown, key=str.casefold)), tuple(sorted(relations, key=str.casefold)))


def completions(text: str, names: Iterable[str]) -> list[str]:
    """In any case, `_` or a space: names that begin with the text, otherwise those that contain it."""
    typed = folded(text)
    within = [name for name in names if typed in folded(name)]
    return [name for name in within if folded(name).startswith(typed)] or within


def as_written(text: str, names: Iterable[str]) -> str:
    """The name that was typed in another case; the text where there is none."""
    typed = folded(text)
    return next((name for name in names if folded(name) == typed), text)


def node_names(home: Home, run: Run) -> Mapping[str, str]:
    """Label → readable name, from the run's `node_name_dict`; none where it has none, or it cannot be read now."""
    conn = open_reader(home.database)
    try:
        job = runs.spec(conn, run.id).job
    finally:
        conn.close()
    settings: dict[str, Any] = job.get(run.workload) or {}
    if not settings.get("node_name_dict"):
        return {}
    path = Path(read_plan(RunFolder(home.runs / run.folder)).cwd, str(settings["node_name_dict"]))
    try:
        with os.fdopen(open_regular(path, follow=True), encoding="utf-8-sig") as file:
            lines = file.read(_MOST_BYTES).split("\n")
    except (OSError, UnicodeDecodeError):
        return {}  # labels are shown instead, as for an entity without a name
    pairs = (line.rstrip("\r").split("\t") for line in lines)
    return {parts[0]: parts[1].strip() for parts in pairs if len(parts) > 1 and parts[1].strip()}
