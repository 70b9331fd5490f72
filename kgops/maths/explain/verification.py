"""`--verify` and `--smallest` of an explain run: the sets are checked by retraining from the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from kgops.maths.explain.explanation_files import Explained, Named
from kgops.maths.explain.prediction import Query
from kgops.maths.explain.sufficient import Additions, sentence_of
from kgops.maths.explain.verify import ALL, KINDS, SETS, Verified, rows_of, smallest, verified
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.tracin.checkpoint_set import LoadedCheckpoint
from kgops.maths.tracin.retraining import FitAgain, Journal
from kgops.maths.tracin.validate import JOURNAL
from kgops.maths.train.settings import TrainSettings
from kgops.maths.worker.report import Reporter


@dataclass(frozen=True)
class Checked:
    """What retraining found: `explained` with it, in a sentence, and as metrics."""

    explained: list[Explained]
    sentence: str | None = None
    metrics: dict[str, float] | None = None


@dataclass(frozen=True)
class TrainingAgain:
    """`settings` come from the explain job. Raises `Stopped` on a stop request, and keeps finished trainings."""

    graph: Graph
    loaded: LoadedCheckpoint
    settings: dict[str, Any]
    folder: Path
    report: Reporter
    stop: Callable[[], bool]

    def checked(self, explained: list[Explained]) -> Checked:
        places = [place for place, one in enumerate(explained) if one.facts]
        if not places:
            self.report.note("nothing to verify: no prediction has a set.")
            return Checked(explained)
        some = [explained[place] for place in places]
        check = self._sufficient if self.settings["sufficient"] else self._necessary
        checked = check(some, [self._rows(one) for one in some])
        for place, one in zip(places, checked.explained, strict=True):
            explained[place] = one
        assert checked.sentence is not None
        self.report.note(checked.sentence)
        return replace(checked, explained=explained)

    def _necessary(self, explained: list[Explained], sets: list[list[int]]) -> Checked:
        asked = [self._query(one) for one in explained]
        tests = torch.tensor([one.triple for one in asked])
        how: dict[str, Any] = {"report": self.report, "stop_requested": self.stop}
        journal = Journal(self._journal, self.graph.train, tests, self._again(self.graph, tests), **how)
        seeds: dict[str, int] = {"seed": self._training.seed, "seeds": self.settings["verify_seeds"]}
        before, trained, metrics = [one.rank_before or 1.0 for one in explained], 0, {}
        if self.settings["smallest"]:
            sizes, trained = smallest(journal, asked, sets, before, **seeds)
            sets = [rows[:size] for rows, size in zip(sets, sizes, strict=True)]
            metrics["smallest_sets"] = float(sum(size is not None for size in sizes))
            explained = [
                replace(one, facts=one.facts[:size], smallest=size is not None)
                for one, size in zip(explained, sizes, strict=True)
            ]
        found = verified(journal, asked, sets, **seeds, puts_back=self.settings["smallest"])
        explained = [
            _with_ranks(one, {kind: found.rank(kind, n) for kind in found.ranks})
            for n, one in enumerate(explained)
        ]
        metrics["lost_predictions"] = float(sum(bool(one.lost) for one in explained))
        return Checked(explained, found.sentence(), metrics | _metrics(found, "removed_facts", trained))

    def _sufficient(self, explained: list[Explained], sets: list[list[int]]) -> Checked:
        entities = self.graph.entities.ids
        predictions = [self._query(one) for one in explained]
        others = [[entities[label] for label in one.others or ()] for one in explained]
        added = Additions(self.graph, predictions, sets, others, seed=self._training.seed)
        how: dict[str, Any] = {"report": self.report, "stop_requested": self.stop}
        again = self._again(added.graph, added.tests)
        found = added.trained_with(again, self._journal, seeds=self.settings["verify_seeds"], **how)
        firsts = {kind: _firsts(ranks, others) for kind, ranks in found.ranks.items()}
        explained = [
            replace(one, carried={KINDS[kind]: of[n] for kind, of in firsts.items()})
            for n, one in enumerate(explained)
        ]
        return Checked(explained, sentence_of(found), _metrics(found, "added_facts", 0))

    # --- what they train with ---

    @cached_property
    def _training(self) -> TrainSettings:
        return self.loaded.training("--verify")

    @property
    def _journal(self) -> Path:
        return self.folder / JOURNAL

    def _again(self, graph: Graph, tests: torch.Tensor) -> FitAgain:
        model = self.loaded.checkpoint.model
        assert isinstance(model, EntityModel)
        return FitAgain(
            *(graph, tests, model.config, self._training, self.folder, self.report),
            device=model.entities.device,
            stop_requested=self.stop,
        )

    def _rows(self, one: Explained) -> list[int]:
        return rows_of(self.graph.train, torch.tensor([self._ids(fact.triple) for fact in one.facts]))

    def _query(self, one: Explained) -> Query:
        return Query(self._ids(one.triple), one.asked == "head")

    def _ids(self, named: Named) -> tuple[int, int, int]:
        entities, relations = self.graph.entities.ids, self.graph.relations.ids
        return entities[named.head], relations[named.relation], entities[named.tail]


def _with_ranks(one: Explained, ranks: dict[str, float]) -> Explained:
    lost = ranks[SETS] > max(ranks[ALL], one.rank_before or 1)
    named = {KINDS[kind]: rank for kind, rank in ranks.items()}
    return replace(one, rank_after=ranks[SETS], lost=lost, retrained=named)


def _firsts(ranks: Sequence[Sequence[float]], others: Sequence[Sequence[int]]) -> list[float]:
    """For how many others of each prediction its answer ranks first: the mean over seeds."""
    found, start = [], 0
    for heads in others:
        own = [one[start : start + len(heads)] for one in ranks]
        found.append(mean(float(sum(rank <= 1 for rank in one)) for one in own))
        start += len(heads)
    return found


def _metrics(found: Verified, changed: str, trained: int) -> dict[str, float]:
    retrainings = trained + found.seeds * len(found.ranks)
    return {changed: float(found.changed[SETS]), "retrainings": float(retrainings), **found.metrics()}
