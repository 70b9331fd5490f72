"""Ranked influences and the results made of them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import torch

from kgops.maths.graphs.triples import Graph
from kgops.maths.tracin.finished_tests import FinishedTest
from kgops.maths.tracin.test_triples import TestTriple
from kgops.workloads.graphs.text_sizes import Names
from kgops.workloads.tracin.options import TRACIN_RANKED_FIRST, TRACIN_TIES_AT_ONCE, tests_ranked_at_once


class Ranking:
    """The `k` highest scores for each test triple, highest first."""

    def __init__(self, tests: int, k: int, *, like: torch.Tensor) -> None:
        self.k = k
        self.scores = like.new_empty(tests, 0)
        self.ids = torch.empty(tests, 0, dtype=torch.long, device=like.device)

    def add(self, scores: torch.Tensor, ids: torch.Tensor) -> None:
        """`scores` (tests, n) of the triples `ids`: (n,). Some tests at a time: all temporaries have a size for each
        score."""
        at_once = tests_ranked_at_once(len(ids))
        if len(scores) <= at_once:
            self._add(scores, ids)
            return
        tiles = []
        for start in range(0, len(scores), at_once):
            tile = Ranking(0, self.k, like=scores)
            rows = slice(start, start + at_once)
            tile.scores, tile.ids = self.scores[rows], self.ids[rows]
            tile._add(scores[rows], ids)
            tiles.append(tile)
        self.scores = torch.cat([tile.scores for tile in tiles])
        self.ids = torch.cat([tile.ids for tile in tiles])

    def _add(self, scores: torch.Tensor, ids: torch.Tensor) -> None:
        lacking = self.k - self.scores.shape[1]
        done = max(lacking, TRACIN_RANKED_FIRST) if lacking else 0
        if lacking:
            self._rank(scores[:, :done], ids[:done].expand(len(scores), -1))
        while done < len(ids):
            # As long as few were seen, most would enter: the bar is raised on the way.
            end = 2 * done if lacking else len(ids)
            self._rank(*self._those_that_enter(scores[:, done:end], ids[done:end]))
            done = end

    def _those_that_enter(self, scores: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and ids (tests, most of a test) of those that may displace the last; -inf fills up."""
        last, last_id = self.scores[:, -1:], self.ids[:, -1:]
        # NaN is in no order, so it enters.
        stays_out = (scores == last).logical_and_(ids >= last_id).logical_or_(scores < last)
        tests, columns = stays_out.logical_not_().nonzero(as_tuple=True)
        counts = torch.bincount(tests, minlength=len(scores))
        shape = len(scores), int(counts.max())
        place = torch.arange(len(tests), device=ids.device) - (counts.cumsum(0) - counts)[tests]
        entering = scores.new_full(shape, -torch.inf)
        entering[tests, place] = scores[tests, columns]
        their_ids = ids.new_full(shape, torch.iinfo(ids.dtype).max)
        their_ids[tests, place] = ids[columns]
        return entering, their_ids

    def _rank(self, scores: torch.Tensor, ids: torch.Tensor) -> None:
        """Both (tests, n)."""
        if not scores.shape[1]:
            return
        scores, ids = torch.cat([self.scores, scores], dim=1), torch.cat([self.ids, ids], dim=1)
        if scores.shape[1] > self.k:
            best, at = scores.topk(self.k, dim=1)
            # `topk` picks any of those that tie with the last one; ids must decide.
            last = best[:, -1:]
            tied = ((scores == last).sum(1) != (best == last).sum(1)).nonzero()[:, 0]
            kept = ids.gather(1, at)
            # A few at a time: under KvsAll nearly all rows may tie, and sorting takes 36 bytes a score.
            for start in range(0, len(tied), TRACIN_TIES_AT_ONCE):
                some = tied[start : start + TRACIN_TIES_AT_ONCE]
                best[some], kept[some] = _sorted(scores[some], ids[some], self.k)
            scores, ids = best, kept
        self.scores, self.ids = _sorted(scores, ids, self.k)

    def only(self, ids: torch.Tensor) -> Ranking:
        """Only the triples `ids`; -inf fills up the tests that have fewer."""
        is_in = torch.isin(self.ids, ids)
        order = is_in.byte().argsort(dim=1, descending=True, stable=True)[:, : int(is_in.sum(1).max())]
        fills_up = is_in.gather(1, order).logical_not_()
        result = Ranking(0, self.k, like=self.scores)
        result.scores = self.scores.gather(1, order).masked_fill_(fills_up, -torch.inf)
        result.ids = self.ids.gather(1, order).masked_fill_(fills_up, torch.iinfo(self.ids.dtype).max)
        return result

    def merge(self, *others: Ranking) -> None:
        """Merges rankings of other training triples; several at once cost little more than one."""
        self._rank(torch.cat([o.scores for o in others], dim=1), torch.cat([o.ids for o in others], dim=1))


