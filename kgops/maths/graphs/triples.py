"""Knowledge graph from TSV files or PyKEEN datasets: triples as id tensors, with notes on the files."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from kgops.errors import BadInput
from kgops.jobs.bundled import BUNDLED, bundled_folder
from kgops.jobs.data_digests import TRIPLES, count_of
from kgops.maths.graphs.vocabulary import Vocabulary, is_id, read_lines, read_vocabulary, shown, written_lines

_HEADERS = {("head", "relation", "tail"), ("subject", "predicate", "object"), ("h", "r", "t")}


@dataclass(frozen=True)
class Graph:
    """Train, validation and test triples as int64 tensors of shape (n, 3): head, relation, tail.

    `notes` are messages about duplicates, headers and unseen labels, with file and line. `sources` say where each of
    train, valid and test was read.
    """

    train: torch.Tensor
    valid: torch.Tensor
    test: torch.Tensor
    entities: Vocabulary
    relations: Vocabulary
    notes: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Of the vocabularies, and of the triples of each part that is not empty, in any order."""
        parts = {name: getattr(self, name) for name in TRIPLES}
        found = {name: triples_digest(triples) for name, triples in parts.items() if len(triples)}
        vocabularies = {"entities": self.entities, "relations": self.relations}
        return found | {name: f"{len(one)}:{one.digest[:32]}" for name, one in vocabularies.items()}

    def difference(self, part: str, trained: Mapping[str, str]) -> str | None:
        """A sentence if `part` has other triples than the training whose digests are `trained`; None if unknown."""
        before, now = trained.get(part), self.digests.get(part)
        if before is None or now is None or before == now:
            return None
        return (
            f"{self.sources.get(part, 'the graph')} has other {TRIPLES[part]} than in the training: "
            f"{count_of(before)} then, {count_of(now)} now."
        )

    @property
    def num_entities(self) -> int:
        return len(self.entities)

    @property
    def num_relations(self) -> int:
        """Relations in the files, without inverses."""
        return len(self.relations)


@dataclass(frozen=True)
class _File:
    path: Path
    rows: torch.Tensor  # (n, 3): token numbers, in order of first occurrence
    lines: torch.Tensor  # line number of each row


class _Tokens(dict[str, int]):
    """Distinct tokens and their numbers, so that a triple is three numbers instead of three strings."""

    def __missing__(self, token: str) -> int:
        self[token] = number = len(self)
        return number


def read_graph(
    train: Path,
    valid: Path | None = None,
    test: Path | None = None,
    *,
    entity_to_id: Path | None = None,
    relation_to_id: Path | None = None,
) -> Graph:
    """Reads a graph from TSV files of labels or ids, plain or gzipped.

    Without vocabularies all columns are labels, and entities that occur only in validation or test
    are kept. With a vocabulary, labels must be in it and ids in its range.
    """
    notes: list[str] = []
    tokens = _Tokens(), _Tokens()
    files = [_read(train, *tokens, notes)]
    in_train = [len(kind) for kind in tokens]
    files += [_read(path, *tokens, notes) for path in (valid, test) if path is not None]
    entities = _number("entity", tokens[0], in_train[0], entity_to_id)
    relations = _number("relation", tokens[1], in_train[1], relation_to_id)
    ids = {file.path: _without_repeats(file, _to_ids(file, entities, relations), notes) for file in files}
    nothing = torch.empty(0, 3, dtype=torch.long)
    paths = (train, valid, test)
    split = [nothing if path is None else ids[path] for path in paths]
    _note_trained(split, paths, entities.vocabulary, relations.vocabulary, notes)
    for file in files[1:]:
        for kind, columns in ((entities, (0, 2)), (relations, (1,))):
            _note_unseen(split[0], file.path, ids[file.path], kind, columns, notes)
    sources = {name: str(path) for name, path in zip(TRIPLES, paths, strict=True)}
    return Graph(
        split[0], split[1], split[2], entities.vocabulary, relations.vocabulary, tuple(notes), sources
    )


