"""What the tests of validating influences share: a graph of nothing, its names, and a listener."""

import torch
from recording import Recorder

from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import Vocabulary


class Listener(Recorder):
    """Hears everything, of the phases that there are."""

    def progress(self, phase: str, done: float, total: float, unit: str, rate: float | None) -> None:
        assert phase in ("train", "validate", "retrain")
        super().progress(phase, done, total, unit, rate)


def some_graph(trains: int = 60, entities: int = 9, relations: int = 4) -> Graph:
    g = torch.Generator().manual_seed(3)
    everything = torch.cartesian_prod(*(torch.arange(n) for n in (entities, relations, entities)))
    chosen = everything[torch.randperm(len(everything), generator=g)[: trains + 4]]
    return Graph(chosen[:trains], chosen[:0], chosen[trains:], named("e", entities), named("r", relations))


def named(kind: str, count: int) -> Vocabulary:
    return Vocabulary.of([f"{kind}{i:02}" for i in range(count)])
