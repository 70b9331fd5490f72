"""`python -m kgops.workers.tracin job.toml`: traces test triples back to the training triples behind them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput, Interrupted
from kgops.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.graphs.readable import read_edge_map, read_node_names
from kgops.graphs.triples import Graph, read_graph, read_pykeen_dataset
from kgops.jobs.job import Job
from kgops.jobs.tracing import DATA, FILTERS
from kgops.tracin import tests_to_trace
from kgops.tracin.blocks import Settings
from kgops.tracin.engines import block_gflop
from kgops.tracin.loss import ONE_TO_N, TARGET, TracinLoss, trained_loss
from kgops.tracin.models import facts_of
from kgops.tracin.parts import Parts, parts_meaning
from kgops.tracin.points import Loaded, find_checkpoints, load_point
from kgops.tracin.results import Names, Table, write_self_influence
from kgops.tracin.scan import self_influence
from kgops.tracin.tests_to_trace import TestTriple
from kgops.tracin.trace import Scorer, Scoring, trace
from kgops.training.batches import inverse_triples, query_rows
from kgops.workers.entry import Stopped, StopRequest, run_worker
from kgops.workers.outputs import copy_file, hand_in, make_output_folder
from kgops.workers.report import Reporter
from kgops.workers.threads import choose_threads
from kgops.workers.tracin_agreement import report_agreement
from kgops.workers.tracin_index import built, from_index
from kgops.workers.tracin_levers import (
    chosen_names,
    filters,
    precision_for,
    report_levers,
    scoring_settings,
    tests_at_once,
)
from kgops.workers.tracin_outputs import Outputs
from kgops.workers.tracin_validate import validate_found
from kgops.workers.train import find_device

TOP_K_OF_A_RUN = 100  # with --run; the group's scripts kept all


def tracin(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    figures = trace_job(job, folder, report, stop)
    for name, wanted in (("tracin.json", job.settings["output"]), ("tracin.csv", job.settings["csv_output"])):
        if wanted and (folder / "results" / name).exists():
            copy_file(folder / "results" / name, Path(wanted))
    hand_in(job, folder, folder / "results", figures, report)
    shutil.rmtree(folder / "parts", ignore_errors=True)  # only going on needs them


def trace_job(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> dict[str, float]:
    """Everything but the manifest; what the run found, as figures."""
    device = find_device(job.settings["device"])
    report.started(device=str(device), torch=torch.__version__)
    make_output_folder(job)
    results = folder / "results"
    results.mkdir(exist_ok=True)
    graph = load_graph(job.settings)
    for note in graph.notes:
        report.note(note)
    return trace_graph(job, graph, device, folder, report, stop)


def trace_graph(
    job: Job, graph: Graph, device: torch.device, folder: Path, report: Reporter, stop: StopRequest
) -> dict[str, float]:
    """What the job asks of this graph; results go to `results/` of the folder."""
    work = _Work(job, graph, folder, report, stop)
    try:
        if job.settings["skip_tracin"]:
            report_levers(job, device, report)
            return work.traced(None)
        loaded = work.load(device)
        report_levers(job, device, report, loaded[0].point.model)
        scoring = work.scoring(loaded, device)
        if job.settings["self_influence"]:
            return work.with_itself(scoring)
        if job.settings["build_index"]:
            return built(scoring, graph.train, Path(job.settings["build_index"]), report, stop)
        figures = work.traced(scoring) | work.agreement(scoring)
        if job.settings["validate"]:
            figures |= work.validated(scoring, loaded[-1])
        return figures
    except Interrupted as error:
        raise Stopped from error


def load_graph(settings: dict[str, Any]) -> Graph:
    if settings["dataset"]:
        return read_pykeen_dataset(settings["dataset"])
    paths = {name: Path(settings[name]) if settings[name] else None for name in DATA}
    train, vocabularies = (
        paths.pop("train"),
        {name: paths.pop(name) for name in ("entity_to_id", "relation_to_id")},
    )
    assert train is not None  # the job was checked
    if all(
        vocabularies.values()
    ):  # then the other files add nothing, and a label nobody knows is no error here
        paths = dict.fromkeys(paths)
    return read_graph(train, **paths, **vocabularies)


@dataclass(frozen=True)
class _Work:
    job: Job
    graph: Graph
    folder: Path
    report: Reporter
    stop: StopRequest

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def settings(self) -> dict[str, Any]:
        return self.job.settings

    def load(self, device: torch.device) -> list[Loaded]:
        settings = self.settings
        paths = find_checkpoints(
            _path(settings["model_path"]), _path(settings["checkpoint_dir"]), settings["last_checkpoints"]
        )
        return [
            load_point(
                path,
                self.graph,
                device=device,
                learning_rate=settings["learning_rate"],
                trust_pickle=settings["trust_pickle"],
            )
            for path in paths
        ]

    def scoring(self, loaded: Sequence[Loaded], device: torch.device) -> Scoring:
        """The checkpoints, and the loss whose gradients are compared."""
        loss, both = self._loss(loaded)
        points = [one.point for one in loaded]
        model = points[0].model
        scored_at_once = self.job.levers.get("block", Settings().block)
        torch.backends.cuda.matmul.allow_tf32 = precision_for(self.job, device)[0] == "tf32"
        choose_threads(block_gflop(model, loss, scored_at_once), "a block", device, self.report)
        names = chosen_names(self.job, model)
        many = f"{len(points)} checkpoints up to" if len(points) > 1 else "one checkpoint,"
        directions = ", both directions" if both else ""
        self.report.note(f"{many} {loaded[-1].path.name}; loss {self._loss_name()}{directions}.")
        return Scoring(points, loss, scoring_settings(self.job, both, model, device), names)

    def _loss_name(self) -> str:
        asked: str | None = self.settings["loss"]
        return asked or ("target" if self.settings["run"] is None else "train")

    def _loss(self, loaded: Sequence[Loaded]) -> tuple[TracinLoss, bool]:
        name, facts = self._loss_name(), facts_of(loaded[0].point.model)
        both = self.settings["both_directions"]
        if name != "train":
            trained = str((loaded[0].loss or {}).get("name", ""))
            if name == "one-to-n" and trained.startswith("kvsall"):
                self.report.note(
                    "the model was trained with every known tail as true; one-to-n takes the others for false. "
                    "--loss train compares the gradients that training followed."
                )
            return {"target": TARGET, "one-to-n": ONE_TO_N}[name], bool(both)
        if loaded[0].loss is None:
            raise BadInput(
                f"{loaded[0].path} does not say which loss it was trained with.",
                hint="choose --loss one-to-n or --loss target.",
            )
        rows = query_rows(self.graph.train, facts.inverse)
        if facts.inverse:
            rows = torch.cat([rows, inverse_triples(self.graph.train)])
        relation_rows = facts.relations * (2 if facts.inverse else 1)
        loss = trained_loss(loaded[0].loss, rows.to(facts.like.device), relation_rows)
        return loss, facts.inverse if both is None else both

    def tests(self) -> list[TestTriple]:
        settings, graph = self.settings, self.graph
        if settings["test_triple"]:
            test = tests_to_trace.from_text(settings["test_triple"], graph)
            if test.trouble:
                raise BadInput(
                    f"the test triple cannot be traced: {test.trouble}.", hint="check its spelling."
                )
            return [test]
        file = _path(settings["test_triples"] or settings["test"])
        found = (
            tests_to_trace.from_graph(graph, graph.test)
            if file is None
            else tests_to_trace.from_file(file, graph)
        )
        chosen = tests_to_trace.chosen(found, settings["start_index"], settings["max_triples"])
        if not chosen:
            raise BadInput(
                f"no test triple is left: {len(found):,} in all, --start-index {settings['start_index']}.",
                hint="name some by --test-triple, --test-triples or --test.",
            )
        return chosen

    def traced(self, scoring: Scoring | None) -> dict[str, float]:
        report = self.report
        tests, parts = self.tests(), self._parts()
        outputs = self._outputs(tests, scoring)
        if len(parts):
            report.note(f"{len(parts):,} test triples were traced before and are taken as they are.")
            outputs.tile(parts)
        begin = time.monotonic()
        pairs = trace(
            self._scorer(scoring),
            self.graph.train,
            tests,
            parts,
            top_k=self._top_k(),
            near=self._near(),
            report=report,
            stop_requested=self.stop,
            when_done=outputs.tile,
            tests_at_once=tests_at_once(self.job),
        )
        seconds = time.monotonic() - begin
        failed = outputs.finish(parts)
        if failed == len(tests):
            raise BadInput(
                f"none of the {failed:,} test triples could be traced: {next(iter(parts)).trouble}."
            )
        figures: dict[str, float] = {
            "tests": len(tests),
            "failed_tests": failed,
            "checkpoints": 0 if scoring is None else len(scoring.points),
            "train_triples": len(self.graph.train),
        }
        if pairs:
            figures |= {"scored_pairs": pairs, "tracin_s": seconds, "pairs_per_s": pairs / seconds}
        return figures

    def _parts(self) -> Parts:
        """What an earlier attempt finished, unless the ladder has since changed what scores mean."""
        meaning = {"last_layers": self.job.levers.get("last_layers", False), "filtering": filters(self.job)}
        parts, dropped = parts_meaning(meaning, self.folder / "parts")
        if dropped:
            self.report.note("the ladder changed what scores mean: what was traced before is traced again.")
        return parts

    def _scorer(self, scoring: Scoring | None) -> Scorer | None:
        folder = _path(self.settings["use_index"])
        if scoring is None or folder is None:
            return scoring
        return from_index(scoring, self.graph.train, folder, filters(self.job))

    def _ids(self) -> torch.Tensor:
        return torch.tensor([test.ids for test in self.tests() if test.ids is not None])

    def agreement(self, scoring: Scoring) -> dict[str, float]:
        """How far cheaper scores find what exact ones find."""
        train, seed = self.graph.train, self.settings["seed"]
        return report_agreement(scoring, train, self._ids(), seed, self.report, self.stop)

    def validated(self, scoring: Scoring, last: Loaded) -> dict[str, float]:
        ids, k, seed = self._ids(), self.settings["validate"], self.settings["seed"]
        return validate_found(self.graph, scoring, last, ids, k, seed, self.folder, self.report, self.stop)

    def with_itself(self, scoring: Scoring) -> dict[str, float]:
        """Each training triple's influence on itself, the strongest first."""
        begin = time.monotonic()
        scores = self_influence(
            scoring.points,
            scoring.loss,
            self.graph.train,
            settings=scoring.settings,
            names=scoring.names,
            report=self.report,
            stop_requested=self.stop,
        ).cpu()
        seconds = time.monotonic() - begin
        order = scores.argsort(descending=True, stable=True)[: self._top_k()]
        write_self_influence(self.results / "self_influence.csv", self._table(), order, scores[order])
        return {
            "train_triples": len(scores),
            "checkpoints": len(scoring.points),
            "tracin_s": seconds,
            "triples_per_s": len(scores) / seconds,
        }

    def _outputs(self, tests: Sequence[TestTriple], scoring: Scoring | None) -> Outputs:
        about = {} if scoring is None else {"loss": self._loss_name(), "checkpoints": len(scoring.points)}
        return Outputs(
            self.results,
            self._table(),
            tests,
            self.report,
            batch=bool(self.settings["test_triples"]),
            scored=scoring is not None,
            parquet=self.settings["parquet"],
            about=about,
        )

    def _table(self) -> Table:
        nodes, edges = _path(self.settings["node_name_dict"]), _path(self.settings["edge_map"])
        names = Names(
            {} if nodes is None else read_node_names(nodes), {} if edges is None else read_edge_map(edges)
        )
        return Table(self.graph, names)

    def _top_k(self) -> int | None:
        asked: int | None = self.settings["top_k"]
        return asked or (None if self.settings["run"] is None else TOP_K_OF_A_RUN)

    def _near(self) -> tuple[Neighbourhood, NeighbourhoodFilter] | None:
        if not filters(self.job):
            return None
        how = NeighbourhoodFilter(**{name: self.settings[name] for name in FILTERS})
        return Neighbourhood(self.graph.train, self.graph.num_entities), how


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None


if __name__ == "__main__":
    run_worker(tracin)
