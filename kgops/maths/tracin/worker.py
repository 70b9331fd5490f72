"""`python -m kgops.maths.tracin.worker job.toml`: computes TracIn influences of training triples on test triples."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput
from kgops.jobs.job import Job
from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import read_edge_map, read_node_names
from kgops.maths.tracin.agreement import report_agreement
from kgops.maths.tracin.attribution import Scorer, attribute_tests
from kgops.maths.tracin.checkpoint_set import LoadedCheckpoint
from kgops.maths.tracin.finished_tests import FinishedTests
from kgops.maths.tracin.outputs import Outputs, Writing, self_influence_csv, self_influence_json
from kgops.maths.tracin.parallel import merging, plan_shards, spread
from kgops.maths.tracin.results import Table, as_object
from kgops.maths.tracin.scan import Scoring
from kgops.maths.tracin.shards import MERGE
from kgops.maths.tracin.test_triples import TestTriple
from kgops.maths.tracin.validate import validate_influences
from kgops.maths.tracin.work import Work, path_of, report_options, spread_over, tests_at_once
from kgops.maths.train.worker import find_device, open_graph
from kgops.maths.worker.devices import keep_to_one_thread, memory_cleanup
from kgops.maths.worker.entry import StopRequest, run_worker
from kgops.maths.worker.memory_cleanup import MemoryCleanup
from kgops.maths.worker.outputs import open_results, publish_results
from kgops.maths.worker.report import Reporter
from kgops.workloads.graphs.text_sizes import Names
from kgops.workloads.tracin.job import formats_of, top_k_of


def tracin(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    metrics = run_tracin_job(job, folder, report, stop)
    publish_results(job, folder, folder / "results", metrics, report)
    for name in ("finished_tests", "shards"):  # needed only by a resume
        shutil.rmtree(folder / name, ignore_errors=True)


def run_tracin_job(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> dict[str, float]:
    """Runs everything except the manifest; returns the metrics."""
    device = find_device(job.settings["device"])
    open_results(job, folder, device, report)
    if _makes_copies(job, device):
        keep_to_one_thread()
    graph = open_graph(job, report)
    return run_on_graph(job, graph, device, folder, report, stop)


def run_on_graph(
    job: Job, graph: Graph, device: torch.device, folder: Path, report: Reporter, stop: StopRequest
) -> dict[str, float]:
    """Runs the job on a loaded graph; results go to `results/` in the folder."""
    work = _Run(job, graph, folder, report, stop)
    makes_copies = _makes_copies(job, device)
    if makes_copies:
        keep_to_one_thread()
    with memory_cleanup(job, device, report, process=_shared_with(job, device)) as cleanup:
        if job.settings["skip_tracin"]:
            report_options(job, device, report)
            return work.attribute(None)
        return work.whole(device, cleanup, makes_copies)


def _makes_copies(job: Job, device: torch.device) -> bool:
    """Whether forks of this process share the TracIn run."""
    by_others = job.on.where == "ray" or MERGE in os.environ
    return not by_others and spread_over(job, device)[0].count("cpu") > 1


def _shared_with(job: Job, device: torch.device) -> str | None:
    """Says that memory cleanups are counted only in this process, if other processes score for it."""
    others = job.on.where == "ray" or MERGE in os.environ or len(spread_over(job, device)[0]) > 1
    return "in this process; not counted in the scoring processes" if others else None


class _Run(Work):
    """Scores the tests and writes the results."""

    def whole(self, device: torch.device, cleanup: MemoryCleanup, makes_copies: bool) -> dict[str, float]:
        """Loads the checkpoints and does what the job asks."""
        job, report = self.job, self.report
        loaded = self.load(device, cleanup)
        self.check_data(loaded)
        report_options(job, device, report, loaded[0].checkpoint.model)
        scoring = self.scoring(loaded, device, cleanup)
        if not makes_copies:
            self.choose_threads(scoring)
        if job.settings["self_influence"]:
            return self.with_itself(scoring)
        metrics = self.attribute(scoring)
        cleanup.between_phases()
        if makes_copies:  # the forks have ended
            self.choose_threads(scoring)
        metrics |= self.agreement(scoring)
        if job.settings["validate"]:
            metrics |= self.validated(scoring, loaded[-1])
        return metrics

    def attribute(self, scoring: Scoring | None) -> dict[str, float]:
        report = self.report
        tests, finished = self.tests, self.finished_tests()
        outputs = self._outputs(tests, scoring)
        if len(finished):
            report.note(f"{len(finished):,} test triples were scored by an earlier attempt and are kept.")
            outputs.tile(finished)
        begin = time.monotonic()
        with self._scorer(scoring, tests, finished) as scorer:
            pairs = attribute_tests(
                scorer,
                self.graph.train,
                tests,
                finished,
                top_k=top_k_of(self.settings),
                neighbourhood=self.neighbourhood(),
                report=report,
                stop_requested=self.stop,
                on_finished=outputs.tile,
                tests_at_once=tests_at_once(self.job),
            )
        seconds = time.monotonic() - begin
        failed = outputs.finish(finished)
        if failed == len(tests):
            raise BadInput(
                f"none of the {failed:,} test triples could be scored: {next(iter(finished)).trouble}."
            )
        metrics: dict[str, float] = {
            "tests": len(tests),
            "failed_tests": failed,
            "checkpoints": 0 if scoring is None else len(scoring.checkpoints),
            "train_triples": len(self.graph.train),
        }
        if pairs:
            metrics |= {"scored_pairs": pairs, "tracin_s": seconds, "pairs_per_s": pairs / seconds}
        return metrics

    @contextmanager
    def _scorer(
        self, scoring: Scoring | None, tests: Sequence[TestTriple], finished: FinishedTests
    ) -> Iterator[Scorer | None]:
        """The scorer: this process, or several processes that end with the context."""
        if scoring is None:
            yield None
            return
        if os.environ.get(MERGE):
            yield merging(self, scoring, plan_shards(self, tests, finished))
            return
        if self.job.on.where == "ray":
            from kgops.maths.tracin.ray_tasks import shared_by_ray  # Ray is optional

            with shared_by_ray(self, plan_shards(self, tests, finished), str(scoring.device)) as by_ray:
                yield by_ray
            return
        devices, _ = spread_over(self.job, scoring.device)
        if len(devices) == 1:
            yield scoring
            return
        with spread(self, scoring, tests, finished, devices) as spread_scorer:
            yield spread_scorer

    def agreement(self, scoring: Scoring) -> dict[str, float]:
        """Compares approximate scores with exact ones on a sample."""
        train, seed = self.graph.train, self.settings["seed"]
        return report_agreement(scoring, train, self.ids(), seed, self.report, self.stop)

    def validated(self, scoring: Scoring, last: LoadedCheckpoint) -> dict[str, float]:
        ids, k, seed = self.ids(), self.settings["validate"], self.settings["seed"]
        return validate_influences(
            self.graph, scoring, last, ids, k, seed, self.folder, self.report, self.stop
        )

    def with_itself(self, scoring: Scoring) -> dict[str, float]:
        """Self-influence of each training triple, strongest first."""
        begin = time.monotonic()
        scores = scoring.self_influence(self.graph.train, self.report, self.stop).cpu()
        seconds = time.monotonic() - begin
        summary = self._write_self_influence(scores, len(scoring.checkpoints))
        return {
            "train_triples": len(scores),
            "checkpoints": len(scoring.checkpoints),
            "tracin_s": seconds,
            "triples_per_s": len(scores) / seconds,
            **{f"self_influence_{name}": value for name, value in summary.items()},
        }

    def _write_self_influence(self, scores: torch.Tensor, checkpoints: int) -> dict[str, float]:
        """Writes the strongest first; returns total, mean and largest of all."""
        top_k, table, formats = top_k_of(self.settings), self._table(), formats_of(self.settings)
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
            about = {
                "score": self.settings["score"],
                "loss": self.loss_name(),
                "checkpoints": len(scoring.checkpoints),
                "top_k": top_k_of(self.settings),
            }
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
