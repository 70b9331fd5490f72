"""Sufficient sets: facts of the head that make the model predict the same tail for other heads, once they have them.
Where heads are asked for, facts of the tail, and other tails.

A fact is carried over to another head by putting that one in the head's place. Its effect is the Fisher influence of
adding it on the answer's lead over its rivals there, averaged over the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kgops.maths.explain.prediction import Influences, Prediction, Query, facts_of, is_itself
from kgops.maths.explain.verify import ALL, RANDOM, SETS, Verified, ranks_without, seeds_after, triples_said
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.predict.known import KnownTriples
from kgops.maths.tracin.retraining import Journal, Retrain

OTHERS = 10  # heads that a set is carried over to, as in Kelpie


def others_of(
    model: EntityModel, query: Query, known: KnownTriples, draw: torch.Generator
) -> list[Prediction]:
    """The prediction for `OTHERS` randomly drawn other heads (tails, where heads are asked for). For them this answer
    is not known, and the model does not rank it first. Entities with the relation come first."""
    order = torch.randperm(len(model.entities), generator=draw)
    likely = torch.isin(order, known.ends(query.triple[1], heads=not query.asks_head))
    found: list[Prediction] = []
    for c in torch.cat([order[likely], order[~likely]]).tolist():
        if len(found) == OTHERS:
            break
        other = query.about(c)
        answers = known.answers(other.question)[0]
        if c in (query.given, query.answer) or bool((answers == query.answer).any()):
            continue
        one = Prediction(model, other, answers)
        if one.standing().rank > 1:
            found.append(one)
    return found


def carried(facts: torch.Tensor, given: int, other: int) -> torch.Tensor:
    """The facts with `other` in the place of `given`."""
    out = facts.clone()
    for column in (0, 2):
        out[:, column].masked_fill_(facts[:, column] == given, other)
    return out


def sufficient(
    influences: Influences,
    query: Query,
    others: Sequence[Prediction],
    facts: torch.Tensor,
    known: KnownTriples,
    *,
    most: int,
) -> list[tuple[int, float]]:
    """Row and lift of at most `most` facts of the given entity: those that lift the others most. The lifts are
    first-order estimates, good for ranking. A fact that is known of another one lifts nothing there."""
    effects = torch.zeros(len(facts))
    for other in others:
        added = carried(facts, query.given, other.query.given)
        lifts = other.lead(influences.falls(other, added)).float().cpu()
        effects += lifts.masked_fill(known.are_known(added), 0.0) / len(others)
    effects = effects.masked_fill(is_itself(facts, query.triple), -torch.inf)
    strongest = effects.argsort(descending=True, stable=True)[:most].tolist()
    return [(row, float(effects[row])) for row in strongest if effects[row] > 0]


class Additions:
    """Carries each prediction's set (rows of the training triples) over to its other heads, or tails. As a control it
    also carries over as many random facts of the prediction's given entity."""

    def __init__(
        self,
        graph: Graph,
        predictions: Sequence[Query],
        sets: Sequence[Sequence[int]],
        others: Sequence[Sequence[int]],
        *,
        seed: int,
    ) -> None:
        draw, train = torch.Generator().manual_seed(seed), graph.train
        added: dict[str, list[torch.Tensor]] = {SETS: [], RANDOM: []}
        asked: list[Query] = []
        for query, rows, entities in zip(predictions, sets, others, strict=True):
            pool = facts_of(train, query.given)
            pool = pool[~is_itself(train[pool], query.triple)]
            random = pool[torch.randperm(len(pool), generator=draw)[: len(rows)]]
            for c in entities:
                added[SETS].append(carried(train[list(rows)], query.given, c))
                added[RANDOM].append(carried(train[random], query.given, c))
                asked.append(query.about(c))
        known = KnownTriples(graph)
        self._train, self._seed, self._asked = train, seed, asked
        self.tests = torch.tensor([one.triple for one in asked])
        self._added = {kind: _unknown(torch.cat(some), known) for kind, some in added.items()}
        # Added facts are true answers as well: ranks leave them out.
        self.graph = replace(graph, valid=torch.cat([graph.valid, *self._added.values()]))

    def trained_with(self, retrain: Retrain, journal: Path, *, seeds: int, **how: Any) -> Verified:
        """Ranks of the answer for each other one, after training with the sets, with the random facts, with neither."""
        # All of them in one order, of which each training leaves some out: that is what a journal keeps.
        every = torch.cat([self._train, *self._added.values()])
        start, middle, end = len(self._train), len(self._train) + len(self._added[SETS]), len(every)
        left_out = {SETS: range(middle, end), RANDOM: range(start, middle), ALL: range(start, end)}
        kept = Journal(journal, every, self.tests, retrain, **how)
        deleted = {kind: tuple(rows) for kind, rows in left_out.items()}
        ranks = ranks_without(kept, deleted, seeds_after(self._seed, seeds), self._asked)
        return Verified({SETS: middle - start, RANDOM: end - middle, ALL: 0}, ranks)


def sentence_of(found: Verified) -> str:
    n, heads = found.seeds, len(found.ranks[ALL][0])
    share = {kind: f"{sum(found.hits_at_1(kind)) / n:.0%}" for kind in found.ranks}
    added, at_random = triples_said(found.changed[SETS]), triples_said(found.changed[RANDOM], "random ")
    return (
        f"retrained from the start ({n} seed{'s' * (n > 1)}): with the {added} added that "
        f"carry the sets over, the tail ranks first for {share[SETS]} of {heads:,} other heads; with "
        f"{at_random} of the head carried over, for {share[RANDOM]}; with nothing added, "
        f"for {share[ALL]}."
    )


def _unknown(triples: torch.Tensor, known: KnownTriples) -> torch.Tensor:
    """Without repeats, and without those that the graph has."""
    distinct: torch.Tensor = torch.unique(triples, dim=0)
    return distinct[~known.are_known(distinct)]
