"""TracIn as the group's script does it, with each of its levers, beside kgops' products of factors.

    python -m kgops.bench.group_tracin --entities 5000 --triples 256 --round 1

Their loop is written here from its description: PyKEEN's ConvE in evaluation mode, the loss of the triple's own logit,
one backward pass a training triple. It goes over a sample of the training triples: what it costs is the same for each.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kgops.bench import rivals
from kgops.bench.entry import run
from kgops.bench.tracin_ways import model_of, pykeen_model
from kgops.bench.ways import Done, Untestable, measured, needs_a_card, take_turns
from kgops.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.graphs.triples import Graph, read_graph
from kgops.graphs.vocabulary import Vocabulary
from kgops.models.conve import ConvE
from kgops.tracin.agreement import compare
from kgops.tracin.blocks import Engine, Point, Settings
from kgops.tracin.layers import last_layers
from kgops.tracin.loss import TARGET
from kgops.training.batches import Batches, query_rows
from kgops.training.optimizers import build_optimizer
from kgops.training.precision import cpu_has_bf16
from kgops.training.settings import TrainSettings
from kgops.training.step import TrainStep

__all__ = ["main"]

CLEANUP_EVERY = 8  # batches; theirs have one triple, for each has a backward pass of its own
LAST_LAYERS = 2
AT_ONCE = 8  # triples whose gradients are vectorised together
Autocast = Callable[[], AbstractContextManager[object]]
Exact = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Setting:
    """One test triple beside a sample of the training triples, rows as PyKEEN numbers relations."""

    graph: Graph
    model: ConvE
    test: torch.Tensor
    trains: torch.Tensor

    def theirs(self) -> Any:
        return pykeen_model(self.graph, self.model)

    def ours(self, trains: torch.Tensor | None = None) -> torch.Tensor:
        engine = Engine(Point(self.model, 1.0), TARGET, Settings())
        parts = torch.split(self.trains if trains is None else trains, Settings().block)
        kept = engine.keep(self.test[None])
        return torch.cat([engine.scores(kept, part) for part in parts], dim=1)[0]


class Loop:
    """Their loop over training triples, with what is asked for."""

    def __init__(
        self, setting: Setting, names: Sequence[str] | None = None, autocast: Autocast = nullcontext
    ) -> None:
        self.model = setting.theirs()
        self.autocast = autocast
        self.parameters = [p for n, p in self.model.named_parameters() if names is None or n in names]
        self.rows = query_rows(setting.trains, True)
        self.test = query_rows(setting.test[None], True)[0]
        self.cached: tuple[torch.Tensor, ...] | None = None

    def gradient(self, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with rivals.matrix_product(), self.autocast():
            score = self.model.score_hrt(row[None])[0, 0]
        loss = F.softplus(-score.float())
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return tuple(
            torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, found, strict=True)
        )

    def scores(self, count: int, cleanup: bool = False) -> torch.Tensor:
        """Without a cache the test triple's gradient is computed again in each call."""
        other = self.cached or self.gradient(self.test)
        found = torch.empty(count)
        for j, row in enumerate(self.rows[:count]):
            own = self.gradient(row)
            found[j] = float(sum((a * b).sum() for a, b in zip(own, other, strict=True)))
            if cleanup and (j + 1) % CLEANUP_EVERY == 0:
                gc.collect()
                torch.cuda.empty_cache()
        return found

    def with_checkpointing(self) -> None:
        part = self.model.interaction.hr2d
        plain = part.forward
        part.forward = lambda x: checkpoint(plain, x, use_reentrant=False)

    def vectorised(self, count: int) -> torch.Tensor:
        """torch.func over PyKEEN's own model: gradients of some triples at once."""
        weights = {name: p.detach() for name, p in self.model.named_parameters()}
        buffers = dict(self.model.named_buffers())

        def loss(now: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
            h, r, t = row[None].unbind(1)
            score = functional_call(self.model, {**now, **buffers}, (h, r, t), {"mode": None})
            return F.softplus(-score.squeeze())

        one = grad(loss)
        other = one(weights, self.test)
        columns = []
        for part in torch.split(self.rows[:count], AT_ONCE):
            own = vmap(one, in_dims=(None, 0))(weights, part)
            columns.append(torch.stack([own[name].flatten(1) @ other[name].flatten() for name in own]).sum(0))
        return torch.cat(columns)


def ways(setting: Setting, exact_of: Exact, compiling: bool) -> dict[str, Callable[[], Done]]:
    """Each scores the same sample; how far its scores are from the exact ones is told beside its time."""
    many = len(setting.trains)

    exact = exact_of(setting.trains)

    def result(
        seconds: float,
        mib: float | None,
        scores: torch.Tensor,
        beside: torch.Tensor,
        remark: str | None = None,
    ) -> Done:
        found = compare(beside[None], scores[None])
        figures = {"score_error": found.largest_error, "rank_agreement": found.spearman}
        figures |= {f"top_{k}_shared": share for k, share in found.top.items() if k <= 50}
        return Done(seconds / many, mib, figures, remark)

    def theirs(
        prepare: Callable[[Loop], None] = lambda _: None,
        *,
        names: Sequence[str] | None = None,
        autocast: Autocast = nullcontext,
        cleanup: bool = False,
        at_most: int = many,
        remark: str | None = None,
    ) -> Done:
        loop = Loop(setting, names, autocast)
        count = min(many, at_most)

        def warm_up() -> None:
            prepare(loop)
            loop.scores(2)

        seconds, mib, scores = measured(lambda: loop.scores(count, cleanup), warm_up, sweeps=cleanup)
        return result(seconds * many / count, mib, scores, exact[:count], remark)

    def cached(loop: Loop) -> None:
        loop.cached = loop.gradient(loop.test)

    def vectorised(remark: str | None = None) -> Done:
        loop = Loop(setting)
        with rivals.matrix_product():
            found = measured(lambda: loop.vectorised(many), lambda: loop.vectorised(AT_ONCE))
            return result(*found, exact, remark)

    def compiled() -> Done:
        if not compiling:
            raise Untestable("--quick leaves it out: compiling takes longer than all of it")

        def prepare(loop: Loop) -> None:
            loop.model.interaction.hr2d = torch.compile(loop.model.interaction.hr2d)
            loop.model.interaction.hr1d = torch.compile(loop.model.interaction.hr1d)

        return theirs(
            prepare,
            remark="the two stacks of the model, on the CPU; compiling is not timed, its memory counts",
        )

    def filtered() -> Done:
        """Their loop over what kgops' own filter leaves of all training triples: by hops, and by paths of at most
        three edges. Of more than twice the sample only a part is run, and the rest reckoned."""
        train = setting.graph.train
        near = Neighbourhood(train, setting.graph.num_entities)
        how = NeighbourhoodFilter(n_hops=2, path_filtering=True, max_total_path_length=3)
        head, _, tail = map(int, setting.test)
        loop = Loop(setting)
        selecting, _, kept = measured(lambda: near.select(head, tail, how), lambda: loop.scores(2))
        loop.rows = query_rows(train[kept], True)
        run = min(len(kept), 2 * many)
        seconds, mib, _ = measured(lambda: loop.scores(run))
        whole = exact_of(train)
        left = torch.zeros_like(whole)
        left[kept] = whole[kept]
        told = result(0.0, mib, left, whole).figures
        remark = f"{len(kept):,} of {len(train):,} triples are left, by kgops' own filter"
        return Done((selecting + seconds * len(kept) / max(run, 1)) / len(train), mib, told, remark)

    def ours() -> Done:
        found = measured(lambda: setting.ours(), lambda: setting.ours(setting.trains[:8]))
        return result(*found, exact)

    last = sorted(last_layers(setting.theirs(), LAST_LAYERS))
    emulated = None if cpu_has_bf16() else "this processor has no bf16 instructions: they are emulated"
    return {
        "baseline": theirs,
        "baseline again": theirs,
        "+ cleanup": lambda: theirs(
            cleanup=True,
            at_most=max(many // 4, CLEANUP_EVERY),  # each is thirty times as slow
            remark="gc.collect() alone: there is no CUDA cache to empty here",
        ),
        "+ fp16": lambda: needs_a_card("their mixed precision is CUDA's"),
        "+ bf16": lambda: theirs(autocast=lambda: torch.autocast("cpu", torch.bfloat16), remark=emulated),
        "+ checkpointing": lambda: theirs(Loop.with_checkpointing),
        "+ last layers": lambda: theirs(names=last, remark=f"the last {LAST_LAYERS} layers"),
        "+ test caching": lambda: theirs(cached),
        "+ vmap": vectorised,
        "+ compile": compiled,
        "+ filtering": filtered,
        "all that is exact": lambda: vectorised("vectorised, the test's gradient once; fp16 needs a card"),
        "kgops": ours,
    }


def near_by(entities: int, relations: int = 20) -> Graph:
    """Random triples of which nine in ten join entities that are near each other, so that there are neighbourhoods."""
    draw = torch.Generator().manual_seed(0)
    many = 5 * entities
    heads = torch.randint(entities, (many,), generator=draw)
    steps = 1 + (torch.rand(many, generator=draw) ** 3 * 20).long()
    far = torch.rand(many, generator=draw) < 0.1
    steps[far] = torch.randint(1, entities, (int(far.sum()),), generator=draw)
    kinds = torch.randint(relations, (many,), generator=draw)
    triples = torch.stack([heads, kinds, (heads + steps) % entities], dim=1)
    names = [Vocabulary.of(map(str, range(n))) for n in (entities, relations)]
    return Graph(triples, triples[:0], triples[:0], names[0], names[1])


def trained(graph: Graph, dim: int, steps: int) -> ConvE:
    """A little: what is found for random weights says nothing of what is found for trained ones."""
    model = model_of(graph, dim).train()
    settings = TrainSettings(batch_size=256)
    loss = settings.build_loss(torch.float32, settings.chunk_for(torch.device("cpu")))
    step = TrainStep(model, loss, build_optimizer("adam", model, 1e-3))
    batches = Batches(graph.train, inverse=True, one_positive=False, batch_size=256, seed=0)
    source = rivals.forever(batches.epoch)
    for _ in range(steps):
        step(next(source), want_value=False)
    for parameter in model.parameters():
        parameter.grad = None
    return model.eval()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.bench.group_tracin", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with train.txt; otherwise a made graph")
    parser.add_argument(
        "--entities", type=int, default=6400, help="of the made graph, with five triples each"
    )
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--triples", type=int, default=256, help="of the training set, scored by every way")
    parser.add_argument("--training", type=int, default=60, help="steps the model is trained before")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes a minute")
    parser.add_argument("--turns", type=int, default=2, help="how often each way is taken")
    parser.add_argument("--round", type=int, default=0, help="which way begins")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # a child of a process that had threads would wait for them for ever
    graph = read_graph(args.data / "train.txt") if args.data else near_by(args.entities)
    model = trained(graph, args.dim, args.training)
    draw = torch.Generator().manual_seed(0)
    rows = graph.train[torch.randperm(len(graph.train), generator=draw)[: args.triples + 1]]
    setting = Setting(graph, model, rows[0], rows[1:])
    # In double precision the factored scores are the judge: they agree with one backward pass each to 1e-14.
    judge = Setting(graph, in_double(model), rows[0], rows[1:])
    Loop(setting)  # PyKEEN loads the most of itself here: once, before any way begins
    take_turns(ways(setting, judge.ours, args.compile), args.round, turns=args.turns)
    return 0


def in_double(model: ConvE) -> ConvE:
    copy = ConvE(model.config)
    copy.load_state_dict(model.state_dict())
    return copy.double().eval()


if __name__ == "__main__":
    run(main)
