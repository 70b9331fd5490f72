"""Checks of single claims on the CPU: differences of two losses, number formats, shares of time.

    python -m kgops.trials.checks [--quick]

Prints JSON: a value for each claim, by the claim's name in `claim_register/`. Speed comparisons alternate and
count the CPU time of one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from kgops.jobs.numbers import median, quartiles
from kgops.jobs.regress import RegressionConfig
from kgops.regression.network import RegressionModel
from kgops.tracin.agreement import compare
from kgops.tracin.blocks import Engine, Settings, TracinCheckpoint
from kgops.tracin.loss import TARGET
from kgops.trials import peers
from kgops.trials.entry import run
from kgops.trials.resident import peak_live_bytes
from kgops.trials.tracin import Loop, Setting, in_double, local_graph, trained
from kgops.trials.tracin_variants import one_by_one, vectorised

SIZES, ENTITIES, DIM = 60, 800, 32
ROUNDS = 5
TRAIN_TRIPLES = 10_000  # for each test triple, as the analysis assumes
PROJECTED = 64
Metric = dict[str, Any]


def metric(name: str, subject: str, values: list[float], unit: str = "", *, largest: bool = False) -> Metric:
    """The median with quartiles, or the maximum where `largest` is set."""
    low, high = quartiles(values) if len(values) > 1 and not largest else (None, None)
    value = max(values) if largest else median(values)
    text = subject.format(value=value)
    return {
        "name": name,
        "subject": text,
        "value": value,
        "low": low,
        "high": high,
        "n": len(values),
        "unit": unit,
    }


# --- the loss over entities ---


def efficient(scores: torch.Tensor, true: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Binary cross-entropy without labels, from the true scores and the sum of all scores, as in the group's guide."""
    s, entities = smoothing, scores.shape[1]
    own = scores.gather(1, true[:, None]).sum()
    return (F.softplus(scores).sum() - (1 - s) * own - s / entities * scores.sum()) / scores.numel()


def dense(scores: torch.Tensor, true: torch.Tensor, smoothing: float) -> torch.Tensor:
    labels = torch.full_like(scores, smoothing / scores.shape[1])
    labels.scatter_(1, true[:, None], 1 - smoothing + smoothing / scores.shape[1])
    return F.binary_cross_entropy_with_logits(scores, labels)


def losses() -> Iterator[Metric]:
    draw = torch.Generator().manual_seed(0)
    absolute, relative, values, equal, smoothed = [], [], [], [], []
    for i in range(SIZES):
        batch, entities = (int(torch.randint(2, most, (1,), generator=draw)) for most in (256, 3000))
        scores = (1 + i % 8) * torch.randn(batch, entities, generator=draw)
        true = torch.randint(entities, (batch,), generator=draw)
        a, b = (float(loss(scores, true, 0.0)) for loss in (efficient, dense))
        absolute.append(abs(a - b))
        exact = float(dense(scores.double(), true, 0.0))
        values.append(exact)
        relative.append(abs(a - exact) / exact)
        equal.append(float(a == b))
        s = 0.05 * (1 + i % 6)
        c, d = (float(loss(scores.double(), true, s)) for loss in (efficient, dense))
        smoothed.append(abs(c - d))
    text = f"over {SIZES} random shapes"
    worst, value = max(zip(absolute, values, strict=True))
    yield metric(
        "loss.abs", f"the largest difference is {worst:.1e}, of a loss of {value:.2f}, {text}", [worst]
    )
    yield metric(
        "loss.rel", f"the largest difference to float64 is {{value:.1e}}, {text}", relative, largest=True
    )
    share = sum(equal) / len(equal)
    yield metric("loss.identical", f"bit for bit equal in {share:.0%}, {text}", [share])
    yield metric(
        "loss.smoothing",
        f"with smoothing 0.05-0.3 the largest difference in float64 is {{value:.1e}}, {text}",
        smoothed,
        largest=True,
    )
    small, large = (_loss_bytes(entities) for entities in (4000, 8000))
    yield metric("loss.complexity", "twice the entities take {value:.2f} times the memory", [large / small])


def _loss_bytes(entities: int) -> int:
    scores, true = torch.randn(64, entities, requires_grad=True), torch.zeros(64, dtype=torch.long)
    return peak_live_bytes(lambda: torch.autograd.backward(efficient(scores, true, 0.1)))


# --- TracIn ---


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the dtypes of matrix products and convolutions."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in ("mm", "addmm", "bmm", "baddbmm", "convolution_backward"):
            self.dtypes.append(next(a for a in args if isinstance(a, torch.Tensor)).dtype)
        return func(*args, **(kwargs or {}))


def _setting(triples: int) -> tuple[Setting, torch.Tensor]:
    """A test triple with some training triples, and their exact scores."""
    graph = local_graph(ENTITIES)
    model = trained(graph, DIM, 20)
    rows = graph.train[: triples + 1]
    exact = Setting(graph, in_double(model), rows[0], rows[1:]).kgops_scores()
    return Setting(graph, model, rows[0], rows[1:]), exact


def fp16(setting: Setting, exact: torch.Tensor) -> Iterator[Metric]:
    """The group's loop under FP16 autocast on the CPU: slower than on a GPU, with the same rounding."""
    loop = Loop(setting, autocast=lambda: torch.autocast("cpu", torch.float16))
    agreement = compare(exact[None], loop.scores(loop.rows)[None])
    text = f"the largest error is {agreement.largest_error:.2%} of the largest score, ranks {agreement.spearman:.3f}"
    text += f", over {len(loop.rows)} triples; FP16 on the CPU"
    yield metric("tracin.fp16.scores", text, [agreement.largest_error])
    with peers.matrix_product(), loop.autocast():
        score = loop.model.score_hrt(loop.rows[:1])[0, 0]
    with _Products() as products:
        torch.autograd.grad(F.softplus(-score.float()), loop.parameters, allow_unused=True)
    full = [dtype == torch.float32 for dtype in products.dtypes]
    text = f"{sum(full)} of {len(full)} products of the backward pass are FP32; FP16 on the CPU"
    yield metric("tracin.fp16.gradients", text, [sum(full) / len(full)])


