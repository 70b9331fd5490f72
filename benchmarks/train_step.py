"""One ConvE training step of kgops, of PyKEEN and of bare arithmetic, in one process: JSON for `benchmarks.train`.

Step times vary with machine and load, so the result is a ratio: contenders alternate, and each round gives one ratio to
kgops' step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # ships no types
import torch
from torch.nn import functional as F

from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.models.conve import ConvE
from kgops.maths.models.products import add_product, mm_into
from kgops.maths.train.batches import Batch, Batches
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.step import TrainStep
from kgops.maths.trials import train_step as trials
from kgops.maths.trials.variants import MIB, peak_live_bytes, run
from kgops.workloads.train.models import ConvEConfig


class PykeenStep:
    """A step of PyKEEN's LCWA training loop on batches of its data loader; loading is not timed."""

    def __init__(
        self, graph: Graph, config: ConvEConfig, batch_size: int, *, patched: bool, device: str = "cpu"
    ) -> None:
        from pykeen.training import LCWATrainingLoop

        self.patched, self.batch_size = patched, batch_size
        triples = trials.factory(graph)
        self.model = trials.pykeen_model(graph, ConvE(config)).to(device).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.loop: Any = LCWATrainingLoop(model=self.model, triples_factory=triples, optimizer=self.optimizer)
        loader = self.loop._create_training_data_loader(
            triples, sampler=None, batch_size=batch_size, shuffle=True, drop_last=True
        )
        batches = iter(loader)
        self._batches = [next(batches) for _ in range(3)]
        self._taken = 0

    def take(self) -> None:
        batch = self._batches[self._taken % len(self._batches)]
        self._taken += 1
        with trials.matrix_product() if self.patched else nullcontext():
            self.optimizer.zero_grad()
            self.loop._forward_pass(batch, 0, self.batch_size, self.batch_size, 0.0, None)
            self.optimizer.step()
            self.model.post_parameter_update()

    def afresh_twice(self) -> None:
        """Two steps that begin without gradients and moments allocated."""
        self.optimizer.zero_grad(set_to_none=True)
        self.optimizer.state.clear()
        self.take()
        self.take()


class Floor:
    """The operations every implementation needs: nine large products, convolution forward and backward,
    fused Adam. No loss, norms or dropout; all results go into preallocated memory.
    """

    def __init__(self, config: ConvEConfig, batch_size: int, chunk: int = 1024) -> None:
        self.config, self.chunk = config, chunk
        c, dim, features = config, config.embedding_dim, config.features
        self.entities = torch.nn.Parameter(0.1 * torch.randn(c.num_entities, dim))
        self.weight = torch.nn.Parameter(0.01 * torch.randn(dim, features))
        for parameter in (self.entities, self.weight):
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer = torch.optim.Adam([self.entities, self.weight], fused=True)
        self.queries = torch.randn(batch_size, dim)
        self.projected = torch.empty(batch_size, dim)
        self.d_queries = torch.zeros(batch_size, dim)
        self.scores = torch.empty(chunk, batch_size)
        self.image = torch.randn(batch_size, c.channels, 2 * c.height, c.width)
        self.kernel = torch.randn(c.output_channels, c.channels, c.kernel_height, c.kernel_width)
        self.maps = torch.randn(batch_size, features)
        self.d_maps = torch.randn(batch_size, features)

    @torch.no_grad()
    def __call__(self) -> None:
        c = self.config
        F.conv2d(self.image, self.kernel)
        mm_into(self.projected, self.maps, self.weight.t())
        assert self.entities.grad is not None and self.weight.grad is not None
        for start in range(0, c.num_entities, self.chunk):
            block = self.entities[start : start + self.chunk]
            scores = self.scores[: len(block)]
            mm_into(scores, block, self.queries.t())
            mm_into(self.entities.grad[start : start + self.chunk], scores, self.queries)
            add_product(self.d_queries, scores.t(), block)
        self.d_queries.zero_()
        mm_into(self.weight.grad, self.queries.t(), self.maps)
        mm_into(self.d_maps, self.queries, self.weight)
        shape = (-1, c.output_channels, c.map_height, c.map_width)
        torch.ops.aten.convolution_backward(
            self.d_maps.view(shape),
            self.image,
            self.kernel,
            None,
            [1, 1],
            [0, 0],
            [1, 1],
            False,
            [0, 0],
            1,
            [True, True, False],
        )
        self.optimizer.step()


