"""Trainings that processes share, for `test_train_spread.py`, and `python training_together.py WHICH OF FOLDER`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from kgops.errors import KgopsError
from kgops.graphs.triples import Graph, read_graph
from kgops.models.conve import ConvE, ConvEConfig
from kgops.training.data_parallel import DistributedGroup, SingleProcess
from kgops.training.loop import FitResult, fit
from kgops.training.settings import TrainSettings

SMALL = {"embedding_dim": 16, "output_channels": 4}
STOPS_AT = 7  # batches


@dataclass(frozen=True)
class Way:
    """A training, and how near the numbers of several processes come to those of one."""

    within: float
    dtype: torch.dtype = torch.float32
    model: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    triples: int = 700  # of the graph's


WAYS = {
    "float64": Way(1e-10, torch.float64, settings={"optimizer": "sgd", "learning_rate": 0.5}),
    "float64, dropout of relations, maps made again": Way(
        1e-10,
        torch.float64,
        {"relation_dropout": 0.3},
        {"optimizer": "sgd", "gradient_checkpointing": True, "loss": "1vsall-ce", "batch_size": 301},
    ),
    "float32 and Adam": Way(1e-5),
    "without batch norm": Way(1e-5, model={"batch_norm": False}, settings={"loss": "kvsall-ce"}),
    "grouped queries": Way(
        1e-10, torch.float64, settings={"loss": "1vsall-ce", "group_queries": True, "optimizer": "sgd"}
    ),
    "fewer rows than processes": Way(
        1e-10,
        torch.float64,
        {"batch_norm": False},
        {"batch_size": 1, "num_epochs": 1, "optimizer": "sgd"},
        20,
    ),
    "fp16 products": Way(1e-3, settings={"precision": "fp16", "num_epochs": 1}),
}


class Recorder:
    def __init__(self) -> None:
        self.mib: dict[str, float] = {}
        self.artifacts: list[str] = []

    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None: ...

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None: ...

    def metric(self, name: str, value: float, step: int) -> None: ...

    def memory(self, **mib: float) -> None:
        self.mib |= mib

    def artifact(self, path: Path, kind: str) -> None:
        self.artifacts.append(path.name)

    def note(self, text: str) -> None: ...


class StopAt:
    """Asks to stop once that many batches are done."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def __call__(self) -> bool:
        self.left -= 1
        return self.left <= 0


def write_graph(folder: Path) -> None:
    draw = torch.Generator().manual_seed(1)
    for name, many in (("train", 700), ("valid", 31)):
        rows = [torch.randint(0, most, (many,), generator=draw).tolist() for most in (60, 5, 60)]
        lines = {f"e{h}\tr{r}\te{t}\n" for h, r, t in zip(*rows, strict=True)}
        (folder / f"{name}.txt").write_text("".join(sorted(lines)))


def graph_in(folder: Path) -> Graph:
    return read_graph(folder / "train.txt", folder / "valid.txt", None)


def train(
    way: Way,
    graph: Graph,
    folder: Path,
    group: SingleProcess,
    *,
    stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
    shift: float = 0.0,
) -> tuple[FitResult, dict[str, torch.Tensor], Recorder]:
    """The result, the weights and what was told; `shift` is added to one weight beforehand."""
    folder.mkdir(exist_ok=True)
    graph = replace(graph, train=graph.train[: way.triples])
    torch.manual_seed(9)
    config = ConvEConfig(graph.num_entities, graph.num_relations, **{**SMALL, **way.model})
    model = ConvE(config).to(way.dtype)
    model.entities.data[0, 0] += shift
    plain = {"num_epochs": 3, "batch_size": 128, "validate_every": 1, "seed": 5, "loss_every": 2}
    settings = TrainSettings(**{**plain, "label_smoothing": 0.1, **way.settings})
    told = Recorder()
    done = fit(model, graph, settings, folder, told, stop, resume=resume, group=group)
    return done, dict(model.state_dict()), told


def main(which: int, of: int, folder: Path) -> None:
    """Everything that several processes are needed for, one thing after the other."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    group = DistributedGroup(which, of, (folder / "meeting").as_uri(), torch.device("cpu"))
    graph = graph_in(folder)
    found: dict[str, Any] = {}
    for number, (name, way) in enumerate(WAYS.items()):
        done, weights, told = train(way, graph, folder / f"way-{number}", group)
        found[name] = done.history, weights, told.mib, told.artifacts
    way = WAYS["float32 and Adam"]
    # The last alone wishes to stop, and all of them do.
    stop = StopAt(STOPS_AT) if which == of - 1 else lambda: False
    found["stopped"] = train(way, graph, folder / "stopped", group, stop=stop)[0].stopped
    found["taken up"] = train(way, graph, folder / "stopped-alone", group, resume=True)[0].history
    try:
        train(way, graph, folder / "different", group, shift=which * 1e-7)
    except KgopsError as error:
        found["different"] = error.message
    torch.save(found, folder / f"found-{which}.pt")
    group.leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
