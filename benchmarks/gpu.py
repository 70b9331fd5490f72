"""GPU benchmarks: step and epoch times against PyKEEN, peak memory, and TracIn over a thousand tests.

    python -m benchmarks.gpu [--data DIR] [--seconds 280] [--store]

DIR has the train.txt of FB15k-237; the default is a random graph of its size, on which a step takes as long.
Variants are interleaved in one process. Without PyKEEN its values are n/a; without a GPU it fails.
"""

from __future__ import annotations

import gc
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Line, Silent, arguments, finish, run
from benchmarks.train_step import Contender, PykeenStep, measure
from kgops.experiments.fingerprint import fingerprint
from kgops.gpus.facts import cuda_problem
from kgops.jobs.numbers import finite_number
from kgops.maths.graphs.triples import Graph, read_graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.models.conve import ConvE
from kgops.maths.train.acceleration import AcceleratedStep
from kgops.maths.train.batches import Batch, Batches
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import TrainSettings, resolve_precision
from kgops.maths.trials.tracin import model_of
from kgops.maths.trials.train_step import forever, synthetic
from kgops.maths.trials.variants import MIB
from kgops.workloads.graphs.counts import counted_table
from kgops.workloads.train.models import ConvEConfig

ROUNDS = 7
STEPS = 20  # steps per timing: synchronising with a GPU takes longer than a step
VARIANTS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "tf32": {"precision": "tf32"},
    "tf32, replayed": {"precision": "tf32", "cuda_graphs": True},
    "bf16": {"precision": "bf16"},
    "bf16, replayed": {"precision": "bf16", "cuda_graphs": True},
    "bf16, compiled and replayed": {"precision": "bf16", "compile": "reduce-overhead"},
}


def main(argv: list[str] | None = None) -> int:
    parser = arguments("gpu", __doc__)
    parser.add_argument("--data", type=Path, help="folder with the train.txt of FB15k-237")
    parser.add_argument(
        "--seconds", type=finite_number, default=280, help="skip benchmarks that would start later than this"
    )
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        problem = cuda_problem()
        why = f"; {problem.reason}: {problem.hint}" if problem is not None else ""
        print(f"no GPU to measure: torch {torch.__version__} sees no CUDA device{why}")
        return 1
    begun = time.monotonic()
    graph = read_graph(args.data / "train.txt") if args.data else shaped_like_fb15k_237()
    machine = fingerprint()
    print(
        f"{torch.cuda.get_device_name()}; torch {torch.__version__}; {json.dumps(machine['machine'])}",
        flush=True,
    )
    lines, troubles = [], []
    for name, section in sections(graph):
        if time.monotonic() - begun > args.seconds:
            troubles.append(f"{name}: skipped after {args.seconds:.0f} s")
            continue
        started = time.monotonic()
        try:
            measured = section()
        except KeyboardInterrupt:  # by Ctrl-C, or because its time was over: show what was measured
            troubles.append(f"{name}: interrupted after {time.monotonic() - started:.0f} s")
            break
        except Exception as error:  # one failure must not stop the other benchmarks
            troubles.append(f"{name}: {type(error).__name__}: {next(iter(str(error).splitlines()), ''):.200}")
            continue
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        lines += measured
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    if find_spec("pykeen") is None:
        troubles.append("PyKEEN: n/a, not installed")
    print("\n".join(troubles))
    code = finish(lines, keep=args.store)
    return 1 if any(": n/a" not in trouble for trouble in troubles) else code


def sections(graph: Graph) -> Iterator[tuple[str, Callable[[], list[Line]]]]:
    yield "epoch", lambda: epoch(graph)
    yield "steps of 1024", lambda: steps(graph, "FB15k-237", 1024, shipped=False)
    yield "steps of 256", lambda: steps(graph, "FB15k-237", 256, shipped=True)
    yield "tracin", lambda: tracin(graph)
    yield "100k entities", lambda: steps(synthetic(100_000), "100k entities", 1024, shipped=False)


