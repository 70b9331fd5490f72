"""`python -m kgops.maths.evaluate.worker job.toml`: ranks triples by a trained model."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kgops.errors import BadInput, Usage
from kgops.jobs.files import write_json
from kgops.jobs.job import Job
from kgops.maths.evaluate.matrix import (
    HITS_AT,
    RECALL_AT,
    Matrix,
    matrix_of,
    of_chance,
    of_frequency,
    of_model,
    ranked,
    summary,
    table_of,
)
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.entity_model import EntityModel
from kgops.maths.predict.questions import NamedVocabulary, read_node_types
from kgops.maths.predict.scores import scorer_of
from kgops.maths.predict.worker import load_model
from kgops.maths.tracin.test_triples import from_file
from kgops.maths.train.evaluate import Evaluation, Evaluator, quality_table
from kgops.maths.train.settings import place_of
from kgops.maths.train.worker import find_device, open_graph
from kgops.maths.worker.devices import choose_threads, memory_cleanup
from kgops.maths.worker.entry import Stopped, StopRequest, run_worker
from kgops.maths.worker.outputs import open_results, publish_results
from kgops.maths.worker.report import Progress, Reporter, report_applied
from kgops.workloads.evaluate.job import evaluate_options
from kgops.workloads.predict.job import PREDICT_CHUNK
from kgops.workloads.train.models import step_gflop
from kgops.workloads.train.options import EVALUATION_QUERIES

_MOST_NOTED = 20  # triples that cannot be ranked
_MODEL = "model"  # its row next to those of the baselines
_OF_BASELINES = ("auroc", "mrr")  # in the record; all of them are in the file
_OF_MATRIX = ("auroc", *(f"recall_at_{n}" for n in RECALL_AT), "mrr", *(f"hits_at_{k}" for k in HITS_AT))


def evaluate(job: Job, folder: Path, report: Reporter, stop: StopRequest) -> None:
    device = find_device(job.settings["device"])
    results = open_results(job, folder, device, report)
    graph = open_graph(job, report)
    report_applied(job, evaluate_options(job, place_of(device)), report, {"memory_cleanup"})
    triples = _triples(job, graph, report)
    matrix = _matrix(job, graph, triples, report)  # names are checked before a model is read
    with memory_cleanup(job, device, report) as cleanup:
        model = load_model(job, graph, device, report).checkpoint.model
        cleanup.between_phases()
        begin = time.monotonic()
        evaluation = _ranked(model, graph, triples, device, report, stop)
        tables = _tables(matrix, model, report, stop)
        seconds = time.monotonic() - begin
    quality = quality_table(evaluation, replace(graph, test=triples))
    quality["groups"]["matrix"] = [{"name": name, **table} for name, table in tables.items()]
    write_json(results / "test_results.json", {**evaluation.to_dict(), **quality})
    report.artifact(results / "test_results.json", "metrics")
    found = evaluation.both.to_dict()
    named = {
        f"test_{name}": float(value) for name, value in found.items() if name != "count" and value is not None
    }
    report.metric("test_mrr", named["test_mrr"], 1)
    named |= {
        f"{'matrix' if name == _MODEL else name}_{key}": float(table[key])
        for name, table in tables.items()
        for key in (_OF_MATRIX if name == _MODEL else _OF_BASELINES)
    }
    metrics = {**named, "triples": float(len(triples)), "evaluate_s": seconds}
    publish_results(job, folder, results, metrics, report)


def _triples(job: Job, graph: Graph, report: Reporter) -> torch.Tensor:
    """Ids of the triples to rank; those whose names the model lacks are left out, and noted."""
    path = job.settings["triples"]
    if path is None:
        if not len(graph.test):
            raise Usage("the training has no test triples.", hint="name the triples to rank: --test FILE")
        return graph.test
    found = from_file(Path(path), graph)
    troubled = [one for one in found if one.ids is None]
    if len(troubled) == len(found):
        raise BadInput(
            f"no triple of {path} can be ranked: {troubled[0].trouble}.",
            hint="names are the labels of the training's triples.",
        )
    for one in troubled[:_MOST_NOTED]:
        report.note(f"triple {one.number} ({' · '.join(one.labels)}) is left out: {one.trouble}.")
    if len(troubled) > _MOST_NOTED:
        report.note(f"{len(troubled) - _MOST_NOTED:,} more triples are left out.")
    return torch.tensor([one.ids for one in found if one.ids is not None], dtype=graph.train.dtype)


def _matrix(job: Job, graph: Graph, triples: torch.Tensor, report: Reporter) -> Matrix | None:
    """All pairs of the relation that the job names."""
    name, types = job.settings["matrix"], job.settings["node_types"]
    if name is None:
        return None
    relation = NamedVocabulary("relation", graph.relations, {}).find(name)
    if not bool((triples[:, 1] == relation).any()):
        raise BadInput(
            f"no ranked triple has the relation {name}.", hint="--test FILE names the triples to rank."
        )
    read = read_node_types(Path(types), graph.entities) if types else None
    matrix = matrix_of(graph, triples, relation, read)
    report.note(
        f"matrix: {len(matrix.heads):,} {matrix.types[0] or 'heads'} by {len(matrix.tails):,} "
        f"{matrix.types[1] or 'tails'}; {len(matrix.tested):,} pairs are ranked "
        f"among {matrix.negatives:,} others, and {len(matrix.left_out):,} known ones are left out."
    )
    return matrix


def _tables(matrix: Matrix | None, model: Any, report: Reporter, stop: StopRequest) -> dict[str, Any]:
    """Metrics over all pairs, of the model and of two baselines."""
    if matrix is None:
        return {}
    scorer = scorer_of(model, PREDICT_CHUNK)
    ways = {
        _MODEL: of_model(scorer, matrix),
        "frequency": of_frequency(matrix),
        "random": of_chance(matrix),
    }
    tables = {}
    for name, scores in ways.items():
        found = ranked(matrix, scores, scorer.heads_at_once(scorer.num_entities), stop)
        if found is None:
            raise Stopped
        tables[name] = table_of(matrix, found)
    report.note(f"{summary(tables)}.")
    return tables


def _ranked(
    model: Any,
    graph: Graph,
    triples: torch.Tensor,
    device: torch.device,
    report: Reporter,
    stop: StopRequest,
) -> Evaluation:
    known = torch.cat([graph.train, graph.valid, graph.test, triples])
    if isinstance(model, EntityModel):
        choose_threads(step_gflop(model.config, EVALUATION_QUERIES) / 3, "a block", device, report)
        progress = Progress(report, "evaluate", "query")
        evaluation = Evaluator(known, graph.num_entities, device=device)(
            model, triples, stop_requested=stop, progress=progress
        )
        if evaluation is None:
            raise Stopped
        return evaluation
    from kgops.maths.train.pykeen_callbacks import KeepRanks  # its libraries are slow to import

    evaluator = KeepRanks()
    evaluator.evaluate(
        model,
        triples.to(torch.int64).to(device),
        additional_filter_triples=[known.to(torch.int64).to(device)],
        use_tqdm=False,
    )
    return evaluator.newest()


if __name__ == "__main__":
    run_worker(evaluate)
