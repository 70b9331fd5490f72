"""Benchmark of TracIn: the group's script with each of its options, and kgops' products of factors.

    python -m kgops.maths.trials.tracin --entities 5000 --triples 256 --round 1

The group's loop is rewritten from its description: PyKEEN's ConvE in evaluation mode, the loss of the triple's logit,
one backward pass per training triple. It covers a sample of the training triples: each costs the same.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from kgops.maths.graphs.neighbourhoods import Neighbourhood, NeighbourhoodFilter
from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.models.conve import ConvE
from kgops.maths.tracin.agreement import compare
from kgops.maths.tracin.blocks import Engine, Settings, TracinCheckpoint
from kgops.maths.tracin.loss import TARGET
from kgops.maths.tracin.models import last_layers
from kgops.maths.train.batches import Batches, query_rows
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import TrainSettings, cpu_has_bf16
from kgops.maths.train.step import TrainStep
from kgops.maths.trials import train_step
from kgops.maths.trials.interleaved import read_arguments, run_trials
from kgops.maths.trials.train_step import pykeen_model
from kgops.maths.trials.variants import (
    Trial,
    TrialResult,
    Untestable,
    Variant,
    device,
    leave_out_compile,
    needs_a_gpu,
    run,
)
from kgops.workloads.train.models import ConvEConfig

LAST_LAYERS = 2
KGOPS_PASSES = 4
VMAP_SIZE = 8  # triples whose gradients are vectorised together
Autocast = Callable[[], AbstractContextManager[object]]
Exact = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Setting:
    """One test triple and a sample of the training triples, in PyKEEN's relation numbering."""

    graph: Graph
    model: ConvE
    test: torch.Tensor
    trains: torch.Tensor

    def pykeen_model(self) -> Any:
        return pykeen_model(self.graph, self.model)

    def on_device(self) -> Setting:
        """Model and triples on the GPU if there is one; the graph stays on the CPU."""
        to = device()
        model = copy.deepcopy(self.model).to(to)
        return replace(self, model=model, test=self.test.to(to), trains=self.trains.to(to))

    def kgops_scores(self, trains: torch.Tensor | None = None) -> torch.Tensor:
        engine = Engine(TracinCheckpoint(self.model, 1.0), TARGET, Settings())
        blocks = torch.split(self.trains if trains is None else trains, Settings().block)
        kept = engine.keep(self.test[None])
        return torch.cat([engine.scores(kept, block) for block in blocks], dim=1)[0]


