"""`python -m kgops.workers.tracin job.toml`: traces test triples back to the training triples behind them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput, Interrupted
from kgops.graphs.readable import read_edge_map, read_node_names
from kgops.graphs.triples import Graph
from kgops.jobs.job import Job
from kgops.jobs.tracin import formats_of
from kgops.tracin.attribution import Scorer, Scoring, trace
from kgops.tracin.checkpoint_set import Loaded
from kgops.tracin.finished_tests import Parts
from kgops.tracin.influence_files import self_influence_csv, self_influence_json
from kgops.tracin.results import Names, Table, as_object
from kgops.tracin.scan import self_influence
from kgops.tracin.test_triples import TestTriple
from kgops.training.memory_cleanup import MemoryCleanup
from kgops.workers.cleanup import memory_cleanup
from kgops.workers.entry import Stopped, StopRequest, run_worker
from kgops.workers.outputs import hand_in, make_output_folder
from kgops.workers.report import Reporter
from kgops.workers.threads import keep_to_one_thread
from kgops.workers.tracin_agreement import report_agreement
from kgops.workers.tracin_index import built, from_index
from kgops.workers.tracin_options import (
    filters,
    report_options,
    spread_over,
    tests_at_once,
)
from kgops.workers.tracin_outputs import Outputs, Writing
from kgops.workers.tracin_parallel import merging, spread
from kgops.workers.tracin_shard_worker import MERGE
from kgops.workers.tracin_sharding import planned_pieces
from kgops.workers.tracin_validate import validate_found
from kgops.workers.tracin_work import Work, load_graph, path_of
from kgops.workers.train import find_device


def tracin(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    metrics = trace_job(job, folder, report, stop)
    hand_in(job, folder, folder / "results", metrics, report)
    for name in ("parts", "pieces"):  # only going on needs them
        shutil.rmtree(folder / name, ignore_errors=True)


def trace_job(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> dict[str, float]:
    """Everything but the manifest; what the run found, as metrics."""
    device = find_device(job.settings["device"])
    report.started(device=str(device), torch=torch.__version__)
    make_output_folder(job)
    results = folder / "results"
    results.mkdir(exist_ok=True)
    if _makes_copies(job, device):
        keep_to_one_thread()
    graph = load_graph(job.settings)
    for note in graph.notes:
        report.note(note)
    return trace_graph(job, graph, device, folder, report, stop)


def trace_graph(
    job: Job, graph: Graph, device: torch.device, folder: Path, report: Reporter, stop: StopRequest
) -> dict[str, float]:
    """What the job asks of this graph; results go to `results/` of the folder."""
    work = _Run(job, graph, folder, report, stop)
    makes_copies = _makes_copies(job, device)
    if makes_copies:
        keep_to_one_thread()
    try:
        with memory_cleanup(job, device, report, whose=_shared_with(job, device)) as cleanup:
            if job.settings["skip_tracin"]:
                report_options(job, device, report)
                return work.traced(None)
            return work.whole(device, cleanup, makes_copies)
    except Interrupted as error:
        raise Stopped from error


def _makes_copies(job: Job, device: torch.device) -> bool:
    """Whether processes that are copies of this one are to share the TracIn run."""
    by_others = job.on.where == "ray" or MERGE in os.environ
    return not by_others and spread_over(job, device)[0].count("cpu") > 1


def _shared_with(job: Job, device: torch.device) -> str | None:
    """Of whom the counts of this process are not, where others score for it."""
    others = job.on.where == "ray" or MERGE in os.environ or len(spread_over(job, device)[0]) > 1
    return "in this process; those that score do the same, uncounted" if others else None


class _Run(Work):
    """What the run does with it, and writes of it."""

    def whole(self, device: torch.device, cleanup: MemoryCleanup, makes_copies: bool) -> dict[str, float]:
        """From loading the checkpoints on."""
        job, report = self.job, self.report
        loaded = self.load(device, cleanup)
        report_options(job, device, report, loaded[0].point.model)
        scoring = self.scoring(loaded, device, cleanup)
        if not makes_copies:
            self.choose_threads(scoring)
        if job.settings["self_influence"]:
            return self.with_itself(scoring)
        if job.settings["build_index"]:
            return built(scoring, self.graph.train, Path(job.settings["build_index"]), report, self.stop)
        metrics = self.traced(scoring)
        cleanup.between_phases()
        if makes_copies:  # and they are gone
            self.choose_threads(scoring)
        metrics |= self.agreement(scoring)
        if job.settings["validate"]:
            metrics |= self.validated(scoring, loaded[-1])
        return metrics

    def traced(self, scoring: Scoring | None) -> dict[str, float]:
        report = self.report
        tests, parts = self.tests, self.parts()
        outputs = self._outputs(tests, scoring)
        if len(parts):
            report.note(f"{len(parts):,} test triples were traced before and are taken as they are.")
            outputs.tile(parts)
        begin = time.monotonic()
        with self._scorer(scoring, tests, parts) as scorer:
            pairs = trace(
                scorer,
                self.graph.train,
                tests,
                parts,
                top_k=self.top_k(),
                near=self.near(),
                report=report,
                stop_requested=self.stop,
                when_done=outputs.tile,
                tests_at_once=tests_at_once(self.job),
            )
        seconds = time.monotonic() - begin
        begin = time.monotonic()
        failed = outputs.finish(parts)
        writing_s = time.monotonic() - begin
        if failed == len(tests):
            raise BadInput(
                f"none of the {failed:,} test triples could be traced: {next(iter(parts)).trouble}."
            )
        metrics: dict[str, float] = {
            "tests": len(tests),
            "failed_tests": failed,
            "checkpoints": 0 if scoring is None else len(scoring.points),
            "train_triples": len(self.graph.train),
            "writing_s": writing_s,
        }
        if pairs:
            metrics |= {"scored_pairs": pairs, "tracin_s": seconds, "pairs_per_s": pairs / seconds}
        return metrics

    @contextmanager
    def _scorer(
        self, scoring: Scoring | None, tests: Sequence[TestTriple], parts: Parts
    ) -> Iterator[Scorer | None]:
        """Here, from an index, or by several processes for as long as this lasts."""
        index = path_of(self.settings["use_index"])
        if scoring is None:
            yield None
            return
        if index is not None:
            yield from_index(scoring, self.graph.train, index, filters(self.job))
            return
        if os.environ.get(MERGE):
            yield merging(self, scoring, planned_pieces(self, tests, parts))
            return
        if self.job.on.where == "ray":
            from kgops.workers.ray_tasks import shared_by_ray  # not everybody's

            with shared_by_ray(self, planned_pieces(self, tests, parts), str(scoring.device)) as by_ray:
                yield by_ray
            return
        devices, _ = spread_over(self.job, scoring.device)
        if len(devices) == 1:
            yield scoring
            return
        with spread(self, scoring, tests, parts, devices) as spread_scorer:
            yield spread_scorer

    def agreement(self, scoring: Scoring) -> dict[str, float]:
        """How far cheaper scores find what exact ones find."""
        train, seed = self.graph.train, self.settings["seed"]
        return report_agreement(scoring, train, self.ids(), seed, self.report, self.stop)

    def validated(self, scoring: Scoring, last: Loaded) -> dict[str, float]:
        ids, k, seed = self.ids(), self.settings["validate"], self.settings["seed"]
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
            cleanup=scoring.cleanup,
        ).cpu()
        seconds = time.monotonic() - begin
        begin = time.monotonic()
        summary = self._write_self_influence(scores, len(scoring.points))
        return {
            "train_triples": len(scores),
            "checkpoints": len(scoring.points),
            "tracin_s": seconds,
            "triples_per_s": len(scores) / seconds,
            "writing_s": time.monotonic() - begin,
            **{f"self_influence_{name}": value for name, value in summary.items()},
        }

    def _write_self_influence(self, scores: torch.Tensor, checkpoints: int) -> dict[str, float]:
        """The strongest first; of all of them the total, the mean and the largest."""
        top_k, table, formats = self.top_k(), self._table(), formats_of(self.settings)
        order = scores.argsort(descending=True, stable=True)[:top_k]
        summary = {
            "total": float(scores.double().sum()),
            "mean": float(scores.double().mean()),
            "largest": float(scores.max()),
        }
        writing = Writing(self.report, len(order) * (formats.csv + formats.json))
        if formats.csv:
            path = self.results / "self_influence.csv"
            self_influence_csv(path, table, order, scores[order], writing.wrote)
        if formats.json:
            about = {
                "num_training_triples": len(scores),
                "top_k": top_k,
                "loss": self.loss_name(),
                "checkpoints": checkpoints,
                "summary": {
                    **summary,
                    "largest_triple": as_object(table.labels(order[:1])[0], table.names),
                },
            }
            path = self.results / "self_influence.json"
            self_influence_json(path, table, about, order, scores[order], writing.wrote)
        largest = " · ".join(table.names.of(table.labels(order[:1])[0]))
        self.report.note(
            f"self-influence of {len(scores):,} training triples: total {summary['total']:.4g}, mean "
            f"{summary['mean']:.4g}, largest {summary['largest']:.4g} ({largest})."
        )
        return summary

    def _outputs(self, tests: Sequence[TestTriple], scoring: Scoring | None) -> Outputs:
        about: dict[str, Any] = {}
        if scoring is not None:
            about = {"loss": self.loss_name(), "checkpoints": len(scoring.points), "top_k": self.top_k()}
        return Outputs(
            self.results,
            self._table(),
            tests,
            self.report,
            formats=formats_of(self.settings),
            scored=scoring is not None,
            about=about,
        )

    def _table(self) -> Table:
        nodes, edges = path_of(self.settings["node_name_dict"]), path_of(self.settings["edge_map"])
        names = Names(
            {} if nodes is None else read_node_names(nodes), {} if edges is None else read_edge_map(edges)
        )
        return Table(self.graph, names)


if __name__ == "__main__":
    run_worker(tracin)
