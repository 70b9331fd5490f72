"""`python -m kgops.workers.explain job.toml`: finds the training triples without which predictions are lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput, Interrupted
from kgops.explanations import asked
from kgops.explanations.asked import Asked
from kgops.explanations.explanation_files import Explained, Fact, Named, pair_of, write_csv, write_json
from kgops.explanations.necessary import Influences, explain, facts_of
from kgops.explanations.prediction import Prediction, Standing
from kgops.explanations.verify import ALL, KINDS, WITHOUT, Verified, verified
from kgops.graphs.triples import Graph
from kgops.graphs.vocabulary import read_edge_map, read_node_names
from kgops.jobs.explain import EXPLANATIONS
from kgops.jobs.job import Job
from kgops.jobs.on_device import explain_options
from kgops.models.conve import ConvE
from kgops.predictions.candidates import read_node_types
from kgops.predictions.evidence import Evidence
from kgops.predictions.known import KnownTriples
from kgops.predictions.names import NamedVocabulary
from kgops.tracin.checkpoint_set import LoadedCheckpoint
from kgops.tracin.curvature import training_of
from kgops.tracin.retraining import FitAgain
from kgops.training.reporter import Progress
from kgops.training.settings import TrainSettings, place_of
from kgops.training.tf32 import without_tf32
from kgops.training.threads import step_gflop
from kgops.workers.devices import choose_threads, memory_cleanup
from kgops.workers.entry import Stopped, StopRequest, run_worker
from kgops.workers.outputs import make_output_folder, publish_results
from kgops.workers.predict import load_model
from kgops.workers.report import Reporter, report_applied
from kgops.workers.tracin_validate import JOURNAL
from kgops.workers.train import find_device, load_graph


def explain_job(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    device = find_device(job.settings["device"])
    report.started(device=str(device), torch=torch.__version__)
    make_output_folder(job)
    results = folder / "results"
    results.mkdir(exist_ok=True)
    graph = load_graph(job.settings)
    for note in graph.notes:
        report.note(note)
    report_applied(job, explain_options(job, place_of(device)), report, {"memory_cleanup"})
    with memory_cleanup(job, device, report) as cleanup:
        work = _Work(job, graph, folder, report, stop)
        wanted = work.asked  # names are checked before a model is read
        loaded = load_model(job, graph, device)
        cleanup.between_phases()
        metrics = work.run(wanted, loaded, results)
    publish_results(job, folder, results, metrics, report)


@dataclass(frozen=True)
class _Work:
    job: Job
    graph: Graph
    folder: Path
    report: Reporter
    stop: StopRequest

    @property
    def settings(self) -> dict[str, Any]:
        return self.job.settings

    @cached_property
    def entities(self) -> NamedVocabulary:
        path = self.settings["node_name_dict"]
        return NamedVocabulary("entity", self.graph.entities, read_node_names(Path(path)) if path else {})

    @cached_property
    def relations(self) -> NamedVocabulary:
        path = self.settings["edge_map"]
        return NamedVocabulary("relation", self.graph.relations, read_edge_map(Path(path)) if path else {})

    @cached_property
    def known(self) -> KnownTriples:
        return KnownTriples(self.graph)

    @cached_property
    def evidence(self) -> Evidence:
        path = self.settings["node_types"]
        types = read_node_types(Path(path), self.graph.entities) if path else None
        return Evidence(self.graph.train, self.known, self.entities, self.relations, types)

    @property
    def asked(self) -> list[Asked]:
        """What is to be explained; refuses a file of which nothing can be."""
        if self.settings["triple"]:
            return [asked.of_text(self.settings["triple"], self.entities, self.relations)]
        found = asked.of_file(Path(self.settings["triples"]), self.entities, self.relations)
        found = found[: self.settings["max_triples"]]
        troubled = [one for one in found if one.trouble is not None]
        for one in troubled[:_MOST_NOTED]:
            self.report.note(f"prediction {one.number} ({' · '.join(one.texts)}): {one.trouble}")
        if len(troubled) == len(found):
            raise BadInput(
                f"none of the {len(found):,} predictions can be explained: {troubled[0].trouble}",
                hint="names are labels, readable names or ids of the graph.",
            )
        return found

    def run(self, wanted: list[Asked], loaded: LoadedCheckpoint, results: Path) -> dict[str, float]:
        model = loaded.checkpoint.model
        if not isinstance(model, ConvE):
            raise BadInput(
                f"{loaded.path} is a {type(model).__name__}; only ConvE can be explained.",
                hint="`kgops run tracin` attributes predictions of other models.",
            )
        if loaded.loss is None:
            self.report.note(f"{loaded.path} records no loss: kvsall-bce without label smoothing is assumed.")
        gflop = step_gflop(model.config, min(self.graph.num_entities, 256)) / 3
        choose_threads(gflop, "a block of queries", model.entities.device, self.report)
        begin = time.monotonic()
        with without_tf32():
            influences = Influences(
                model, training_of(self.graph.train, loaded.loss), seed=self.settings["seed"]
            )
            progress = Progress(self.report, "explain", "predictions")
            explained = []
            for done, one in enumerate(wanted, 1):
                explained.append(self._explained(one, model, influences))
                progress(done, len(wanted))
                if self.stop():
                    raise Stopped
        if all(one.trouble is not None for one in explained):
            raise BadInput(f"nothing could be explained: {explained[0].trouble}")
        seconds = time.monotonic() - begin
        verification: Verified | None = None
        if self.settings["verify"]:
            explained, verification = self._verified(explained, wanted, loaded, model)
        about = {
            "model": str(loaded.path),
            "max_facts": self.settings["max_facts"],
            "score": "fisher: of the tail's logit, less those of its rivals",
            "verified": verification.sentence() if verification is not None else None,
        }
        write_json(results / f"{EXPLANATIONS}.json", about, explained)
        write_csv(results / f"{EXPLANATIONS}.csv", explained)
        checked = verification.metrics() if verification is not None else {}
        if verification is not None:
            checked["lost_predictions"] = float(sum(bool(one.lost) for one in explained))
        return self._metrics(explained, seconds) | checked

    def _verified(
        self, explained: list[Explained], wanted: list[Asked], loaded: LoadedCheckpoint, model: ConvE
    ) -> tuple[list[Explained], Verified | None]:
        """Those with facts get the ranks of models trained without them."""
        if loaded.settings is None or loaded.epoch is None:
            raise BadInput(
                f"{loaded.path} has no training settings, so it cannot be retrained.",
                hint="--verify needs a checkpoint of a kgops training.",
            )
        places = [place for place, one in enumerate(explained) if one.facts]
        if not places:
            self.report.note("nothing to verify: no prediction has a set.")
            return explained, None
        tests = torch.tensor([wanted[place].ids for place in places])
        sets = [torch.tensor([self._ids(fact.triple) for fact in explained[place].facts]) for place in places]
        settings = replace(TrainSettings(**loaded.settings), num_epochs=loaded.epoch)
        common: dict[str, Any] = {"stop_requested": self.stop}
        again = FitAgain(
            *(self.graph, tests, model.config, settings, self.folder, self.report),
            device=model.entities.device,
            **common,
        )
        try:
            found = verified(
                *(self.graph.train, tests, sets, again, self.folder / JOURNAL),
                seed=settings.seed,
                seeds=self.settings["verify_seeds"],
                report=self.report,
                **common,
            )
        except Interrupted as error:
            raise Stopped from error
        self.report.note(found.sentence())
        explained = list(explained)
        for number, place in enumerate(places):
            ranks = {key: found.rank(kind, number) for kind, key in KINDS.items()}
            without, with_all = found.rank(WITHOUT, number), found.rank(ALL, number)
            lost = without > max(with_all, explained[place].rank_before or 1)
            explained[place] = replace(explained[place], rank_after=without, lost=lost, retrained=ranks)
        return explained, found

    def _ids(self, named: Named) -> tuple[int, int, int]:
        entities, relations = self.graph.entities.ids, self.graph.relations.ids
        return entities[named.head], relations[named.relation], entities[named.tail]

    def _explained(self, one: Asked, model: ConvE, influences: Influences) -> Explained:
        if one.ids is None:
            a, b, c = one.texts
            return Explained(one.number, Named(a, a, b, b, c, c), trouble=one.trouble)
        begin = time.monotonic()
        h, r, t = one.ids
        if one.number <= _MOST_NOTED:
            for entity, is_head in ((h, True), (t, False)):
                why = self.evidence.missing(entity, r, is_head=is_head)
                if why is not None:
                    self.report.note(f"prediction {one.number}: {why}.")
        facts = self.graph.train[facts_of(self.graph.train, h, t)]
        named, known = self._named(one.ids), self.known.splits_of(torch.tensor([one.ids]))[0]
        if not len(facts):
            ends = f"{named.head_name} or {named.tail_name}"
            trouble = f"no training triple mentions {ends}, so there is nothing to remove"
            self.report.note(f"prediction {one.number}: {trouble}.")
            return Explained(one.number, named, known, trouble)
        prediction = Prediction(model, one.ids, self.known.answers(torch.tensor([[h, r, 0]]))[0])
        falls = influences.falls(prediction, facts)
        found = explain(prediction, facts, falls, most=self.settings["max_facts"])
        standing = prediction.standing()
        self._note_rank(one.number, named, standing)
        return Explained(
            one.number,
            named,
            known,
            candidate_facts=len(facts),
            rank_before=standing.rank,
            score_before=standing.score,
            margin_before=standing.margin,
            seconds=time.monotonic() - begin,
            facts=[
                Fact(self._named(ids), effect, pair_of(ids, one.ids))
                for ids, effect in ((_ids(facts[row]), effect) for row, effect in found)
            ],
        )

    def _note_rank(self, number: int, named: Named, standing: Standing) -> None:
        """A prediction that the model does not make can only be made less likely."""
        if standing.rank > 1:
            self.report.note(
                f"prediction {number}: the model ranks {named.tail_name} {standing.rank:g}, not first, so there is "
                "no prediction to lose: the set is what lowers that rank. `kgops run predict` with this head and "
                "relation lists what the model does predict."
            )

    def _named(self, ids: tuple[int, int, int]) -> Named:
        entities, relations = self.entities, self.relations
        h, r, t = ids
        return Named(
            entities.label(h),
            entities.name(h),
            relations.label(r),
            relations.name(r),
            entities.label(t),
            entities.name(t),
        )

    def _metrics(self, explained: list[Explained], seconds: float) -> dict[str, float]:
        fine = [one for one in explained if one.trouble is None]
        facts = [fact for one in fine for fact in one.facts]
        return {
            "predictions": float(len(explained)),
            "failed_predictions": float(len(explained) - len(fine)),
            "facts": float(len(facts)),
            "facts_of_the_same_pair": float(sum(bool(fact.pair) for fact in facts)),
            "explain_s": seconds,
        }


def _ids(row: torch.Tensor) -> tuple[int, int, int]:
    a, b, c = row.tolist()
    return a, b, c


_MOST_NOTED = 20  # predictions of a file that cannot be explained, in notes


if __name__ == "__main__":
    run_worker(explain_job)
