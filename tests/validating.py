"""What the tests of validating influences share: a graph of nothing, its names, and a listener."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import Vocabulary


class Listener:
    """Hears everything; remembers how much is said to be done, and the notes."""

    def __init__(self) -> None:
        self.done: list[float] = []
        self.notes: list[str] = []
        self.other: list[str] = []

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        assert phase in ("train", "validate", "retrain")
        self.done.append(done / total)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def option(self, name: str, requested: Any, applied: Any, reason: str | None) -> None:
        self.other.append(name)

    def metric(self, name: str, value: float, step: int) -> None:
        self.other.append(name)

    def memory(self, **mib: float) -> None:
        self.other += mib

    def artifact(self, path: Path, kind: str) -> None:
        self.other.append(kind)


def some_graph(trains: int = 60, entities: int = 9, relations: int = 4) -> Graph:
    g = torch.Generator().manual_seed(3)
    everything = torch.cartesian_prod(*(torch.arange(n) for n in (entities, relations, entities)))
    chosen = everything[torch.randperm(len(everything), generator=g)[: trains + 4]]
    return Graph(chosen[:trains], chosen[:0], chosen[trains:], named("e", entities), named("r", relations))


def named(kind: str, count: int) -> Vocabulary:
    return Vocabulary.of([f"{kind}{i:02}" for i in range(count)])
