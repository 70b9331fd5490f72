"""TracIn as the group's script does it, with each of its options, beside kgops' products of factors.

    python -m kgops.trials.tracin --entities 5000 --triples 256 --round 1

Their loop is written here from its description: PyKEEN's ConvE in evaluation mode, the loss of the triple's own logit,
one backward pass a training triple. It goes over a sample of the training triples: what it costs is the same for each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kgops.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.graphs.triples import Graph, read_graph
from kgops.graphs.vocabulary import Vocabulary
from kgops.models.conve import ConvE
from kgops.tracin.agreement import compare
from kgops.tracin.blocks import Engine, Settings, TracinCheckpoint
from kgops.tracin.layers import last_layers
from kgops.tracin.loss import TARGET
from kgops.training.batches import Batches, query_rows
from kgops.training.optimizers import build_optimizer
from kgops.training.precision import cpu_has_bf16
from kgops.training.settings import TrainSettings
from kgops.training.step import TrainStep
from kgops.trials import peers
from kgops.trials.entry import run
from kgops.trials.interleaved import take_turns
from kgops.trials.tracin_variants import model_of, pykeen_model
from kgops.trials.variants import Done, Turn, Untestable, Way, needs_a_gpu

__all__ = ["main"]

LAST_LAYERS = 2
OURS_AGAIN = 4
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
        engine = Engine(TracinCheckpoint(self.model, 1.0), TARGET, Settings())
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
        self.cached: tuple[torch.Tensor, ...] | None = None  # the test triple's gradient

    def gradient(self, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with peers.matrix_product(), self.autocast():
            score = self.model.score_hrt(row[None])[0, 0]
        loss = F.softplus(-score.float())
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return tuple(
            torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, found, strict=True)
        )

    def scores(self, rows: torch.Tensor) -> torch.Tensor:
        if self.cached is None:
            self.cached = self.gradient(self.test)
        found = torch.empty(len(rows))
        for j, row in enumerate(rows):
            own = self.gradient(row)
            found[j] = float(sum((a * b).sum() for a, b in zip(own, self.cached, strict=True)))
        return found

    def with_checkpointing(self) -> None:
        part = self.model.interaction.hr2d
        plain = part.forward
        part.forward = lambda x: checkpoint(plain, x, use_reentrant=False)

    def vectorised(self, rows: torch.Tensor) -> torch.Tensor:
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
        for part in torch.split(rows, AT_ONCE):
            own = vmap(one, in_dims=(None, 0))(weights, part)
            columns.append(torch.stack([own[name].flatten(1) @ other[name].flatten() for name in own]).sum(0))
        return torch.cat(columns)


def ways(setting: Setting, exact_of: Exact, compiling: bool) -> dict[str, Way]:
    """Each scores the same sample; how far its scores are from the exact ones is told beside its time."""
    many = len(setting.trains)
    exact = exact_of(setting.trains)
    everything = exact_of(
        setting.graph.train
    )  # what a filter leaves out of; once, for it takes as long as a turn

    def compared(scores: torch.Tensor, beside: torch.Tensor) -> dict[str, float]:
        found = compare(beside[None], scores[None])
        metrics = {"score_error": found.largest_error, "rank_agreement": found.spearman}
        return metrics | {f"top_{k}_shared": share for k, share in found.top.items() if k <= 50}

    def over(
        turn: Turn,
        rows: torch.Tensor,
        work: Callable[[torch.Tensor], torch.Tensor],
        warm_up: Callable[[], object],
    ) -> tuple[list[float], float | None, torch.Tensor]:
        """Seconds a triple in each part, the peak, and the scores of all rows: each part has its share of them."""
        shares = torch.tensor_split(rows, turn.parts)
        taken = turn.take(lambda part: work(shares[part]), warm_up)
        each = [seconds / len(share) for seconds, share in zip(taken.seconds, shares, strict=True)]
        return each, taken.resident_mib, torch.cat(taken.results)

    def theirs(
        turn: Turn,
        prepare: Callable[[Loop], None] = lambda _: None,
        *,
        names: Sequence[str] | None = None,
        autocast: Autocast = nullcontext,
        caching: bool = False,
        remark: str | None = None,
    ) -> Done:
        loop = Loop(setting, names, autocast)

        def warm_up() -> None:
            prepare(loop)
            loop.scores(loop.rows[:2])
            if not caching:
                loop.cached = None  # computed in the first part

        each, resident, scores = over(turn, loop.rows, loop.scores, warm_up)
        return Done(each, resident, compared(scores, exact), remark)

    def vectorised(turn: Turn, remark: str | None = None) -> Done:
        loop = Loop(setting)
        with peers.matrix_product():
            each, resident, scores = over(
                turn, loop.rows, loop.vectorised, lambda: loop.vectorised(loop.rows[:AT_ONCE])
            )
        return Done(each, resident, compared(scores, exact), remark)

    def compiled(turn: Turn) -> Done:
        if not compiling:
            raise Untestable("--quick leaves it out: compiling takes longer than all of it")

        def prepare(loop: Loop) -> None:
            loop.model.interaction.hr2d = torch.compile(loop.model.interaction.hr2d)
            loop.model.interaction.hr1d = torch.compile(loop.model.interaction.hr1d)

        return theirs(
            turn,
            prepare,
            remark="the two stacks of the model, on the CPU; compiling is neither timed nor weighed",
        )

    def filtered(turn: Turn) -> Done:
        """Their loop over what kgops' own filter leaves of all training triples: by hops, and by paths of at most
        three edges. Of more than twice the sample only a part is run, and the rest reckoned."""
        train = setting.graph.train
        near = Neighbourhood(train, setting.graph.num_entities)
        how = NeighbourhoodFilter(n_hops=2, path_filtering=True, max_total_path_length=3)
        head, _, tail = map(int, setting.test)
        loop = Loop(setting)
        begun = time.process_time()
        kept = near.select(head, tail, how)
        selecting = time.process_time() - begun
        rows = query_rows(train[kept[: 2 * many]], True)
        if len(rows) < turn.parts:
            raise Untestable(
                f"the filter leaves {len(rows)} triples, of which no {turn.parts} parts can be made"
            )
        each, resident, _ = over(turn, rows, loop.scores, lambda: loop.scores(loop.rows[:2]))
        left = torch.zeros_like(everything)
        left[kept] = everything[kept]
        remark = f"{len(kept):,} of {len(train):,} triples are left, by kgops' own filter"
        seconds = [(selecting + one * len(kept)) / len(train) for one in each]
        metrics = {**compared(left, everything), "reduction": len(train) / len(kept)}
        return Done(seconds, resident, metrics, remark)

    def ours(turn: Turn) -> Done:
        """All of the sample in each part, several times: a share of it would be too short to time, and smaller blocks
        are slower."""

        def work(_: int) -> torch.Tensor:
            for _ in range(OURS_AGAIN):
                scores = setting.ours()
            return scores

        taken = turn.take(work, lambda: setting.ours(setting.trains[:8]))
        return Done(taken.each(OURS_AGAIN * many), taken.resident_mib, compared(taken.results[-1], exact))

    last = sorted(last_layers(setting.theirs(), LAST_LAYERS))
    emulated = None if cpu_has_bf16() else "this CPU has no bf16 instructions: they are emulated"
    return {
        "baseline": theirs,
        "baseline again": theirs,
        "+ fp16": lambda _: needs_a_gpu("their mixed precision is CUDA's"),
        "+ bf16": lambda turn: theirs(
            turn, autocast=lambda: torch.autocast("cpu", torch.bfloat16), remark=emulated
        ),
        "+ checkpointing": lambda turn: theirs(turn, Loop.with_checkpointing),
        "+ last layers": lambda turn: theirs(turn, names=last, remark=f"the last {LAST_LAYERS} layers"),
        "+ test caching": lambda turn: theirs(turn, caching=True),
        "+ vmap": vectorised,
        "+ compile": compiled,
        "+ filtering": filtered,
        "all that is exact": lambda turn: vectorised(
            turn, "vectorised, the test's gradient once; fp16 needs a GPU"
        ),
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
    source = peers.forever(batches.epoch)
    for _ in range(steps):
        step(next(source), want_value=False)
    for parameter in model.parameters():
        parameter.grad = None
    return model.eval()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.trials.tracin", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with train.txt; otherwise a made graph")
    parser.add_argument(
        "--entities", type=int, default=6400, help="of the made graph, with five triples each"
    )
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--triples", type=int, default=256, help="of the training set, scored by every way")
    parser.add_argument("--training", type=int, default=60, help="steps the model is trained before")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes a minute")
    parser.add_argument("--turns", type=int, default=2, help="how often each way is taken")
    parser.add_argument("--parts", type=int, default=4, help="of a turn; ways take turns at parts")
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
    take_turns(ways(setting, judge.ours, args.compile), args.round, turns=args.turns, parts=args.parts)
    return 0


def in_double(model: ConvE) -> ConvE:
    copy = ConvE(model.config)
    copy.load_state_dict(model.state_dict())
    return copy.double().eval()


if __name__ == "__main__":
    run(main)
