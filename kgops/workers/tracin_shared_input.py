"""Shared input of all processes that score shards of a TracIn run: job and graph, published once beside the shards.

The job is that of the coordinating process: in a pipeline, or after an OOM fallback, it is not the run's job. The
graph is saved as tensors, which each process memory-maps instead of parsing text.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import torch

from kgops.errors import BadInput
from kgops.graphs.triples import Graph
from kgops.graphs.vocabulary import Vocabulary
from kgops.jobs.files import write_durably
from kgops.jobs.job import Job
from kgops.training.torch_files import read_saved

__all__ = ["job_file", "publish_shared_input", "read_shared_graph"]

_GRAPH = "graph.torch"


def job_file(folder: Path) -> Path:
    return folder / "job.toml"


def publish_shared_input(folder: Path, job: Job, graph: Graph) -> None:
    """Replaces the shared input of an earlier attempt, which may be truncated or outdated."""
    write_durably(job_file(folder), job.as_toml().encode())
    draft = folder / f".{_GRAPH}.{uuid.uuid4().hex}"
    try:
        torch.save(
            {
                "triples": [graph.train, graph.valid, graph.test],
                "entities": list(graph.entities.labels),
                "relations": list(graph.relations.labels),
            },
            draft,
        )
        os.replace(draft, folder / _GRAPH)  # noqa: PTH105 - atomic
    finally:
        draft.unlink(missing_ok=True)


def read_shared_graph(folder: Path) -> Graph:
    path = folder / _GRAPH
    try:
        saved = read_saved(path, mmap=True)
        train, valid, test = saved["triples"]
        return Graph(train, valid, test, Vocabulary.of(saved["entities"]), Vocabulary.of(saved["relations"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is no shared graph of a TracIn run.") from error
