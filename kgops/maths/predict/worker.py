"""`python -m kgops.maths.predict.worker job.toml`: answers questions (head, relation, ?) with a trained model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.job import Job
from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import shown
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.predict import questions
from kgops.maths.predict.answer_files import (
    Listed,
    Listing,
    must_have_parquet,
    write_csv,
    write_json,
    write_parquet,
    write_triples,
)
from kgops.maths.predict.known import NamedGraph
from kgops.maths.predict.pairs import best_pairs
from kgops.maths.predict.questions import (
    ASKED,
    Question,
    Side,
    candidates_of_file,
    read_marks,
)
from kgops.maths.predict.ranking import Answers, Probability, answers, probability_of
from kgops.maths.predict.scores import Scorer, scorer_of
from kgops.maths.tracin.checkpoint_set import LoadedCheckpoint, find_checkpoints, load_checkpoint
from kgops.maths.tracin.models import check_ready
from kgops.maths.train.checkpoints import forced_difference
from kgops.maths.train.settings import place_of
from kgops.maths.train.worker import find_device, load_graph, open_graph
from kgops.maths.worker.devices import choose_threads, cleanup_for, memory_cleanup
from kgops.maths.worker.entry import Stopped, StopRequest, run_worker
from kgops.maths.worker.memory_cleanup import MemoryCleanup
from kgops.maths.worker.outputs import open_results, publish_results
from kgops.maths.worker.report import Progress, Reporter, report_applied
from kgops.workloads.predict.job import (
    ANSWERS,
    NEW_TRIPLES,
    PREDICT_CHUNK,
    PREDICT_ENCODED,
    PREDICTED_TRIPLES,
    formats_of,
    lists_new_alone,
    predict_options,
)
from kgops.workloads.registry import values_of
from kgops.workloads.train.models import step_gflop


def predict(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    metrics = run_predict_job(job, folder, report, stop)
    publish_results(job, folder, folder / "results", metrics, report)


def run_predict_job(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> dict[str, float]:
    """Runs everything except the manifest; returns the metrics."""
    device = find_device(job.settings["device"])
    results = open_results(job, folder, device, report)
    if ".parquet" in formats_of(job.settings):
        must_have_parquet()
    graph = open_graph(job, report)
    report_applied(job, predict_options(job, place_of(device)), report, {"memory_cleanup"})
    with memory_cleanup(job, device, report) as cleanup:
        return answer_job(job, graph, device, results, report, stop, cleanup)


def predict_stage(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> dict[str, float]:
    """As a part of a pipeline, which has reported the options."""
    device = find_device(job.settings["device"])
    graph, cleanup = load_graph(job.settings), cleanup_for(job, device)
    return answer_job(job, graph, device, folder / "results", report, stop, cleanup)


def answer_job(
    job: Job,
    graph: Graph,
    device: torch.device,
    results: Path,
    report: Reporter,
    stop: StopRequest,
    cleanup: MemoryCleanup,
) -> dict[str, float]:
    """Answers the job's questions on a loaded graph and writes the files; returns the metrics."""
    asked = _Asked(job, graph, report)
    one_by_one = [] if job.settings["best"] else asked.questions  # names are checked before a model is read
    allowed = asked.candidates
    _ = asked.marks, asked.each if job.settings["each"] else None  # so are marks and types
    asked.note_guesses(one_by_one)
    loaded = load_model(job, graph, device, report)
    cleanup.between_phases()
    work = _Work(asked, loaded, results, report, stop)
    work.choose_threads(len(one_by_one))
    begin = time.monotonic()
    rows = work.pairs(allowed) if job.settings["best"] else work.answers(one_by_one, allowed)
    seconds = time.monotonic() - begin
    work.write(rows, one_by_one)
    troubled = sum(one.trouble is not None for one in one_by_one)
    return {
        "questions": float(len(one_by_one) or 1),
        "failed_questions": float(troubled),
        "answers": float(len(rows)),
        "new_answers": float(rows.new),
        "predict_s": seconds,
    }


def load_model(job: Job, graph: Graph, device: torch.device, report: Reporter) -> LoadedCheckpoint:
    """The named model, or the newest checkpoint. Refuses one of other training triples, unless forced."""
    settings = job.settings
    path = settings["model_path"]
    if path is None:
        path = find_checkpoints(None, Path(settings["checkpoint_dir"]), None)[-1]
    # A learning rate is what TracIn needs of a checkpoint: any will do here.
    loaded = load_checkpoint(
        Path(path), graph, device=device, learning_rate=1.0, trust_pickle=settings["trust_pickle"]
    )
    check_ready(loaded.checkpoint.model)
    if (note := forced_difference(graph, loaded.data)) is not None:
        report.note(note)
    for part in ("valid", "test"):
        if (difference := graph.difference(part, loaded.data)) is not None:
            report.note(f"{difference.removesuffix('.')}; they count as known.")
    return loaded


