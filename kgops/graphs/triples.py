"""A graph to train on: triples as id tensors, and what had to be said about its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from kgops.errors import BadInput
from kgops.graphs.text import read_lines, shown
from kgops.graphs.vocabulary import Vocabulary, read_vocabulary

__all__ = ["Graph", "read_graph", "read_pykeen_dataset"]

BUNDLED = ("nations", "kinships", "umls")
_HEADERS = {("head", "relation", "tail"), ("subject", "predicate", "object"), ("h", "r", "t")}


@dataclass(frozen=True)
class Graph:
    """Train, validation and test triples as int64 tensors of shape (n, 3): head, relation, tail.

    `notes` says, for a person to read, what was left out or stands out, with file and line.
    """

    train: torch.Tensor
    valid: torch.Tensor
    test: torch.Tensor
    entities: Vocabulary
    relations: Vocabulary
    notes: tuple[str, ...] = ()

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """Relations as they stand in the files, inverses not counted."""
        return len(self.relations)


@dataclass(frozen=True)
class _File:
    path: Path
    rows: list[tuple[str, str, str]]
    numbers: list[int]  # the line each row stands on
    notes: list[str]


def read_graph(
    train: Path,
    valid: Path | None = None,
    test: Path | None = None,
    *,
    entity_to_id: Path | None = None,
    relation_to_id: Path | None = None,
) -> Graph:
    """The graph in TSV files of labels or ids, `.gz` too.

    Without vocabularies everything in the files is a label, and entities that occur only in
    validation or test are kept. With a vocabulary, labels must be in it and ids in its range.
    """
    files = [_read(path) for path in (train, valid, test) if path is not None]
    notes = [note for file in files for note in file.notes]
    if entity_to_id is not None:
        entities = read_vocabulary(entity_to_id)
    else:
        entities = Vocabulary.sorted(label for f in files for h, _, t in f.rows for label in (h, t))
    if relation_to_id is not None:
        relations = read_vocabulary(relation_to_id)
    else:
        relations = Vocabulary.sorted(row[1] for f in files for row in f.rows)
    entity_ids = _meaning(files, (0, 2), entities, entity_to_id)
    relation_ids = _meaning(files, (1,), relations, relation_to_id)
    tensors = {}
    for file in files:
        ids = _to_ids(file, entity_ids, relation_ids, entity_to_id, relation_to_id)
        tensors[file.path] = _without_repeats(file, ids, notes)
    nothing = torch.empty(0, 3, dtype=torch.long)
    split = [nothing if path is None else tensors[path] for path in (train, valid, test)]
    _note_unseen(split[0], files[1:], [tensors[f.path] for f in files[1:]], entities, relations, notes)
    return Graph(split[0], split[1], split[2], entities, relations, tuple(notes))


def read_pykeen_dataset(name: str) -> Graph:
    """One of PyKEEN's datasets by name, with PyKEEN's own numbering, so that its models fit."""
    import pykeen.datasets as catalogue  # heavy: only who asks for it pays

    try:
        dataset = catalogue.get_dataset(dataset=name.lower())
    except (ValueError, KeyError) as error:
        raise BadInput(
            f"PyKEEN has no dataset '{name}'.",
            hint=f"without network: {', '.join(BUNDLED)}; `pykeen ls datasets` lists the others.",
        ) from error
    except OSError as error:
        raise BadInput(
            f"PyKEEN could not fetch dataset '{name}': {error}.",
            hint=f"without network: {', '.join(BUNDLED)}; or download it elsewhere and pass --train.",
        ) from error
    training = dataset.training
    parts = [
        training.mapped_triples,
        *(
            torch.empty(0, 3, dtype=torch.long) if part is None else part.mapped_triples
            for part in (dataset.validation, dataset.testing)
        ),
    ]
    entities, relations = (
        Vocabulary.of(sorted(mapping, key=mapping.__getitem__))
        for mapping in (training.entity_to_id, training.relation_to_id)
    )
    split = [part.detach().cpu().long().contiguous() for part in parts]
    return Graph(split[0], split[1], split[2], entities, relations)


def _read(path: Path) -> _File:
    rows: list[tuple[str, str, str]] = []
    numbers: list[int] = []
    notes: list[str] = []
    for n, line in enumerate(read_lines(path), 1):
        parts = line.split("\t")
        if len(parts) != 3:
            if not line.strip():
                continue
            raise BadInput(
                f"{path}, line {n}: expected 3 columns, found {len(parts)}: {shown(line)}.",
                hint="each line is head, relation, tail, separated by single tabs.",
            )
        head, relation, tail = parts
        if not (head and relation and tail):
            raise BadInput(
                f"{path}, line {n}: an empty column in {shown(line)}.",
                hint="each line is head, relation, tail, separated by single tabs.",
            )
        if not rows and (head.lower(), relation.lower(), tail.lower()) in _HEADERS:
            notes.append(f"{path}, line {n}: taken for a header and left out.")
            continue
        rows.append((head, relation, tail))
        numbers.append(n)
    if not rows:
        raise BadInput(
            f"{path} has no triples.", hint="each line is head, relation, tail, separated by tabs."
        )
    return _File(path, rows, numbers, notes)


def _meaning(
    files: list[_File], columns: tuple[int, ...], vocabulary: Vocabulary, source: Path | None
) -> dict[str, int]:
    """What a token stands for: its label's id, or itself if the files hold ids of `vocabulary`."""
    if source is None:
        return vocabulary.ids
    tokens = {row[c] for row in files[0].rows for c in columns}
    if tokens <= vocabulary.ids.keys() or not all(t.isascii() and t.isdigit() for t in tokens):
        return vocabulary.ids
    return {str(i): i for i in range(len(vocabulary))}


