"""Which entities may be answers: those of a file, those of a type, or all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from kgops.errors import BadInput
from kgops.maths.graphs.vocabulary import Vocabulary, is_comment, read_lines, shown
from kgops.maths.predict.names import NamedVocabulary, did_you_mean
from kgops.workloads.graphs.names import close_to

_TYPE_COLUMNS = ("type", "types", "category", "categories", "node_type", "class", "kind", ":label")
_ID_COLUMNS = ("id", "node", "node_id", "entity", "entity_id", "label", "curie", "id:id")
_LISTED = 5  # types that a message lists


@dataclass(frozen=True)
class NodeTypes:
    """Types of the entities that the file names; spelled as there, without the prefix `biolink:`."""

    path: Path
    of_entity: Mapping[int, tuple[str, ...]]

    def entities(self, wanted: str) -> torch.Tensor:
        """Ids of the entities of a type, in upper or lower case."""
        folded = _bare(wanted).casefold()
        ids = [one for one, types in self.of_entity.items() if folded in map(str.casefold, types)]
        if not ids:
            known = {one.casefold(): one for one in self.counts(self.of_entity)}
            near = [known[one] for one in close_to(folded, known)]
            raise BadInput(
                f"no entity has the type {shown(wanted)}{did_you_mean(near)}",
                hint=f"{self.path} has: {self.listed(self.of_entity)}.",
            )
        return torch.tensor(sorted(ids))

    def counts(self, entities: Iterable[int]) -> Counter[str]:
        return Counter(one for entity in entities for one in self.of_entity.get(entity, ()))

    def listed(self, entities: Iterable[int]) -> str:
        """`Drug (120), Disease (80)`, the most frequent types of these entities."""
        counts = self.counts(entities)
        words = [f"{name} ({count:,})" for name, count in counts.most_common(_LISTED)]
        return ", ".join([*words, *(["…"] if len(counts) > _LISTED else [])]) or "no types"


def read_node_types(path: Path, entities: Vocabulary) -> NodeTypes:
    """From a table with tabs: a header names the column of types, else it is the second. Several types of a node are
    separated by `|` or `;`. Nodes that the graph does not have are left out."""
    of_entity: dict[int, tuple[str, ...]] = {}
    column: int | None = None
    first_column = 0
    for n, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        parts = line.split("\t")
        if column is None:
            folded = [part.strip().lower() for part in parts]
            named = next((folded.index(name) for name in _TYPE_COLUMNS if name in folded), None)
            ids = next((folded.index(name) for name in _ID_COLUMNS if name in folded), None)
            if named is not None and ids is not None:
                column, first_column = named, ids
                continue
            column = 1
        if len(parts) <= max(column, first_column):
            raise BadInput(
                f"{path}, line {n}: expected an entity and its type, found {shown(line)}.",
                hint="separate the columns by tabs; a header may name the columns: id, type.",
            )
        number = entities.id_of(parts[first_column])
        if number is not None:
            types = parts[column].replace(";", "|").split("|")
            of_entity[number] = tuple(_bare(one.strip()) for one in types if one.strip())
    if not of_entity:
        raise BadInput(
            f"{path} has the type of none of the {len(entities):,} entities.",
            hint="its first column, or the column id, has the labels of the graph.",
        )
    return NodeTypes(path, of_entity)


def candidates_of_file(path: Path, entities: NamedVocabulary) -> torch.Tensor:
    """Ids of the entities of a file, one a line; further columns are ignored."""
    ids: set[int] = set()
    for n, line in enumerate(read_lines(path), 1):
        text = line.split("\t")[0]
        if not text.strip():
            continue
        try:
            ids.add(entities.find(text))
        except BadInput as error:
            if not is_comment(line):  # of one column: the name of an entity may look like one
                raise BadInput(f"{path}, line {n}: {error.message}", hint=error.hint) from error
    if not ids:
        raise BadInput(f"{path} has no entities.", hint="give one entity a line.")
    return torch.tensor(sorted(ids))


def _bare(word: str) -> str:
    return word.removeprefix("biolink:")