def read_pykeen_dataset(name: str) -> Graph:
    """Reads a PyKEEN dataset by name, in PyKEEN's numbering, so that its models fit."""
    folder = bundled_folder(name)
    if folder is not None:
        graph = read_graph(*(folder / f"{split}.txt" for split in ("train", "valid", "test")))
        split = [torch.unique(triples, dim=0) for triples in (graph.train, graph.valid, graph.test)]
        return Graph(split[0], split[1], split[2], graph.entities, graph.relations, sources=_of_dataset(name))
    import pykeen.datasets as catalogue  # slow to import

    try:
        known = catalogue.has_dataset(name)
    except (KeyError, ValueError):  # class_resolver raises for an unknown name
        known = False
    if not known:
        raise BadInput(
            f"PyKEEN has no dataset {shown(name)}.",
            hint=f"without network: {', '.join(BUNDLED)}; `pykeen ls datasets` lists the others.",
        )
    try:
        dataset = catalogue.get_dataset(dataset=name)
    except OSError as error:
        raise BadInput(
            f"PyKEEN could not fetch dataset '{name}': {error}.",
            hint=f"without network: {', '.join(BUNDLED)}; or download it on another machine and pass --train.",
        ) from error
    training = dataset.training
    splits = [
        training.mapped_triples,
        *(
            torch.empty(0, 3, dtype=torch.long) if factory is None else factory.mapped_triples
            for factory in (dataset.validation, dataset.testing)
        ),
    ]
    entities, relations = (
        Vocabulary.of(sorted(mapping, key=mapping.__getitem__))
        for mapping in (training.entity_to_id, training.relation_to_id)
    )
    split = [triples.detach().cpu().long().contiguous() for triples in splits]
    return Graph(split[0], split[1], split[2], entities, relations, sources=_of_dataset(name))


def triple_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Head, relation, tail and what follows on each line of a file that a person wrote, with the line's number."""
    for n, line in written_lines(path):
        columns = line.split("\t") if "\t" in line else re.split(r"[,\s]+", line.strip())
        if len(columns) < 3:
            raise BadInput(
                f"{path}, line {n}: expected 3 columns, found {len(columns)}: {shown(line)}.",
                hint="each line is head, relation, tail, separated by single tabs.",
            )
        yield n, columns


def _of_dataset(name: str) -> dict[str, str]:
    return dict.fromkeys(TRIPLES, f"dataset {shown(name)}")


def _read(path: Path, entities: _Tokens, relations: _Tokens, notes: list[str]) -> _File:
    rows, numbers = array("q"), array("q")
    for n, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        if len(columns) != 3 or not (columns[0] and columns[1] and columns[2]):
            if not line.strip():
                continue
            problem = (
                f"expected 3 columns, found {len(columns)}:" if len(columns) != 3 else "an empty column in"
            )
            raise BadInput(
                f"{path}, line {n}: {problem} {shown(line)}.",
                hint="each line is head, relation, tail, separated by single tabs.",
            )
        head, relation, tail = columns
        if not numbers and (head.lower(), relation.lower(), tail.lower()) in _HEADERS:
            notes.append(f"{path}, line {n}: skipped as a header.")
            continue
        rows.extend((entities[head], relations[relation], entities[tail]))
        numbers.append(n)
    if not numbers:
        raise BadInput(
            f"{path} has no triples.", hint="each line is head, relation, tail, separated by single tabs."
        )
    shape = torch.frombuffer(rows, dtype=torch.long).view(-1, 3)
    return _File(path, shape, torch.frombuffer(numbers, dtype=torch.long))


@dataclass(frozen=True)
class _Numbering:
    """A vocabulary, and the id of each token in the files; -1 for an unknown token."""

    kind: str
    vocabulary: Vocabulary
    ids: torch.Tensor
    tokens: _Tokens
    source: Path | None


def _number(kind: str, tokens: _Tokens, in_train: int, source: Path | None) -> _Numbering:
    vocabulary = Vocabulary.sorted(tokens) if source is None else read_vocabulary(source)
    ids = vocabulary.ids
    first = list(islice(tokens, in_train))
    # Labels if the training file's are all known. Otherwise ids if they are all numbers.
    if not all(t in ids for t in first) and all(t.isascii() and t.isdigit() for t in first):
        ids = {str(i): i for i in range(len(vocabulary))}
    return _Numbering(
        kind, vocabulary, torch.tensor([ids.get(token, -1) for token in tokens]), tokens, source
    )


def _to_ids(file: _File, entities: _Numbering, relations: _Numbering) -> torch.Tensor:
    columns = (entities, relations, entities)
    ids = torch.stack([n.ids[file.rows[:, c]] for c, n in enumerate(columns)], dim=1)
    if (ids >= 0).all():
        return ids
    row = int((ids < 0).any(dim=1).nonzero()[0])
    column = int((ids[row] < 0).nonzero()[0])
    raise _unknown(file.path, int(file.lines[row]), int(file.rows[row, column]), columns[column])