def _to_ids(
    file: _File,
    entities: dict[str, int],
    relations: dict[str, int],
    entity_source: Path | None,
    relation_source: Path | None,
) -> torch.Tensor:
    try:
        flat = [(entities[h], relations[r], entities[t]) for h, r, t in file.rows]
    except KeyError:
        pass
    else:
        return torch.tensor(flat, dtype=torch.long)
    # Only now is it worth looking for the line.
    for n, row in zip(file.numbers, file.rows, strict=True):
        kinds = ((0, "entity", entities, entity_source), (1, "relation", relations, relation_source))
        for column, kind, known, source in (*kinds, (2, "entity", entities, entity_source)):
            if row[column] not in known:
                raise _unknown(file.path, n, row[column], kind, known, source)
    raise AssertionError("a row that failed above must fail here")


def _unknown(
    path: Path, n: int, token: str, kind: str, known: dict[str, int], source: Path | None
) -> BadInput:
    numbers = token.isascii() and token.isdigit() and "0" in known and str(len(known) - 1) in known
    if numbers:
        return BadInput(
            f"{path}, line {n}: {kind} id {token} is out of range: {source} has ids 0 to {len(known) - 1}.",
            hint=f"use the --{kind}-to-id file this data was numbered with.",
        )
    return BadInput(
        f"{path}, line {n}: {kind} {shown(token)} is not in {source}.",
        hint=f"add it to {source}, or leave --{kind}-to-id away to number every label found.",
    )


def _without_repeats(file: _File, ids: torch.Tensor, notes: list[str]) -> torch.Tensor:
    spans = ids.max(dim=0).values + 1
    keys, order = ((ids[:, 0] * spans[1] + ids[:, 1]) * spans[2] + ids[:, 2]).sort(stable=True)
    # The sort is stable, so of equal triples the first in the file comes first and is kept.
    repeated = torch.zeros(len(ids), dtype=torch.bool)
    repeated[order[1:]] = keys[1:] == keys[:-1]
    repeats = int(repeated.sum())
    if not repeats:
        return ids
    again = int(repeated.nonzero()[0])
    before = int((ids == ids[again]).all(dim=1).nonzero()[0])
    notes.append(
        f"{file.path}: {repeats:,} duplicate {'triple' if repeats == 1 else 'triples'} left out; the first "
        f"is line {file.numbers[again]}, which repeats line {file.numbers[before]}."
    )
    return ids[~repeated]


def _note_unseen(
    train: torch.Tensor,
    files: list[_File],
    splits: list[torch.Tensor],
    entities: Vocabulary,
    relations: Vocabulary,
    notes: list[str],
) -> None:
    """Entities and relations that training never sees keep their random vectors: worth a word."""
    for what, columns, vocabulary in (("entities", (0, 2), entities), ("relations", (1,), relations)):
        seen = torch.zeros(len(vocabulary), dtype=torch.bool)
        for c in columns:
            seen[train[:, c]] = True
        for file, ids in zip(files, splits, strict=True):
            used = torch.zeros_like(seen)
            for c in columns:
                used[ids[:, c]] = True
            unseen = (used & ~seen).nonzero()[:, 0]
            if not len(unseen):
                continue
            label = vocabulary.labels[int(unseen[0])]
            notes.append(
                f"{file.path}: {len(unseen):,} {what} never occur in training, such as {shown(label)}; "
                "they are kept and ranked with untrained vectors."
            )
