"""Predicted against counted peak memory of workers' functions, over random settings of `estimate_settings`."""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import estimate_regress
import torch
from estimate_settings import TracinSetting, TrainSetting

from kgops.gpus.facts import GpuFacts
from kgops.maths.explain.worker import explain_on_graph
from kgops.maths.graphs.triples import Graph
from kgops.maths.graphs.vocabulary import Vocabulary
from kgops.maths.models.build import build_model
from kgops.maths.tracin.worker import run_on_graph
from kgops.maths.train.checkpoints import Checkpoint, write_checkpoint
from kgops.maths.train.settings import TrainSettings
from kgops.maths.train.worker import train_own
from kgops.maths.trials.variants import peak_live_bytes
from kgops.maths.worker.devices import limit_gpu
from kgops.maths.worker.entry import StopRequest
from kgops.maths.worker.report import Reporter
from kgops.planning.memory_estimate import predict
from kgops.planning.planner import MARGIN
from kgops.workloads.explain import plan as explain
from kgops.workloads.explain.plan import ExplainShape, explain_shape
from kgops.workloads.graphs.counts import Counts, count_triples
from kgops.workloads.memory.budget import Moments, bounded
from kgops.workloads.plan import Shape
from kgops.workloads.predict import plan as predict_memory
from kgops.workloads.predict.plan import PredictShape
from kgops.workloads.tracin import memory as tracin
from kgops.workloads.tracin.sizes import TracinShape, tracin_shape
from kgops.workloads.train.sizes import train_shape

Work = Callable[[], None]


@dataclass(frozen=True)
class TargetDevice:
    """Device of the runs, and the measurement of their peak: live bytes, and on a GPU also reserved bytes."""

    device: torch.device
    gpu: GpuFacts | None
    measure: Callable[[Work], tuple[int, int]]


def _on_cpu(work: Work) -> tuple[int, int]:
    live = peak_live_bytes(work)
    return live, live


CPU = TargetDevice(torch.device("cpu"), None, _on_cpu)


@dataclass(frozen=True)
class Outcome:
    """`phase` is that of the predicted peak; errors are relative, negative if the prediction is too low.

    On a GPU `reserved` is the memory that the allocator reserved, on a CPU the live memory. `least` is predicted
    without workspace inside libraries' operators, which depends on the CPU; `predicted` has the largest workspace.
    """

    kind: str
    seed: int
    predicted: int
    measured: int
    predicted_reserved: int
    reserved: int
    phase: str
    predict_us: float
    setting: str
    least: int

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def least_error(self) -> float:
        return self.least / self.measured - 1

    @property
    def reserved_error(self) -> float:
        return self.predicted_reserved / self.reserved - 1


def compare_train(setting: TrainSetting, seed: int, target: TargetDevice = CPU) -> Outcome:
    """One training run, as its worker runs it."""
    graph, counts = drawn_data(setting, seed)
    job = setting.job()

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            train_own(job, _copy(graph), target.device, Path(folder), SilentReporter(), StopRequest())

    shape = train_shape(job, counts, target.gpu)
    assert shape is not None
    return _compared("train", seed, shape, work, setting, target)