def shaped_like_fb15k_237() -> Graph:
    """A random graph with the sizes of FB15k-237: as many entities, triples, and distinct queries of each kind, so
    that an epoch has as many steps. Entities and relations are of skewed frequency."""
    g = torch.Generator().manual_seed(0)
    known = counted_table("FB15k-237")
    assert known is not None
    entities, relations, triples = 14_541, known["relations"], known["train"]
    by_head, by_tail = known["tails"]["queries"], known["heads"]["queries"]
    frequency = torch.arange(1, entities + 1, dtype=torch.float64) ** -0.5
    sizes = torch.bincount((relations * torch.rand(triples, generator=g) ** 2).long(), minlength=relations)
    parts = []
    for relation, (size, *queries) in enumerate(
        zip(sizes.tolist(), _split(by_head, sizes), _split(by_tail, sizes), strict=True)
    ):
        ends = []
        for count in queries:  # each of its heads, or tails, at least once
            chosen = torch.multinomial(frequency, count, generator=g)
            ends.append(chosen[torch.randperm(size, generator=g) % count])
        parts.append(torch.stack([ends[0], torch.full((size,), relation), ends[1]], dim=1))
    rows = torch.cat(parts)
    names = [Vocabulary.of(map(str, range(n))) for n in (entities, relations)]
    return Graph(rows, rows[:0], rows[:0], names[0], names[1])


def _split(total: int, sizes: torch.Tensor) -> list[int]:
    """`total` in proportion to the sizes, in whole numbers."""
    ends = (sizes.cumsum(0) * total).div(sizes.sum(), rounding_mode="floor")
    return torch.diff(ends, prepend=ends.new_zeros(1)).tolist()


class OurStep:
    """Steps as `fit` takes them with these settings, over batches of a graph, epoch after epoch."""

    def __init__(self, graph: Graph, settings: TrainSettings) -> None:
        device = torch.device("cuda")
        self.precision = resolve_precision(settings.precision, device)
        self.precision.apply()
        torch.manual_seed(0)
        self.model = ConvE(ConvEConfig(graph.num_entities, graph.num_relations)).to(device).train()
        self.batches = Batches(
            graph.train,
            inverse=True,
            one_positive=False,
            batch_size=settings.batch_size,
            seed=0,
            device=device,
        )
        self.every, self.report = settings.loss_every, Silent()
        self.take = AcceleratedStep(
            self.model,
            settings.build_loss(self.precision.dtype, settings.chunk_for(device)),
            build_optimizer(settings.optimizer, self.model, settings.learning_rate),
            requested=(settings.compile, settings.cuda_graphs),
            usual_size=self.batches.usual_size,
            checkpointing=False,
            report=self.report,
        )
        with self.take.stream():
            self.take.prepare(next(self.batches.epoch(0)))
        self._source = forever(self.batches.epoch)

    def steps(self) -> None:
        self._take_all(itertools.islice(self._source, STEPS))

    def epoch_ms(self, number: int) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        self._take_all(self.batches.epoch(number))
        return 1e3 * (time.perf_counter() - begun)

    def _take_all(self, batches: Iterator[Batch]) -> None:
        self.precision.apply()  # a global setting of torch, which other variants have changed
        with self.take.stream():
            for number, batch in enumerate(batches):
                self.take(batch, want_value=number % self.every == 0)
        torch.cuda.synchronize()


def epoch(graph: Graph) -> list[Line]:
    """Epochs of batches of 1024: time and peak memory."""
    lines = []
    for variant, changes in VARIANTS.items():
        torch.cuda.reset_peak_memory_stats()
        ours = OurStep(graph, TrainSettings(batch_size=1024, **changes))
        ours.epoch_ms(0)
        took = tuple(ours.epoch_ms(number) for number in range(1, ROUNDS + 1))
        peak = torch.cuda.max_memory_allocated() / MIB
        best = variant == "bf16, compiled and replayed"
        key, what = f"gpu_epoch_{_slug(variant)}", f"epoch, {variant}{_honoured(ours)}"
        lines.append(Line(key, what, "ms", took, 60 if best else None))
        lines.append(Line(f"{key}_mib", f"peak, {variant}", "MiB", (peak,), 1024 if best else None))
        del ours
        gc.collect()
    return lines


