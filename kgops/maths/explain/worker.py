"""`python -m kgops.maths.explain.worker job.toml`: finds the training triples without which predictions are lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from kgops.errors import BadInput
from kgops.jobs.job import Job
from kgops.maths.explain.explanation_files import (
    Explained,
    Fact,
    Named,
    NamedPath,
    pair_of,
    write_csv,
    write_json,
    write_paths,
)
from kgops.maths.explain.paths import Edge, EvidencePath, paths_of
from kgops.maths.explain.prediction import (
    Asked,
    Influences,
    Prediction,
    Standing,
    effects_of,
    facts_of,
    is_itself,
    of_file,
    of_text,
    strongest,
)
from kgops.maths.explain.sufficient import others_of, sufficient
from kgops.maths.explain.verification import Checked, TrainingAgain
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.models.products import without_tf32
from kgops.maths.models.pykeen_bridge import own_vectors
from kgops.maths.predict.known import NamedGraph
from kgops.maths.predict.worker import load_model
from kgops.maths.tracin.checkpoint_set import LoadedCheckpoint
from kgops.maths.tracin.curvature import training_of
from kgops.maths.train.settings import place_of
from kgops.maths.train.worker import find_device, open_graph
from kgops.maths.worker.devices import choose_threads, memory_cleanup
from kgops.maths.worker.entry import Stopped, StopRequest, run_worker
from kgops.maths.worker.outputs import open_results, publish_results
from kgops.maths.worker.report import Progress, Reporter, report_applied
from kgops.workloads.explain.job import EXPLANATIONS, PATHS, cost_of, explain_options
from kgops.workloads.train.models import step_gflop


def explain_job(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    device = find_device(job.settings["device"])
    results = open_results(job, folder, device, report)
    graph = open_graph(job, report)
    if cost := cost_of(job.settings):
        report.note(f"{cost}.")
    report_applied(job, explain_options(job, place_of(device)), report, {"memory_cleanup"})
    metrics = explain_on_graph(job, graph, device, folder, report, stop)
    publish_results(job, folder, results, metrics, report)


def explain_on_graph(
    job: Job, graph: Graph, device: torch.device, folder: Path, report: Reporter, stop: StopRequest
) -> dict[str, float]:
    """Metrics; the sets are written to the results."""
    with memory_cleanup(job, device, report) as cleanup:
        work = _Work(job, graph, report, folder, stop)
        wanted = work.asked  # names are checked before a model is read
        loaded = load_model(job, graph, device, report)
        cleanup.between_phases()
        return work.run(wanted, loaded, folder / "results")


@dataclass(frozen=True)
class _Work(NamedGraph):
    folder: Path
    stop: StopRequest

    @property
    def asked(self) -> list[Asked]:
        """The predictions to explain. Refuses a file without any that can be explained."""
        names, asks_head = (self.entities, self.relations), self.settings["asked"] == "head"
        if self.settings["triple"]:
            return [of_text(self.settings["triple"], *names, asks_head=asks_head)]
        found = of_file(Path(self.settings["triples"]), *names, asks_head=asks_head)
        found = found[: self.settings["max_triples"]]
        troubled = [one for one in found if one.trouble is not None]
        for one in troubled[:_MOST_NOTED]:
            self.report.note(f"prediction {one.number} ({' · '.join(one.texts)}): {one.trouble}")
        if len(troubled) == len(found):
            raise BadInput(
                f"none of the {len(found):,} predictions can be explained: {troubled[0].trouble}",
                hint="names are labels or readable names of the graph; ids, unless labels are numbers.",
            )
        return found

    def run(self, wanted: list[Asked], loaded: LoadedCheckpoint, results: Path) -> dict[str, float]:
        model = loaded.checkpoint.model
        if not isinstance(model, EntityModel) and (own := own_vectors(model)) is not None:
            model = own
            loaded = replace(loaded, checkpoint=replace(loaded.checkpoint, model=own))
        if not isinstance(model, EntityModel):
            raise BadInput(
                f"{loaded.path} is a {type(model).__name__}, which cannot be explained.",
                hint="ConvE, ComplEx and DistMult can; `kgops tracin` traces other models.",
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
        checked = self._checked(explained, loaded)
        chosen = (
            "of adding it to other heads, on the tail's logit"
            if self.settings["sufficient"]
            else "of the tail's logit"
        )
        about = {
            "model": str(loaded.path),
            "kind": "sufficient" if self.settings["sufficient"] else "necessary",
            "max_facts": self.settings["max_facts"],
            "score": f"fisher: {chosen}, less those of its rivals",
            "verified": checked.sentence,
        }
        write_json(results / f"{EXPLANATIONS}.json", about, checked.explained)
        write_csv(results / f"{EXPLANATIONS}.csv", checked.explained)
        write_paths(results / PATHS, checked.explained)
        return self._metrics(checked.explained, seconds) | (checked.metrics or {})

    def _checked(self, explained: list[Explained], loaded: LoadedCheckpoint) -> Checked:
        if not cost_of(self.settings):
            return Checked(explained)
        again = TrainingAgain(self.graph, loaded, self.settings, self.folder, self.report, self.stop)
        return again.checked(explained)

    def _explained(self, one: Asked, model: EntityModel, influences: Influences) -> Explained:
        query = one.query
        if query is None:
            a, b, c = one.texts
            return Explained(one.number, Named(a, a, b, b, c, c), trouble=one.trouble)
        begin = time.monotonic()
        h, r, t = query.triple
        if one.number <= _MOST_NOTED:
            for entity, is_head in ((h, True), (t, False)):
                why = self.missing_evidence(entity, r, is_head=is_head)
                if why is not None:
                    self.report.note(f"prediction {one.number}: {why}.")
        ends = (query.given,) if self.settings["sufficient"] else (h, t)
        around = self.graph.train[facts_of(self.graph.train, h, t)]
        facts = around if len(ends) > 1 else around[facts_of(around, *ends)]
        known = self.known.splits_of(torch.tensor([query.triple]))[0]
        named, asked = self._named(query.triple), "head" if query.asks_head else "tail"

        def troubled(trouble: str) -> Explained:
            self.report.note(f"prediction {one.number}: {trouble}.")
            return Explained(one.number, named, asked, known, trouble)

        if query.asks_head and not model.config.inverse:
            return troubled(
                "the model has no inverse relations; it can be explained as a prediction of its tail alone"
            )
        itself = int(is_itself(facts, query.triple).sum())
        if len(facts) == itself:
            other = "other " if itself else ""
            return troubled(
                f"no {other}training triple mentions {' or '.join(map(self.entities.name, ends))}"
            )
        if itself and not self.settings["sufficient"] and one.number <= _MOST_NOTED:
            self._note_itself(one.number, named)
        prediction = Prediction(model, query, self.known.answers(query.question)[0])
        if not len(prediction.rivals):
            return troubled(
                f"every entity is a known {asked} of {_question(named, asked)}: its rank cannot fall"
            )
        others = others_of(model, query, self.known, self._draw) if self.settings["sufficient"] else None
        if others == []:
            answer, other = (named.head_name, "tail") if query.asks_head else (named.tail_name, "head")
            return troubled(f"{answer} is known or ranked first for every other {other}")
        effects = effects_of(prediction, around, influences.falls(prediction, around)).cpu()
        most = self.settings["max_facts"]
        found = (
            strongest(effects, most=most)
            if others is None
            else sufficient(influences, query, others, facts, self.known, most=most)
        )
        chosen = [(_ids(facts[row]), effect) for row, effect in found]
        paths = paths_of(
            self.graph.train,
            prediction,
            influences,
            [Edge(_ids(row), effect) for row, effect in zip(around, effects.tolist(), strict=True)],
            most=_MOST_PATHS,
            through=[triple for triple, _ in chosen],
        )
        standing = prediction.standing()
        self._note_rank(one.number, named, asked, standing)
        return Explained(
            one.number,
            named,
            asked,
            known,
            candidate_facts=len(facts) - itself,
            rank_before=standing.rank,
            score_before=standing.score,
            margin_before=standing.margin,
            seconds=time.monotonic() - begin,
            facts=[Fact(self._named(ids), effect, pair_of(ids, query.triple)) for ids, effect in chosen],
            paths=[self._named_path(path) for path in paths],
            others=None if others is None else [self.entities.label(other.query.given) for other in others],
        )

    def _named_path(self, path: EvidencePath) -> NamedPath:
        return NamedPath(
            path.effect, [Fact(self._named(edge.triple), edge.effect, "") for edge in path.edges]
        )

    @cached_property
    def _draw(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.settings["seed"])

    def _note_rank(self, number: int, named: Named, asked: str, standing: Standing) -> None:
        """A prediction that the model does not make can only be made less likely."""
        if standing.rank > 1:
            what = (
                "no prediction to carry over. The set should bring others nearer to it"
                if self.settings["sufficient"]
                else "no prediction to lose. Without these triples the model should rank it worse"
            )
            answer, given = (named.head_name, "tail") if asked == "head" else (named.tail_name, "head")
            self.report.note(
                f"prediction {number}: the model ranks {answer} {standing.rank:g}, not first, so there is "
                f"{what}. `kgops predict` with this {given} and relation lists what the model does predict."
            )

    def _note_itself(self, number: int, named: Named) -> None:
        triple = " · ".join((named.head_name, named.relation_name, named.tail_name))
        self.report.note(
            f"prediction {number}: {triple} is a training triple itself. It is in no set, and --verify trains on it "
            "again, so the prediction may stay whatever the set is. --new with --from-predictions leaves such out."
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


def _question(named: Named, asked: str) -> str:
    ends = ("?", named.tail_name) if asked == "head" else (named.head_name, "?")
    return f"({ends[0]}, {named.relation_name}, {ends[1]})"


def _ids(row: torch.Tensor) -> tuple[int, int, int]:
    a, b, c = row.tolist()
    return a, b, c


_MOST_NOTED = 20  # predictions of a file that cannot be explained, in notes
_MOST_PATHS = 10  # of a prediction; those through its set come in addition


if __name__ == "__main__":
    run_worker(explain_job)