class TopK:
    """`proponents` (highest first) and `opponents` (lowest first, scores not negated)."""

    def __init__(self, tests: int, k: int, *, like: torch.Tensor) -> None:
        self.proponents = Ranking(tests, k, like=like)
        self._negated = Ranking(tests, k, like=like)

    def add(self, scores: torch.Tensor, ids: torch.Tensor) -> None:
        self.proponents.add(scores, ids)
        self._negated.add(-scores, ids)

    def merge(self, *others: TopK) -> None:
        self.proponents.merge(*(other.proponents for other in others))
        self._negated.merge(*(other._negated for other in others))

    def only(self, ids: torch.Tensor) -> TopK:
        """Only the triples `ids`."""
        result = TopK(0, self.proponents.k, like=self.proponents.scores)
        result.proponents, result._negated = self.proponents.only(ids), self._negated.only(ids)
        return result

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Input of `of_tensors`, to save or send it."""
        return self.proponents.scores, self.proponents.ids, self._negated.scores, self._negated.ids

    @classmethod
    def of_tensors(cls, k: int, tensors: Sequence[torch.Tensor]) -> TopK:
        result = cls(0, k, like=tensors[0])
        result.proponents.scores, result.proponents.ids = tensors[0], tensors[1]
        result._negated.scores, result._negated.ids = tensors[2], tensors[3]
        return result

    @property
    def opponents(self) -> Ranking:
        result = Ranking(0, self._negated.k, like=self._negated.scores)
        result.scores, result.ids = -self._negated.scores, self._negated.ids
        return result


def _sorted(scores: torch.Tensor, ids: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    by_id = ids.argsort(dim=1)
    order = scores.gather(1, by_id).argsort(dim=1, descending=True, stable=True)[:, :k]
    by_id = by_id.gather(1, order)
    return scores.gather(1, by_id), ids.gather(1, by_id)


_MOST_KEPT = 200_000  # training triples: some 50 MB of text


class Table:
    """The training triples as labels, names and file rows."""

    def __init__(self, graph: Graph, names: Names) -> None:
        self.graph, self.names = graph, names
        self._kept: dict[str, list[bytes]] = {}

    def labels(self, rows: torch.Tensor) -> list[tuple[str, str, str]]:
        entities, relations = self.graph.entities.labels, self.graph.relations.labels
        return [(entities[h], relations[r], entities[t]) for h, r, t in self.graph.train[rows].tolist()]

    def csv_rows(self, rows: torch.Tensor, score: str) -> list[bytes]:
        """Head, relation and tail, each with its name, and `score`, a format for the operator %."""
        return self._texts(rows, f"csv {score}", lambda triples: self._csv_texts(triples, score))

    def json_rows(self, rows: torch.Tensor, score: str) -> list[bytes]:
        """As `csv_rows`, as JSON objects."""
        return self._texts(rows, f"json {score}", lambda triples: self._json_texts(triples, score))

    def _texts(
        self, rows: torch.Tensor, kind: str, make_texts: Callable[[torch.Tensor], list[bytes]]
    ) -> list[bytes]:
        """Every test triple lists the training triples again: if all fit in memory, each text is made once."""
        if len(self.graph.train) > _MOST_KEPT:
            return make_texts(self.graph.train[rows])
        if kind not in self._kept:
            self._kept[kind] = make_texts(self.graph.train)
        kept = self._kept[kind]
        return [kept[row] for row in rows.tolist()]

    def _csv_texts(self, triples: torch.Tensor, score: str) -> list[bytes]:
        entities, relations = self._csv
        return [
            encoded(f"{entities[h]},{relations[r]},{entities[t]},{score}\n") for h, r, t in triples.tolist()
        ]

    def _json_texts(self, triples: torch.Tensor, score: str) -> list[bytes]:
        heads, relations, tails = self._json
        return [
            encoded(f'{{{heads[h]}, {relations[r]}, {tails[t]}, "score": {score}}}')
            for h, r, t in triples.tolist()
        ]

    @cached_property
    def _csv(self) -> tuple[_Texts, _Texts]:
        return _Texts(self._entity, csv_line), _Texts(self._relation, csv_line)

    @cached_property
    def _json(self) -> tuple[_Texts, _Texts, _Texts]:
        return (
            _Texts(self._entity, partial(_members, "head")),
            _Texts(self._relation, partial(_members, "relation")),
            _Texts(self._entity, partial(_members, "tail")),
        )

    def _entity(self, number: int) -> tuple[str, str]:
        label = self.graph.entities.labels[number]
        return label, self.names.nodes.get(label, label)

    def _relation(self, number: int) -> tuple[str, str]:
        label = self.graph.relations.labels[number]
        return label, self.names.edges.get(label, label)


class _Texts(dict[int, str]):
    """Quoted label and name of each entity or relation, with % escaped. Millions of rows share few labels, so each is
    quoted once."""

    def __init__(self, named: Callable[[int], tuple[str, str]], quoted: Callable[[str, str], str]) -> None:
        self._named, self._quoted = named, quoted

    def __missing__(self, number: int) -> str:
        self[number] = text = self._quoted(*self._named(number)).replace("%", "%%")
        return text


def attribution_event(table: Table, test: TestTriple, finished: FinishedTest, most: int) -> dict[str, Any]:
    """Fields of the attribution event: at most `most` proponents (1, 2, …) and opponents (-1, -2, …)."""
    order = finished.scores.argsort(descending=True, stable=True)
    best, worst = order[:most], order.flip(0)[:most]
    best, worst = best[finished.scores[best] > 0], worst[finished.scores[worst] < 0]
    chosen = torch.cat([best, worst])
    ranks = [*range(1, len(best) + 1), *range(-1, -len(worst) - 1, -1)]
    labels, scores = table.labels(finished.rows[chosen]), finished.scores[chosen].tolist()
    influences = [[rank, *triple, score] for rank, triple, score in zip(ranks, labels, scores, strict=True)]
    return {
        "test": test.number,
        "triple": list(test.labels),
        "candidates": finished.candidates,
        "trouble": finished.trouble,
        "influences": influences,
        "names": _known(table.names, [test.labels, *labels]),
    }


def _known(names: Names, triples: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Label → name, for the labels of the triples that have one."""
    named: dict[str, str] = {}
    for triple in triples:
        pairs = zip(triple, names.of(triple), strict=True)
        named |= {label: name for label, name in pairs if name != label}
    return named


def as_object(labels: tuple[str, str, str], names: Names) -> dict[str, str]:
    """A triple as head, relation and tail with their labels."""
    parts = zip(("head", "relation", "tail"), labels, names.of(labels), strict=True)
    return {
        key: value for part, label, name in parts for key, value in ((part, label), (f"{part}_label", name))
    }


def csv_line(*fields: str) -> str:
    line = io.StringIO()
    # The line terminator decides which labels the writer quotes: none may break a row.
    csv.writer(line, lineterminator="\r\n").writerow(fields)
    return line.getvalue().removesuffix("\r\n")


def file_stem(test: TestTriple) -> str:
    """`triple_001_CHEBI_34911_MONDO_0004525`."""
    head, _, tail = (re.sub(r"[^A-Za-z0-9.-]+", "_", label).strip("_")[:60] for label in test.labels)
    return f"triple_{test.number:03}_{head}_{tail}"


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _members(part: str, label: str, name: str) -> str:
    return json.dumps({part: label, f"{part}_label": name}, ensure_ascii=False)[1:-1]
