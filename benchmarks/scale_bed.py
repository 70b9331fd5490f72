"""Test bed for measuring the costs of a sharded TracIn run: graph, model, CPU cores and time waited for a core."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.simulation import Cut
from benchmarks.spread import untrained
from kgops.graphs.triples import Graph
from kgops.jobs.job import Job, read_job
from kgops.tracin.attribution import Scoring
from kgops.tracin.checkpoint_set import load_checkpoint
from kgops.tracin.engines import engines_for
from kgops.tracin.loss import ONE_TO_N, TARGET
from kgops.tracin.scan import Scanner, Settings, tests_that_fit
from kgops.tracin.shards import Shards, Tile
from kgops.tracin.test_triples import TestTriple, from_graph
from kgops.workers.tracin_fork import publish_shared_input
from kgops.workers.tracin_work import load_graph

__all__ = ["Bed", "Quiet", "draw_graph", "on_cores", "waited"]


class Quiet:
    """A reporter that discards everything."""

    def progress(self, *values: object) -> None: ...
    def option(self, *values: object, **more: object) -> None: ...
    def metric(self, *values: object) -> None: ...
    def memory(self, **values: float) -> None: ...
    def artifact(self, *values: object) -> None: ...
    def note(self, *values: object) -> None: ...


@dataclass(frozen=True)
class Bed:
    """A graph, an untrained model and test triples for the cost measurements."""

    folder: Path
    job: Job
    graph: Graph
    tests: list[TestTriple]
    scoring: Scoring
    top_k: int

    @classmethod
    def made(cls, folder: Path, data: Path, tests: int, top_k: int, dim: int, loss: str) -> Bed:
        """`data` has train.txt and test.txt."""
        untrained(folder / "model.pt", data, dim)
        settings = {
            "model_path": str(folder / "model.pt"),
            "train": str(data / "train.txt"),
            "test": str(data / "test.txt"),
            "max_triples": tests,
            "top_k": top_k,
            "loss": loss,
            "learning_rate": 0.001,
            "device": "cpu",
        }
        job = read_job({"workload": "tracin", "tracin": settings}, "a benchmark")
        graph = load_graph(job.settings)
        point = load_checkpoint(
            folder / "model.pt", graph, device=torch.device("cpu"), learning_rate=0.001, trust_pickle=False
        ).checkpoint
        scoring = Scoring([point], {"target": TARGET, "one-to-n": ONE_TO_N}[loss], Settings())
        return cls(folder, job, graph, from_graph(graph, graph.test)[:tests], scoring, top_k)

    @property
    def step(self) -> int:
        """Tests whose factors are kept at once."""
        settings = self.scoring.settings
        return tests_that_fit(engines_for(self.scoring.checkpoints, self.scoring.loss, settings), settings, 4)

    def chunks(self, tile: int) -> list[list[TestTriple]]:
        return [self.tests[first : first + tile] for first in range(0, len(self.tests), tile)]

    def shards(self, name: str, cut: Cut) -> Shards:
        """Shards as a run plans them, but with this cut."""
        tiles = [Tile.of(place, chunk) for place, chunk in enumerate(self.chunks(cut.tile))]
        shards = Shards.plan(self.folder / name, tiles, cut.shares, self.top_k)
        publish_shared_input(shards.folder, self.job, self.graph)
        return shards

    def ids(self, tests: int) -> torch.Tensor:
        return torch.tensor([test.ids for test in self.tests[:tests]])

    def scanner(self) -> Scanner:
        return Scanner(
            self.scoring.checkpoints, self.scoring.loss, self.graph.train, settings=self.scoring.settings
        )


def draw_graph(folder: Path, entities: int, relations: int, trains: int, tests: int, seed: int = 0) -> Path:
    """Writes train.txt and test.txt with random triples."""
    draw = random.Random(seed)
    for name, many in (("train", trains), ("test", tests)):
        rows: dict[tuple[int, int, int], None] = {}
        while len(rows) < many:
            rows[draw.randrange(entities), draw.randrange(relations), draw.randrange(entities)] = None
        (folder / f"{name}.txt").write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in rows))
    return folder


@contextlib.contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Pins this process and its children to cores, with one thread here."""
    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(threads)


def waited(pid: int) -> float:
    """Seconds that the process's first thread waited for a core; 0 if the kernel does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