def compare_tracin(
    setting: TracinSetting, seed: int, kind: str = "tracin", target: TargetDevice = CPU
) -> Outcome:
    """One TracIn run over checkpoints of an untrained model: memory does not depend on the weights."""
    graph, counts = drawn_data(setting, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(setting.checkpoints):
            _write_untrained(folder / f"{number}.pt", setting, graph)
        job = setting.job(folder)

        def work() -> None:
            (folder / "results").mkdir(exist_ok=True)
            run_on_graph(job, _copy(graph), target.device, folder, SilentReporter(), StopRequest())

        trained = {**_training(setting).to_dict(), "loss": setting.trained_loss}
        tests, checkpoints = len(graph.test), setting.checkpoints
        shape = tracin_shape(
            job, counts, target.gpu, setting.config(), trained=trained, checkpoints=checkpoints, tests=tests
        )
        return _compared(kind, seed, shape, work, setting, target)


def compare_explain(setting: TracinSetting, seed: int, target: TargetDevice = CPU) -> Outcome:
    """One explanation of a training triple by an untrained model."""
    graph, counts = drawn_data(setting, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_untrained(folder / "0.pt", setting, graph)
        head, relation, tail = graph.train[0].tolist()
        job = setting.explaining(folder, (head, relation, tail))

        def work() -> None:
            (folder / "results").mkdir(exist_ok=True)
            explain_on_graph(job, _copy(graph), target.device, folder, SilentReporter(), StopRequest())

        trained = {**_training(setting).to_dict(), "loss": setting.trained_loss}
        shape = explain_shape(job, counts, target.gpu, setting.config(), trained=trained, predictions=1)
        return _compared("explain", seed, shape, work, setting, target)


def compare_regress(
    setting: estimate_regress.RegressSetting, seed: int, target: TargetDevice = CPU
) -> Outcome:
    """One regression over flights of noise."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        estimate_regress.write_flights(setting, folder, seed)
        job = setting.job(folder)
        work = estimate_regress.work_of(job, folder, target.device, SilentReporter())
        shape = estimate_regress.shape_of(job, folder, target.gpu)
        return _compared("regress", seed, shape, work, setting, target)


def peak_live(shape: Shape, gpu: GpuFacts | None, without: Collection[str]) -> int:
    """`predict`'s `live`; of what keeps to a budget without these parts."""
    if not isinstance(shape, TracinShape | ExplainShape | PredictShape):
        return predict(shape, gpu).live
    moments = moments_of(shape, gpu)
    for parts in moments.phases.values():
        for name in without:
            parts.pop(name, None)
    return bounded(moments, gpu, on_gpu=shape.on_gpu, expandable=False).live


def moments_of(shape: TracinShape | ExplainShape | PredictShape, gpu: GpuFacts | None) -> Moments:
    if isinstance(shape, PredictShape):
        return predict_memory.moments(shape)
    return explain.moments(shape, gpu) if isinstance(shape, ExplainShape) else tracin.moments(shape, gpu)


def _compared(
    kind: str, seed: int, shape: Shape, work: Work, setting: object, target: TargetDevice
) -> Outcome:
    started = time.perf_counter()
    estimate = predict(shape, target.gpu)
    # The profiler does not see numpy's memory; `tests/planning/test_estimate.py` checks it with tracemalloc.
    predicted = estimate.live if shape.on_gpu else peak_live(shape, None, without=("graph",))
    took = 1e6 * (time.perf_counter() - started)
    least = peak_live(shape, target.gpu, without=("graph", "workspace"))
    gc.collect()  # leftovers of an earlier setting, freed during the measurement, would count as negative
    if shape.on_gpu and isinstance(shape, TracinShape | ExplainShape | PredictShape):
        work = _kept_to(round((1 + MARGIN) * estimate.reserved), target.device, work)
    live, reserved = target.measure(work)
    rest = estimate.phase, took, str(setting), least
    return Outcome(
        kind, seed, predicted, live, estimate.reserved if shape.on_gpu else predicted, reserved, *rest
    )


def _kept_to(budget: int, device: torch.device, work: Work) -> Work:
    """As a supervisor has its workers keep to their budget."""

    def limited() -> None:
        limit_gpu(device, budget)
        try:
            work()
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    return limited


def drawn_data(setting: TrainSetting | TracinSetting, seed: int) -> tuple[Graph, Counts]:
    generator = torch.Generator().manual_seed(seed)
    split = [_triples(setting, count, generator) for count in (setting.train, setting.valid, setting.test)]
    names = [Vocabulary.of(map(str, range(n))) for n in (setting.entities, setting.relations)]
    train, valid, test = ([(h, r, t) for h, r, t in part.tolist()] for part in split)
    counts = count_triples(train, valid, test, setting.entities, setting.relations)
    return Graph(split[0], split[1], split[2], names[0], names[1]), counts


def _triples(setting: TrainSetting | TracinSetting, count: int, generator: torch.Generator) -> torch.Tensor:
    """Some heads, relations and tails are frequent, as in any graph."""
    if not count:
        return torch.empty(0, 3, dtype=torch.long)
    columns = [
        (torch.rand(count, generator=generator) ** power * size).long().clamp_max(size - 1)
        for size, power in ((setting.entities, 2.0), (setting.relations, 1.5), (setting.entities, 2.0))
    ]
    distinct: torch.Tensor = torch.unique(torch.stack(columns, dim=1), dim=0)
    return distinct


def _copy(graph: Graph) -> Graph:
    """A copy made during the measurement, so that the triples count."""
    split = [part.clone() for part in (graph.train, graph.valid, graph.test)]
    return Graph(split[0], split[1], split[2], graph.entities, graph.relations)


def _training(setting: TracinSetting) -> TrainSettings:
    """Settings of the checkpoints' training, which a validation repeats."""
    return TrainSettings(
        num_epochs=2,
        batch_size=128,
        loss=setting.trained_loss,
        label_smoothing=setting.smoothing,
        precision="fp32",
    )


def _write_untrained(path: Path, setting: TracinSetting, graph: Graph) -> None:
    config = setting.config()
    loss = {"name": setting.trained_loss, "label_smoothing": setting.smoothing}
    digests = graph.entities.digest, graph.relations.digest
    model = build_model(config).state_dict()
    settings = _training(setting).to_dict()
    write_checkpoint(path, Checkpoint(model, config.to_dict(), 2, 0, 0.1, loss, *digests, settings, {}))


def judge(outcomes: list[Outcome]) -> None:
    """Never a tenth too low. What libraries copy inside their operators differs between CPUs by some MiB."""
    worst = min(outcomes, key=lambda outcome: outcome.error)
    assert all(one.measured - one.predicted < 0.1 * one.measured + 2 * (1 << 20) for one in outcomes), worst
    assert statistics.median(abs(outcome.error) for outcome in outcomes) < 0.1, outcomes


class SilentReporter(Reporter):
    """A reporter that discards everything."""

    def __init__(self) -> None:
        super().__init__(Path())

    def send(self, kind: str, /, **fields: Any) -> None:
        pass

    def sync(self) -> None:
        pass

    def artifact(self, path: Path, kind: str) -> None:
        pass
