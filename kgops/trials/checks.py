"""Small checks of single claims on the CPU: differences of two losses, number formats, shares of time.

    python -m kgops.trials.checks [--quick]

Prints JSON: a value for each claim, by the claim's name in `claim_register/`. What compares speeds takes turns
and counts the CPU time of one thread.
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
from kgops.jobs.regression_config import RegressionConfig
from kgops.regression.network import RegressionModel
from kgops.tracin.agreement import compare
from kgops.tracin.blocks import Engine, Settings, TracinCheckpoint
from kgops.tracin.loss import TARGET
from kgops.trials import peers
from kgops.trials.entry import run
from kgops.trials.live_bytes import peak_live_bytes
from kgops.trials.tracin import Loop, Setting, in_double, near_by, trained
from kgops.trials.tracin_variants import one_by_one, vectorised

__all__ = ["main"]

SHAPES, ENTITIES, DIM = 60, 800, 32
ROUNDS = 5
TRAINS = 10_000  # of a test triple, as the analysis assumes
PROJECTED = 64
Metric = dict[str, Any]


def metric(name: str, subject: str, values: list[float], unit: str = "", *, largest: bool = False) -> Metric:
    """The median with quartiles, or of bounds the `largest`."""
    low, high = quartiles(values) if len(values) > 1 and not largest else (None, None)
    value = max(values) if largest else median(values)
    told = subject.format(value=value)
    return {
        "name": name,
        "subject": told,
        "value": value,
        "low": low,
        "high": high,
        "n": len(values),
        "unit": unit,
    }


# --- the loss over entities ---


def efficient(scores: torch.Tensor, true: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Without labels, by the formula of the guide: of the true answers and of all scores."""
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
    for i in range(SHAPES):
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
    told = f"over {SHAPES} random shapes"
    worst, value = max(zip(absolute, values, strict=True))
    yield metric(
        "loss.abs", f"the largest difference is {worst:.1e}, of a loss of {value:.2f}, {told}", [worst]
    )
    yield metric(
        "loss.rel", f"the largest difference to float64 is {{value:.1e}}, {told}", relative, largest=True
    )
    share = sum(equal) / len(equal)
    yield metric("loss.identical", f"bit for bit equal in {share:.0%}, {told}", [share])
    yield metric(
        "loss.smoothing",
        f"with smoothing 0.05-0.3 the largest difference in float64 is {{value:.1e}}, {told}",
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
    """The number formats of matrix products and convolutions."""

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
    """Some training triples with a test triple, and the exact scores."""
    graph = near_by(ENTITIES)
    model = trained(graph, DIM, 20)
    rows = graph.train[: triples + 1]
    exact = Setting(graph, in_double(model), rows[0], rows[1:]).ours()
    return Setting(graph, model, rows[0], rows[1:]), exact


def fp16(setting: Setting, exact: torch.Tensor) -> Iterator[Metric]:
    """Their loop under autocast to FP16, which torch also has on a CPU: slower there, with the same rounding."""
    loop = Loop(setting, autocast=lambda: torch.autocast("cpu", torch.float16))
    found = compare(exact[None], loop.scores(loop.rows)[None])
    told = f"the largest error is {found.largest_error:.2%} of the largest score, ranks {found.spearman:.3f}"
    told += f", over {len(loop.rows)} triples; FP16 on the CPU"
    yield metric("tracin.fp16.scores", told, [found.largest_error])
    with peers.matrix_product(), loop.autocast():
        score = loop.model.score_hrt(loop.rows[:1])[0, 0]
    with _Products() as products:
        torch.autograd.grad(F.softplus(-score.float()), loop.parameters, allow_unused=True)
    full = [dtype == torch.float32 for dtype in products.dtypes]
    told = f"{sum(full)} of {len(full)} products of the backward pass are FP32; FP16 on the CPU"
    yield metric("tracin.fp16.gradients", told, [sum(full) / len(full)])


def shares(setting: Setting) -> Iterator[Metric]:
    """Where the time of their loop goes, from what one gradient and one product take here."""
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
    whole = TRAINS * (one + product) + one
    told = f"of {TRAINS:,} training triples, at {one * 1e3:.3g} ms a gradient and {product * 1e3:.3g} ms a product"
    for name, part in (("train", TRAINS * one), ("test", one), ("dot", TRAINS * product)):
        yield metric(f"analysis.breakdown.{name}.share", f"{part / whole:.3%}, {told}", [part / whole])


def speeds(setting: Setting) -> Iterator[Metric]:
    loop = Loop(setting)

    def by(batch: int) -> Callable[[], object]:
        return lambda: [loop.scores(part) for part in torch.split(loop.rows[:64], batch)]

    told = "batches of 64 in place of 4: {value:.2f} times as fast, one backward pass a triple"
    yield metric("analysis.batch.speed", told, ratios(by(4), by(64)), "×")
    model, test, rows = setting.model, setting.test[None], setting.trains[:64]
    singly = one_by_one(list(model.parameters()), lambda row: model(row[:1], row[1:2])[0], TARGET, test)
    together = vectorised(model, TARGET, test)
    told = "kgops' ConvE, vectorised by vmap: {value:.2f} times as fast as one by one"
    yield metric(
        "analysis.custommodel.speed", told, ratios(lambda: singly(rows), lambda: together(rows)), "×"
    )
    yield projection(setting)


def projection(setting: Setting) -> Metric:
    """kgops' own random projection beside kgops' exact scores, of many test triples."""
    train = setting.graph.train
    tests, rows = train[:256], train[256:768]

    def scores(dim: int | None) -> torch.Tensor:
        engine = Engine(TracinCheckpoint(setting.model, 1.0), TARGET, Settings(projection_dim=dim))
        return engine.scores(engine.keep(tests), rows)

    found = compare(scores(None), scores(PROJECTED))
    told = f"kgops' projection to {PROJECTED}: {{value:.2f}} times as fast as its exact scores"
    told += f", ranks {found.spearman:.3f}, top 10 {found.top.get(10, float('nan')):.0%}"
    return metric("analysis.approx.speed", told, ratios(lambda: scores(None), lambda: scores(PROJECTED)), "×")


def compiling(setting: Setting) -> Iterator[Metric]:
    loop = Loop(setting)
    loop.model.interaction.hr2d = torch.compile(loop.model.interaction.hr2d)
    first = wall(lambda: loop.gradient(loop.rows[0]))
    later = median([wall(lambda: loop.gradient(loop.rows[0])) for _ in range(ROUNDS)])
    told = f"the first gradient takes {first:.1f} s, a later one {later * 1e3:.3g} ms"
    yield metric("analysis.compile.first", told, [first / later], "×")


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
    told = (
        f"{on_disk} bytes written; the first convolution ran {ran} times for 3 frames: it is computed again"
    )
    yield metric("regress.checkpoint.disk", told, [float(on_disk)], "bytes")


def written() -> int:
    """Bytes that this process has sent to disks."""
    told = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(told["write_bytes"])


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
    """Time of the one over that of the other, in turns; each is warm."""
    before(), after()
    return [seconds(before) / seconds(after) for _ in range(ROUNDS)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.trials.checks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what compiles")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    setting, exact = _setting(128)
    found = [*losses(), *fp16(setting, exact), *shares(setting), *speeds(setting), *regression()]
    found += [] if args.quick else compiling(setting)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    run(main)