@dataclass(frozen=True)
class _Asked(NamedGraph):
    """The job's questions, in ids of the graph."""

    @cached_property
    def questions(self) -> list[Question]:
        settings = self.settings
        if settings["each"]:
            return self._of_each(self.each)
        if not settings["queries"]:
            names = (settings["head"], settings["relation"], settings["tail"])
            return [questions.question(*names, self.entities, self.relations)]
        found = questions.of_file(Path(settings["queries"]), self.entities, self.relations)
        troubled = [one for one in found if one.trouble is not None]
        for one in troubled[:_MOST_NOTED]:
            self.report.note(f"question {one.number} ({' · '.join(one.texts)}): {one.trouble}")
        if len(troubled) > _MOST_NOTED:
            self.report.note(f"{len(troubled) - _MOST_NOTED:,} more questions cannot be answered.")
        if len(troubled) == len(found):
            raise BadInput(
                f"none of the {len(found):,} questions can be answered: {troubled[0].trouble}",
                hint="names are labels or readable names of the graph; ids, unless labels are numbers.",
            )
        return found

    @cached_property
    def each(self) -> torch.Tensor:
        """Entities of the type that is asked about."""
        assert self.types is not None  # the job was checked
        found = self.types.entities(self.settings["each"])
        sides = (True,) if self.settings["best"] else (True, False)
        if not any(torch.isin(found, self.known.ends(self.relation, heads=heads)).any() for heads in sides):
            where = "head" if self.settings["best"] else "entity"
            raise BadInput(
                f"{shown(self.relations.name(self.relation))} has no {where} of type "
                f"{shown(self.settings['each'])} in any triple.",
                hint="--each takes a type of its heads or of its tails; with --best, of its heads.",
            )
        return found

    def _of_each(self, entities: torch.Tensor) -> list[Question]:
        """Asks for heads where the relation has such tails, otherwise for tails."""
        relation = self.relation
        are_tails = bool(torch.isin(entities, self.known.ends(relation, heads=False)).any())
        asked: Side = "head" if are_tails else "tail"
        found = []
        for number, entity in enumerate(entities.tolist(), 1):
            name, label = self.entities.label(entity), self.relations.label(relation)
            texts = (ASKED, label, name) if asked == "head" else (name, label, ASKED)
            found.append(Question(number, asked, texts, entity, relation))
        return found

    @cached_property
    def marks(self) -> dict[tuple[int, int], str]:
        path = self.settings["mark"]
        if not path:
            return {}
        found, unknown = read_marks(Path(path), self.entities)
        if unknown:
            self.report.note(f"marks: {len(found):,} pairs; the graph lacks an entity of {unknown:,} more.")
        return found

    @cached_property
    def candidates(self) -> torch.Tensor | None:
        """Ids of the entities that may be answers; None: all."""
        settings = self.settings
        allowed = None
        if settings["candidates"]:
            allowed = candidates_of_file(Path(settings["candidates"]), self.entities)
        if settings["candidate_type"]:
            of_type = self._of_type(settings["candidate_type"])
            both = allowed is not None
            allowed = of_type if allowed is None else allowed[torch.isin(allowed, of_type)]
            if both and not len(allowed):
                raise BadInput(
                    f"no entity of {settings['candidates']} has the type {shown(settings['candidate_type'])}.",
                    hint="leave out --candidates or --candidate-type.",
                )
        return allowed

    def note_guesses(self, one_by_one: Sequence[Question]) -> None:
        """Of the first questions, which ask for what no such entity has."""
        for one in [one for one in one_by_one if one.trouble is None][:_MOST_NOTED]:
            why = self.missing_evidence(one.known, one.relation, is_head=not one.asks_heads)
            if why is not None:
                self.report.note(f"question {one.number}: {why}.")

    def _of_type(self, wanted: str) -> torch.Tensor:
        """Refuses a type that no answer of the asked relations has in the graph."""
        types = self.types
        assert types is not None  # the job was checked
        found = types.entities(wanted)
        asked = {(one.relation, one.asks_heads) for one in self._asked_ends()}
        for relation, heads in sorted(asked):
            ends = self.known.ends(relation, heads=heads)
            if not bool(torch.isin(ends, found).any()):
                side = "head" if heads else "tail"
                raise BadInput(
                    f"no {side} of {shown(self.relations.name(relation))} has the type {shown(wanted)}.",
                    hint=f"its {side}s have: {types.listed(ends.tolist())}.",
                )
        return found

    def _asked_ends(self) -> Sequence[Question]:
        if not self.settings["best"]:
            return [one for one in self.questions if one.trouble is None]
        return [Question(1, "tail", (ASKED, "", ASKED), relation=self.relation)]

    @cached_property
    def relation(self) -> int:
        """The relation whose pairs are scored."""
        return self.relations.find(self.settings["relation"])


_MOST_NOTED = 20  # questions of a file that cannot be answered, in notes