def shares(setting: Setting) -> Iterator[Metric]:
    """Shares of time in the group's loop, from the measured time of one gradient and one dot product."""
    loop = Loop(setting)
    loop.scores(loop.rows[:4])
    own = [loop.gradient(row) for row in loop.rows[:8]]
    gradient, dot = [], []
    for row in loop.rows[:64]:
        gradient.append(seconds(lambda row=row: loop.gradient(row)))  # type: ignore[misc]
        dot.append(
            seconds(lambda: [float(sum((a * b).sum() for a, b in zip(g, own[0], strict=True))) for g in own])
        )
    one, product = median(gradient), median(dot) / len(own)
    whole = TRAIN_TRIPLES * (one + product) + one
    text = f"of {TRAIN_TRIPLES:,} training triples, "
    text += f"at {one * 1e3:.3g} ms a gradient and {product * 1e3:.3g} ms a product"
    for name, part in (("train", TRAIN_TRIPLES * one), ("test", one), ("dot", TRAIN_TRIPLES * product)):
        yield metric(f"analysis.breakdown.{name}.share", f"{part / whole:.3%}, {text}", [part / whole])


def speeds(setting: Setting) -> Iterator[Metric]:
    loop = Loop(setting)

    def by(batch: int) -> Callable[[], object]:
        return lambda: [loop.scores(part) for part in torch.split(loop.rows[:64], batch)]

    text = "batches of 64 in place of 4: {value:.2f} times as fast, one backward pass a triple"
    yield metric("analysis.batch.speed", text, ratios(by(4), by(64)), "×")
    model, test, rows = setting.model, setting.test[None], setting.trains[:64]
    singly = one_by_one(list(model.parameters()), lambda row: model(row[:1], row[1:2])[0], TARGET, test)
    together = vectorised(model, TARGET, test)
    text = "kgops' ConvE, vectorised by vmap: {value:.2f} times as fast as one by one"
    yield metric(
        "analysis.custommodel.speed", text, ratios(lambda: singly(rows), lambda: together(rows)), "×"
    )
    yield projection(setting)


def projection(setting: Setting) -> Metric:
    """kgops' random projection compared with its exact scores, for 256 test triples."""
    train = setting.graph.train
    tests, rows = train[:256], train[256:768]

    def scores(dim: int | None) -> torch.Tensor:
        engine = Engine(TracinCheckpoint(setting.model, 1.0), TARGET, Settings(projection_dim=dim))
        return engine.scores(engine.keep(tests), rows)

    agreement = compare(scores(None), scores(PROJECTED))
    text = f"kgops' projection to {PROJECTED}: {{value:.2f}} times as fast as its exact scores"
    text += f", ranks {agreement.spearman:.3f}, top 10 {agreement.top.get(10, float('nan')):.0%}"
    return metric("analysis.approx.speed", text, ratios(lambda: scores(None), lambda: scores(PROJECTED)), "×")


def compiling(setting: Setting) -> Iterator[Metric]:
    loop = Loop(setting)
    loop.model.interaction.hr2d = torch.compile(loop.model.interaction.hr2d)
    first = wall(lambda: loop.gradient(loop.rows[0]))
    later = median([wall(lambda: loop.gradient(loop.rows[0])) for _ in range(ROUNDS)])
    text = f"the first gradient takes {first:.1f} s, a later one {later * 1e3:.3g} ms"
    yield metric("analysis.compile.first", text, [first / later], "×")


# --- the regression network ---


def regression() -> Iterator[Metric]:
    images, angles = torch.rand(2, 3, 32, 32), 90 * torch.rand(2, 3, 2)
    grads, ran = [], 0
    for checkpointing in (False, True):
        torch.manual_seed(0)
        config = RegressionConfig(32, 32, temporal_frames=3)
        model = RegressionModel(config, checkpointing=checkpointing).train()
        first = next(part for part in model.modules() if isinstance(part, torch.nn.Conv2d))
        calls: list[int] = []
        first.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        before = written()
        torch.autograd.backward(model(images, angles).square().sum())
        on_disk, ran = written() - before, len(calls)
        grads.append([p.grad for p in model.parameters()])
    largest = max(float(a.abs().max()) for a in grads[0] if a is not None)
    off = max(
        float((a - b).abs().max()) for a, b in zip(*grads, strict=True) if a is not None and b is not None
    )
    yield metric(
        "regress.checkpoint.exact",
        "gradients differ by up to {value:.1e} of the largest: rounding",
        [off / largest],
    )
    text = f"{on_disk} bytes written; the first convolution ran {ran} times for 3 frames: it is recomputed"
    yield metric("regress.checkpoint.disk", text, [float(on_disk)], "bytes")


def written() -> int:
    """Bytes that this process has written to disks."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["write_bytes"])


# --- time ---


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def wall(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def ratios(before: Callable[[], object], after: Callable[[], object]) -> list[float]:
    """Time of `before` over time of `after`, alternating, both warmed up."""
    before(), after()
    return [seconds(before) / seconds(after) for _ in range(ROUNDS)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.trials.checks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out torch.compile")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    setting, exact = _setting(128)
    metrics = [*losses(), *fp16(setting, exact), *shares(setting), *speeds(setting), *regression()]
    metrics += [] if args.quick else compiling(setting)
    print(json.dumps(metrics, indent=1))
    return 0


if __name__ == "__main__":
    run(main)