def _unknown(path: Path, line: int, number: int, numbering: _Numbering) -> BadInput:
    kind, source, size = numbering.kind, numbering.source, len(numbering.vocabulary)
    token = next(islice(numbering.tokens, number, None))
    if is_id(token) and int(token) >= size:
        return BadInput(
            f"{path}, line {line}: {kind} id {token} is out of range: {source} has ids 0 to {size - 1}.",
            hint=f"use the --{kind}-to-id file this data was numbered with.",
        )
    return BadInput(
        f"{path}, line {line}: {kind} {shown(token)} is not in {source}.",
        hint=f"add it to {source}, or omit --{kind}-to-id to number every label in the files.",
    )


def _keys(ids: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
    """One number for each triple, of ids below `spans`."""
    return (ids[:, 0] * spans[1] + ids[:, 1]) * spans[2] + ids[:, 2]


def contained(keys: torch.Tensor, sorted_keys: torch.Tensor) -> torch.Tensor:
    """Which of the keys are among the sorted ones."""
    if not len(sorted_keys):
        return torch.zeros_like(keys, dtype=torch.bool)
    at = torch.searchsorted(sorted_keys, keys).clamp_(max=len(sorted_keys) - 1)
    return sorted_keys[at] == keys


def _without_repeats(file: _File, ids: torch.Tensor, notes: list[str]) -> torch.Tensor:
    keys, order = _keys(ids, ids.max(dim=0).values + 1).sort(stable=True)
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
        f"is line {int(file.lines[again])}, which repeats line {int(file.lines[before])}."
    )
    return ids[~repeated]


def _note_trained(
    split: Sequence[torch.Tensor],
    paths: Sequence[Path | None],
    entities: Vocabulary,
    relations: Vocabulary,
    notes: list[str],
) -> None:
    """Notes triples of the other files that are trained on too, since a model knows them by heart."""
    spans = torch.tensor([len(one) for one in (entities, relations, entities)])
    trained = _keys(split[0], spans).sort().values
    for path, ids in zip(paths[1:], split[1:], strict=True):
        if not len(ids):
            continue
        both = contained(_keys(ids, spans), trained)
        count = int(both.sum())
        if count:
            h, r, t = ids[int(both.nonzero()[0])].tolist()
            example = " ".join((entities.labels[h], relations.labels[r], entities.labels[t]))
            notes.append(
                f"{path}: {count:,} of {len(ids):,} triples {'is' if count == 1 else 'are'} in training too, such as "
                f"{shown(example)}; kept, and metrics on {'it' if count == 1 else 'them'} show what was memorised."
            )


def _note_unseen(
    train: torch.Tensor,
    path: Path,
    ids: torch.Tensor,
    numbering: _Numbering,
    columns: tuple[int, ...],
    notes: list[str],
) -> None:
    """Notes entities and relations that never occur in training, since their vectors stay random."""
    seen = torch.zeros(len(numbering.vocabulary), dtype=torch.bool)
    used = torch.zeros_like(seen)
    for c in columns:
        seen[train[:, c]] = True
        used[ids[:, c]] = True
    unseen = (used & ~seen).nonzero()[:, 0]
    if not len(unseen):
        return
    many = {"entity": "entities", "relation": "relations"}[numbering.kind]
    what = f"1 {numbering.kind} never occurs" if len(unseen) == 1 else f"{len(unseen):,} {many} never occur"
    notes.append(
        f"{path}: {what} in training, such as {shown(numbering.vocabulary.labels[int(unseen[0])])}; "
        f"kept, and ranked with untrained vectors."
    )


# Odd numbers of 64 bits: for each of two sums, one for each column.
_FACTORS = (
    (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    (0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB),
)
_ROWS_AT_ONCE = 1 << 14  # so that they stay in the processor's cache


def triples_digest(triples: torch.Tensor) -> str:
    """`COUNT:HEX` of int64 rows (head, relation, tail). A triple that occurs twice counts twice.

    HEX is two sums modulo 2^64 of one mixed number for each triple.
    """
    rows = triples.numpy().view(np.uint64)
    sums = [0, 0]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        columns = rows[start : start + _ROWS_AT_ONCE].T
        for i, factors in enumerate(_FACTORS):
            mixed = columns[0] * np.uint64(factors[0])
            mixed += columns[1] * np.uint64(factors[1])
            mixed += columns[2] * np.uint64(factors[2])
            # The last steps of splitmix64; all arithmetic wraps.
            mixed ^= mixed >> np.uint64(30)
            mixed *= np.uint64(0xBF58476D1CE4E5B9)
            mixed ^= mixed >> np.uint64(27)
            mixed *= np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
            sums[i] += int(mixed.sum())
    return f"{len(rows)}:" + "".join(f"{one % 2**64:016x}" for one in sums)
