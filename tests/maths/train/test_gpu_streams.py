"""Nothing reads on one stream of a GPU what another may still write: torch's own sanitizer watches every operation.

Each run is in a process of its own, since torch cannot stop telling of its streams and events.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kgops.maths.graphs.triples import read_pykeen_dataset
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.blocks import TracinCheckpoint
from kgops.maths.tracin.loss import ONE_TO_N
from kgops.maths.tracin.scan import TopTriples, scan
from kgops.maths.train.batches import Batch
from kgops.maths.train.loop import fit
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.step import TrainStep
from kgops.workloads.train.models import ConvEConfig

pytestmark = [pytest.mark.gpu, pytest.mark.long]


class Nobody:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def run(work: str, folder: Path) -> None:
    graph = read_pykeen_dataset("nations")
    with torch.device("cuda"):
        model = ConvE(ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=16))
    if work == "tracin":
        points = [TracinCheckpoint(model.eval(), 0.1)]
        scan(points, ONE_TO_N, graph.train, graph.test[:4], TopTriples(5))
        return
    if work == "another stream":
        true = TrainStep.__call__

        def step(own: TrainStep, batch: Batch, want_value: bool = True) -> Any:
            with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
                model.entities.detach() @ model.entities.detach().t()
            return true(own, batch, want_value)

        TrainStep.__call__ = step  # type: ignore[method-assign, assignment]
    settings = TrainSettings(num_epochs=2, batch_size=128, cuda_graphs=work == "replayed training")
    fit(model, graph, settings, folder, Nobody())


def watched(work: str, folder: Path, answers: Any) -> None:
    from torch.cuda._sanitizer import CUDASanitizerDispatchMode, CUDASanitizerErrors

    try:
        with CUDASanitizerDispatchMode():
            run(work, folder)
    except CUDASanitizerErrors as error:
        answers.put("\n".join(map(str, error.errors)))
    else:
        answers.put("")


def said(work: str, folder: Path) -> str:
    fresh = multiprocessing.get_context("spawn")
    answers = fresh.Queue()
    child = fresh.Process(target=watched, args=(work, folder, answers))
    child.start()
    child.join()
    assert child.exitcode == 0
    found: str = answers.get()
    return found


@pytest.mark.parametrize("work", ["training", "replayed training", "tracin"])
def test_no_stream_reads_what_another_may_still_write(work: str, tmp_path: Path) -> None:
    assert said(work, tmp_path) == ""