@dataclass(frozen=True)
class _Work:
    asked: _Asked
    loaded: LoadedCheckpoint
    results: Path
    report: Reporter
    stop: StopRequest

    @property
    def settings(self) -> dict[str, Any]:
        return self.asked.settings

    @cached_property
    def scorer(self) -> Scorer:
        return scorer_of(self.loaded.checkpoint.model, self._chunk)

    @cached_property
    def probability(self) -> Probability:
        return probability_of(self.loaded.loss, self.loaded.checkpoint.model)

    @property
    def _chunk(self) -> int:
        chunk: int | str = values_of(self.asked.job)["entity_chunk"]
        return PREDICT_CHUNK if isinstance(chunk, str) else chunk

    def choose_threads(self, asked: int) -> None:
        """By the products of a block of questions, or of heads of all pairs."""
        model = self.loaded.checkpoint.model
        device = self.scorer.like.device
        rows = min(asked or PREDICT_ENCODED, PREDICT_ENCODED)
        gflop = step_gflop(model.config, rows) / 3 if isinstance(model, EntityModel) else 0.0  # forward alone
        choose_threads(gflop, "a block", device, self.report)

    def answers(self, asked: Sequence[Question], allowed: torch.Tensor | None) -> Listing:
        """The answers to all questions, in their order."""
        fine = [one for one in asked if one.trouble is None]
        rows = torch.tensor([[one.known, one.relation, one.asks_heads] for one in fine])
        left_out = None
        if lists_new_alone(self.settings):
            left_out = self.asked.known.answers(rows)
        progress = Progress(self.report, "predict", "questions")
        found: dict[int, Listed] = {}
        given = answers(
            self.scorer,
            rows,
            self.settings["top_k"],
            self.probability,
            candidates=allowed,
            left_out=left_out,
            stop_requested=self.stop,
        )
        for row, one in given:
            found[row] = self._listed(fine[row], one)
            progress(len(found), len(fine))
        if len(found) < len(fine):
            raise Stopped
        return self._listing([found[row] for row in range(len(fine))])

    def pairs(self, allowed: torch.Tensor | None) -> Listing:
        """The best pairs of the job's relation."""
        relation, known = self.asked.relation, self.asked.known
        new_alone = lists_new_alone(self.settings)
        best = best_pairs(
            self.scorer,
            relation,
            self.settings["best"],
            self.probability,
            left_out=known.pairs(relation) if new_alone else None,
            heads=self.asked.each if self.settings["each"] else None,
            tails=allowed,
            chunk=self._chunk,
            stop_requested=self.stop,
            progress=Progress(self.report, "predict", "heads"),
        )
        if best is None:
            raise Stopped
        heads, found = best
        triples = torch.stack([heads, torch.full_like(heads, relation), found.entities], dim=1)
        return self._listing([self._with_splits(1, "pair", triples, found)])

    def _listed(self, asked: Question, found: Answers) -> Listed:
        known = torch.full_like(found.entities, asked.known)
        relation = torch.full_like(found.entities, asked.relation)
        ends = (found.entities, known) if asked.asks_heads else (known, found.entities)
        triples = torch.stack([ends[0], relation, ends[1]], dim=1)
        return self._with_splits(asked.number, asked.asked, triples, found)

    def _with_splits(self, number: int, asked: str, triples: torch.Tensor, found: Answers) -> Listed:
        own = replace(found, entities=found.entities.new_empty(0))  # the triples have them
        known = self.asked.known.splits_of(triples)
        marks = self.asked.marks
        marked = [marks.get((h, t), "") for h, _, t in triples.tolist()] if marks else []
        return Listed(number, asked, triples.to(torch.int32), own, known, marked)

    def _listing(self, listed: Sequence[Listed]) -> Listing:
        return Listing(self.asked.entities, self.asked.relations, listed)

    def write(self, rows: Listing, asked: Sequence[Question]) -> None:
        formats, path = formats_of(self.settings), self.results / ANSWERS
        write_csv(path.with_suffix(".csv"), rows)
        if ".json" in formats:
            about, questions_ = self._about(), self._questions(asked)
            write_json(path.with_suffix(".json"), about, questions_, rows.answers_to)
        if ".parquet" in formats:
            write_parquet(path.with_suffix(".parquet"), rows)
        write_triples(self.results / PREDICTED_TRIPLES, rows.best_first())
        write_triples(self.results / NEW_TRIPLES, rows.best_first(new_alone=True))

    def _about(self) -> dict[str, Any]:
        return {
            "model": str(self.loaded.path),
            "probability": self.probability.kind,
            "entities": self.asked.graph.num_entities,
        }

    def _questions(self, asked: Sequence[Question]) -> list[dict[str, Any]]:
        if not asked:
            relation = self.asked.relations.label(self.asked.relation)
            return [{"question": 1, "asked": "pair", "head": None, "relation": relation, "tail": None}]
        return [
            {
                "question": one.number,
                "asked": one.asked,
                **dict(zip(("head", "relation", "tail"), self._labels(one), strict=True)),
                "trouble": one.trouble,
            }
            for one in asked
        ]

    def _labels(self, one: Question) -> tuple[str | None, str, str | None]:
        """Labels of the graph, or the question's own texts if it cannot be answered."""
        if one.trouble is not None:
            head, relation, tail = one.texts
            return None if head == ASKED else head, relation, None if tail == ASKED else tail
        known, relation = self.asked.entities.label(one.known), self.asked.relations.label(one.relation)
        return (None, relation, known) if one.asks_heads else (known, relation, None)


if __name__ == "__main__":
    run_worker(predict)
