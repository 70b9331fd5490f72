"""What every process that works on a TracIn run's pieces is given, published once beside them.

The job is as the coordinating process has it: within a pipeline, or after an OOM fallback, it is not the run's job.
The graph is as that process read it: numbers, which each maps into memory, instead of text, which each would parse.
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

__all__ = ["job_file", "ordered_graph", "publish_order"]

_GRAPH = "graph.torch"


def job_file(folder: Path) -> Path:
    return folder / "job.toml"


def publish_order(folder: Path, job: Job, graph: Graph) -> None:
    """In the place of what an attempt before has left: that may be cut short, and its files others by now."""
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
        os.replace(draft, folder / _GRAPH)  # noqa: PTH105 - named for what it promises: replaced in one step
    finally:
        draft.unlink(missing_ok=True)


def ordered_graph(folder: Path) -> Graph:
    path = folder / _GRAPH
    try:
        told = read_saved(path, mmap=True)
        train, valid, test = told["triples"]
        return Graph(train, valid, test, Vocabulary.of(told["entities"]), Vocabulary.of(told["relations"]))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is no graph that a TracIn run works on.") from error