@dataclass
class Contender:
    """A training step to compare; `samples` is its batch size, which may be smaller than kgops'."""

    name: str
    step: Callable[[], object]
    samples: int
    peak_mib: float | None = None


@dataclass(frozen=True)
class Row:
    """`ratios` are times per sample over kgops' time, one for each round."""

    name: str
    samples: int
    best_ms: float
    peak_mib: float | None
    ratios: tuple[float, ...]


def measure(contenders: list[Contender], rounds: int) -> list[Row]:
    """Each round runs one step of every contender, starting with another one; kgops' step is the first contender."""
    for contender in contenders:
        contender.step()
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    for number in range(rounds):
        shift = number % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            started = time.perf_counter()
            contender.step()
            times[contender.name].append(time.perf_counter() - started)
    ours = contenders[0]
    rows = []
    for c in contenders:
        pairs = zip(times[c.name], times[ours.name], strict=True)
        ratios = tuple((a / c.samples) / (b / ours.samples) for a, b in pairs)
        rows.append(Row(c.name, c.samples, 1e3 * min(times[c.name]), c.peak_mib, ratios))
    return rows


def our_step(
    graph: Graph, config: ConvEConfig, batch_size: int, precision: torch.dtype, name: str
) -> Contender:
    """kgops' step as in `fit`: the loss value is computed in one of sixteen steps."""
    settings = TrainSettings(batch_size=batch_size)
    batches = Batches(graph.train, inverse=True, one_positive=False, batch_size=batch_size, seed=0)
    torch.manual_seed(0)
    model = ConvE(config).train()

    def build() -> tuple[TrainStep, Iterator[Batch]]:
        for parameter in model.parameters():
            parameter.grad = None
        loss = settings.build_loss(precision, settings.chunk_for(torch.device("cpu")))
        return TrainStep(model, loss, build_optimizer("adam", model, 1e-3)), trials.forever(batches.epoch)

    def twice() -> None:
        step, source = build()
        step(next(source))
        step(next(source), want_value=False)

    peak_mib = (peak_live_bytes(twice) - trials.state_bytes(model)) / MIB
    step, source = build()
    numbers = itertools.count()

    def take() -> None:
        step(next(source), want_value=next(numbers) % settings.loss_every == 0)

    return Contender(name, take, batch_size, peak_mib)


def pykeen_step(
    graph: Graph, config: ConvEConfig, batch_size: int, patched: bool, with_peak: bool
) -> Contender:
    rival = PykeenStep(graph, config, batch_size, patched=patched)
    contender = Contender("patched" if patched else "shipped", rival.take, batch_size)
    if with_peak:
        contender.peak_mib = (peak_live_bytes(rival.afresh_twice) - trials.state_bytes(rival.model)) / MIB
    return contender


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train_step", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", type=Path, help="folder with train.txt")
    what.add_argument("--entities", type=int, help="entities of a synthetic graph")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--quick", action="store_true", help="three rounds, PyKEEN as shipped at batch 16")
    parser.add_argument("--ours-only", action="store_true", help="without PyKEEN and the floor")
    parser.add_argument("--without-shipped", action="store_true", help="without PyKEEN as shipped")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    graph = read_graph(args.data / "train.txt") if args.data else trials.synthetic(args.entities)
    config = ConvEConfig(graph.num_entities, graph.num_relations)
    batch, rounds = args.batch_size, 3 if args.quick else 9
    contenders = [our_step(graph, config, batch, torch.float32, "kgops")]
    contenders.append(our_step(graph, config, batch, torch.bfloat16, "bf16"))
    if not args.ours_only:
        contenders.append(Contender("floor", Floor(config, batch), batch))
        contenders.append(pykeen_step(graph, config, batch, patched=True, with_peak=True))
    rows = measure(contenders, rounds)
    if not args.ours_only and not args.without_shipped:
        # PyKEEN as shipped allocates batch x entities x dim floats three times.
        a_sample = 3 * 4 * config.num_entities * config.embedding_dim
        fits = int(0.5 * psutil.virtual_memory().available / a_sample)
        small = max(2, min(batch, fits, 16 if args.quick else batch))
        shipped = pykeen_step(graph, config, small, patched=False, with_peak=small == batch)
        rows += measure([contenders[0], shipped], 3)[1:]
    print(json.dumps([asdict(row) for row in rows]))
    return 0


if __name__ == "__main__":
    run(main)