def steps(graph: Graph, subject: str, batch: int, *, shipped: bool) -> list[Line]:
    """Steps of all variants and of PyKEEN, interleaved."""
    contenders, kept = [], {}
    for variant, changes in VARIANTS.items():
        kept[variant] = OurStep(graph, TrainSettings(batch_size=batch, **changes))
        kept[variant].steps()
        contenders.append(Contender(variant, kept[variant].steps, batch * STEPS))
    if find_spec("pykeen") is not None:
        contenders += [_pykeen(graph, batch, patched) for patched in ([True, False] if shipped else [True])]
    key = f"gpu_{subject.lower().replace(' ', '_').replace('-', '')}_{batch}"
    rows = {row.name: row for row in measure(contenders, ROUNDS)}
    first = rows["fp32"]
    lines = []
    for variant, row in rows.items():
        named = f"{subject}, batch {batch}: {variant}" + (_honoured(kept[variant]) if variant in kept else "")
        a_step = row.best_ms / (row.samples / batch)
        slug = _slug(variant)
        lines.append(Line(f"{key}_{slug}_ms", named, "ms", (a_step,)))
        if row is not first:
            ratios = tuple(row.ratios if variant not in kept else [1 / ratio for ratio in row.ratios])
            what = f"{variant} / fp32" if variant not in kept else f"fp32 / {variant}"
            lines.append(Line(f"{key}_{slug}", f"{subject}, batch {batch}: {what}", "×", ratios))
    return lines


def _slug(variant: str) -> str:
    return variant.replace(", ", "_").replace(" ", "_").lower()


def _pykeen(graph: Graph, batch: int, patched: bool) -> Contender:
    config = ConvEConfig(graph.num_entities, graph.num_relations)
    rival = PykeenStep(graph, config, batch, patched=patched, device="cuda")
    few = STEPS if patched else 3

    def take() -> None:
        for _ in range(few):
            rival.take()
        torch.cuda.synchronize()

    return Contender("PyKEEN patched" if patched else "PyKEEN as shipped", take, batch * few)


def _honoured(ours: OurStep) -> str:
    """Options that the step could not apply, for the name of the value."""
    reasons = [reason for _, reason in ours.report.options.values() if reason]
    return f" ({'; '.join(reasons)})" if reasons else ""


def tracin(graph: Graph) -> list[Line]:
    """Scores of a thousand tests at one checkpoint, for ten seconds or until all training triples are scored."""
    from kgops.maths.tracin.blocks import Engine, Settings, TracinCheckpoint
    from kgops.maths.tracin.loss import ONE_TO_N

    resolve_precision("tf32", "cuda").apply()
    model = model_of(graph, 200).to("cuda")
    order = (graph.train[:, 0] * graph.num_relations + graph.train[:, 1]).argsort(stable=True)
    triples = graph.train[order].to("cuda")
    settings = Settings(block=1024)
    torch.cuda.reset_peak_memory_stats()
    engine = Engine(TracinCheckpoint(model, 1.0), ONE_TO_N, settings)
    kept = engine.keep(graph.train[torch.randperm(len(graph.train))[:1000]].to("cuda"))
    blocks = torch.split(triples, settings.block)
    engine.scores(kept, blocks[0])
    torch.cuda.synchronize()
    begun, done = time.perf_counter(), 0
    for block in blocks:
        engine.scores(kept, block)
        done += len(block)
        torch.cuda.synchronize()
        if time.perf_counter() - begun > 10:
            break
    a_triple = 1e6 * (time.perf_counter() - begun) / done
    peak = torch.cuda.max_memory_allocated() / MIB
    return [
        Line("gpu_tracin_us", f"TracIn, 1,000 tests: a training triple (of {done:,})", "µs", (a_triple,)),
        Line("gpu_tracin_mib", "TracIn, 1,000 tests: peak", "MiB", (peak,)),
    ]


if __name__ == "__main__":
    run(main)