class Loop(train_step.Wrapped):
    """The group's loop over training triples, with options."""

    def __init__(
        self, setting: Setting, names: Sequence[str] | None = None, autocast: Autocast = nullcontext
    ) -> None:
        self.model = setting.pykeen_model().to(device())
        self.autocast = autocast
        self.parameters = [p for n, p in self.model.named_parameters() if names is None or n in names]
        self.rows = query_rows(setting.trains, True).to(device())
        self.test = query_rows(setting.test[None], True)[0].to(device())
        self.cached: tuple[torch.Tensor, ...] | None = None  # the test triple's gradient

    def gradient(self, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with train_step.matrix_product(), self.autocast():
            score = self.model.score_hrt(row[None])[0, 0]
        loss = F.softplus(-score.float())
        grads = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return tuple(
            torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, grads, strict=True)
        )

    def scores(self, rows: torch.Tensor) -> torch.Tensor:
        if self.cached is None:
            self.cached = self.gradient(self.test)
        scores = torch.empty(len(rows))
        for j, row in enumerate(rows):
            own = self.gradient(row)
            scores[j] = float(sum((a * b).sum() for a, b in zip(own, self.cached, strict=True)))
            self.clean_up(j + 1)
        return scores

    def vectorised(self, rows: torch.Tensor) -> torch.Tensor:
        """Gradients of VMAP_SIZE triples at once, by torch.func over PyKEEN's model."""
        weights = {name: p.detach() for name, p in self.model.named_parameters()}
        buffers = dict(self.model.named_buffers())

        def loss(now: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
            h, r, t = row[None].unbind(1)
            score = functional_call(self.model, {**now, **buffers}, (h, r, t), {"mode": None})
            return F.softplus(-score.squeeze())

        one = grad(loss)
        other = one(weights, self.test)
        columns = []
        for block in torch.split(rows, VMAP_SIZE):
            own = vmap(one, in_dims=(None, 0))(weights, block)
            columns.append(torch.stack([own[name].flatten(1) @ other[name].flatten() for name in own]).sum(0))
        return torch.cat(columns)


def variants(setting: Setting, exact_of: Exact, compiling: bool) -> dict[str, Variant]:
    """Variants that all score the same sample; each reports its time and the error of its scores."""
    num_triples = len(setting.trains)
    exact = exact_of(setting.trains)
    # Scores before filtering; computed once, since it takes as long as a trial.
    everything = exact_of(setting.graph.train)
    half = partial(torch.autocast, "cuda", torch.float16)

    def compared(scores: torch.Tensor, beside: torch.Tensor) -> dict[str, float]:
        agreement = compare(beside[None], scores[None])
        metrics = {"score_error": agreement.largest_error, "rank_agreement": agreement.spearman}
        return metrics | {f"top_{k}_shared": share for k, share in agreement.top.items() if k <= 50}

    def over(
        trial: Trial,
        rows: torch.Tensor,
        work: Callable[[torch.Tensor], torch.Tensor],
        warm_up: Callable[[], object],
    ) -> tuple[list[float], float | None, torch.Tensor]:
        """Seconds per triple in each repetition, the peak, and the scores of all rows, which repetitions share out."""
        splits = torch.tensor_split(rows, trial.repetitions)
        measured = trial.measure(lambda repetition: work(splits[repetition]), warm_up)
        each = [seconds / len(share) for seconds, share in zip(measured.seconds, splits, strict=True)]
        return each, measured.resident_mib, torch.cat(measured.results).cpu()

    def pykeen_trial(
        trial: Trial,
        *prepare: Callable[[Loop], None],
        names: Sequence[str] | None = None,
        autocast: Autocast = nullcontext,
        caching: bool = False,
        remark: str | None = None,
    ) -> TrialResult:
        loop = Loop(setting, names, autocast)

        def warm_up() -> None:
            for change in prepare:
                change(loop)
            loop.scores(loop.rows[:2])
            if not caching:
                loop.cached = None  # computed in the first repetition

        each, resident, scores = over(trial, loop.rows, loop.scores, warm_up)
        return TrialResult(each, resident, compared(scores, exact), remark)

    def fp16(
        trial: Trial, *prepare: Callable[[Loop], None], names: Sequence[str] | None = None
    ) -> TrialResult:
        needs_a_gpu(train_step.MIXED)
        if Loop.compiled in prepare and not compiling:
            leave_out_compile()
        return pykeen_trial(trial, *prepare, names=names, autocast=half)

    def cleanup(trial: Trial) -> TrialResult:
        needs_a_gpu("it gives back cached GPU memory")
        return pykeen_trial(trial, Loop.with_cleanup)

    def vectorised(trial: Trial, remark: str | None = None) -> TrialResult:
        loop = Loop(setting)
        with train_step.matrix_product():
            each, resident, scores = over(
                trial, loop.rows, loop.vectorised, lambda: loop.vectorised(loop.rows[:VMAP_SIZE])
            )
        return TrialResult(each, resident, compared(scores, exact), remark)

    def compiled(trial: Trial) -> TrialResult:
        if not compiling:
            leave_out_compile()
        return pykeen_trial(trial, Loop.compiled, remark=train_step.COMPILED)

    def filtered(
        trial: Trial, autocast: Autocast = nullcontext, *prepare: Callable[[Loop], None]
    ) -> TrialResult:
        """The group's loop over the training triples that kgops' filter leaves: by hops, and by paths of at most three
        edges. At most twice the sample is run, and its time is scaled to all of them."""
        train = setting.graph.train
        neighbourhood = Neighbourhood(train, setting.graph.num_entities)
        selection = NeighbourhoodFilter(n_hops=2, path_filtering=True, max_total_path_length=3)
        head, _, tail = map(int, setting.test)
        loop = Loop(setting, autocast=autocast)
        begun = time.process_time()
        kept = neighbourhood.select(head, tail, selection)
        selecting = time.process_time() - begun
        rows = query_rows(train[kept[: 2 * num_triples]], True).to(device())
        if len(rows) < trial.repetitions:
            raise Untestable(
                f"the filter leaves {len(rows)} triples, too few for {trial.repetitions} repetitions"
            )

        def warm_up() -> None:
            for change in prepare:
                change(loop)
            loop.scores(loop.rows[:2])

        each, resident, _ = over(trial, rows, loop.scores, warm_up)
        left = torch.zeros_like(everything)
        left[kept] = everything[kept]
        remark = f"{len(kept):,} of {len(train):,} triples are left, by kgops' filter"
        seconds = [(selecting + one * len(kept)) / len(train) for one in each]
        metrics = {**compared(left, everything), "reduction": len(train) / len(kept)}
        return TrialResult(seconds, resident, metrics, remark)

    def fp16_filtered(trial: Trial) -> TrialResult:
        needs_a_gpu(train_step.MIXED)
        if not compiling:
            leave_out_compile()
        return filtered(trial, half, Loop.compiled)

    def kgops_trial(trial: Trial) -> TrialResult:
        """The whole sample several times in each repetition: a share of it would be too short to time, and smaller
        blocks are slower."""

        own = setting.on_device()

        def work(_: int) -> torch.Tensor:
            for _ in range(KGOPS_PASSES):
                scores = own.kgops_scores()
            return scores.cpu()

        measured = trial.measure(work, lambda: own.kgops_scores(own.trains[:8]))
        return TrialResult(
            measured.each(KGOPS_PASSES * num_triples),
            measured.resident_mib,
            compared(measured.results[-1], exact),
        )

    last = sorted(last_layers(setting.pykeen_model(), LAST_LAYERS))
    emulated = device().type == "cpu" and not cpu_has_bf16()
    return {
        "baseline": pykeen_trial,
        "baseline again": pykeen_trial,
        "+ cleanup": cleanup,
        "+ fp16": fp16,
        "+ bf16": lambda trial: pykeen_trial(
            trial,
            autocast=partial(torch.autocast, device().type, torch.bfloat16),
            remark="this CPU has no bf16 instructions: they are emulated" if emulated else None,
        ),
        "+ checkpointing": lambda trial: pykeen_trial(trial, Loop.with_checkpointing),
        "+ fp16 + checkpointing": lambda trial: fp16(trial, Loop.with_checkpointing),
        "+ last layers": lambda trial: pykeen_trial(
            trial, names=last, remark=f"the last {LAST_LAYERS} layers"
        ),
        "+ fp16 + last layers": lambda trial: fp16(trial, names=last),
        "+ test caching": lambda trial: pykeen_trial(trial, caching=True),
        "+ vmap": vectorised,
        "+ compile": compiled,
        "+ fp16 + compile": lambda trial: fp16(trial, Loop.compiled),
        "+ filtering": filtered,
        "+ fp16 + compile + filtering": fp16_filtered,
        "all that is exact": lambda trial: vectorised(trial, "vectorised, the test's gradient once"),
        "kgops": kgops_trial,
    }


def local_graph(entities: int, relations: int = 20) -> Graph:
    """Random triples, nine in ten of them between entities with near numbers, so that neighbourhoods exist."""
    draw = torch.Generator().manual_seed(0)
    num_triples = 5 * entities
    heads = torch.randint(entities, (num_triples,), generator=draw)
    steps = 1 + (torch.rand(num_triples, generator=draw) ** 3 * 20).long()
    far = torch.rand(num_triples, generator=draw) < 0.1
    steps[far] = torch.randint(1, entities, (int(far.sum()),), generator=draw)
    kinds = torch.randint(relations, (num_triples,), generator=draw)
    triples = torch.stack([heads, kinds, (heads + steps) % entities], dim=1)
    names = [Vocabulary.of(map(str, range(n))) for n in (entities, relations)]
    return Graph(triples, triples[:0], triples[:0], names[0], names[1])


def model_of(graph: Graph, dim: int) -> ConvE:
    """Untrained: a score's cost does not depend on the weights."""
    torch.manual_seed(0)
    config = ConvEConfig(graph.num_entities, graph.num_relations, embedding_dim=dim)
    if dim == 32:  # the group's image size
        config = replace(config, embedding_height=8, embedding_width=4)
    return ConvE(config).eval()


def trained(graph: Graph, dim: int, steps: int) -> ConvE:
    """A briefly trained model, since influences under random weights say nothing about trained ones."""
    model = model_of(graph, dim).train()
    settings = TrainSettings(batch_size=256)
    loss = settings.build_loss(torch.float32, settings.chunk_for(torch.device("cpu")))
    step = TrainStep(model, loss, build_optimizer("adam", model, 1e-3))
    batches = Batches(graph.train, inverse=True, one_positive=False, batch_size=256, seed=0)
    source = train_step.forever(batches.epoch)
    for _ in range(steps):
        step(next(source), want_value=False)
    for parameter in model.parameters():
        parameter.grad = None
    return model.eval()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.maths.trials.tracin", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with train.txt; default: a synthetic graph")
    parser.add_argument(
        "--entities", type=int, default=6400, help="entities of the synthetic graph, with five triples each"
    )
    parser.add_argument("--dim", type=int, default=200)
    parser.add_argument("--triples", type=int, default=256, help="training triples that every variant scores")
    parser.add_argument("--training", type=int, default=60, help="training steps before the benchmark")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes a minute")
    args = read_arguments(parser, argv)
    graph = read_graph(args.data / "train.txt") if args.data else local_graph(args.entities)
    model = trained(graph, args.dim, args.training)
    draw = torch.Generator().manual_seed(0)
    rows = graph.train[torch.randperm(len(graph.train), generator=draw)[: args.triples + 1]]
    setting = Setting(graph, model, rows[0], rows[1:])
    # Factored scores in double precision are the reference: they agree with one backward pass per triple to 1e-14.
    reference = Setting(graph, in_double(model), rows[0], rows[1:])
    setting.pykeen_model()  # PyKEEN imports most of itself here, once, before any fork
    run_trials(
        variants(setting, reference.kgops_scores, args.compile),
        args.round,
        trials=args.trials,
        repetitions=args.repetitions,
    )
    return 0


def in_double(model: ConvE) -> ConvE:
    copy = ConvE(model.config)
    copy.load_state_dict(model.state_dict())
    return copy.double().eval()


if __name__ == "__main__":
    run(main)
