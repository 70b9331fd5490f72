"""Memory predictions on a GPU: predicted against measured memory, and an emulated T4.

`benchmarks.gpu` runs these. A small GPU is emulated by limiting the memory that torch may use: its capacity, not its
speed, and without the context.
"""

from __future__ import annotations

import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.estimate import (
    Outcome,
    SilentReporter,
    TargetDevice,
    Work,
    compare_tracin,
    compare_train,
)
from benchmarks.estimate_settings import TracinSetting, TrainSetting, draw_tracin, draw_train
from benchmarks.measure import Line
from kgops.gpus.facts import GpuFacts
from kgops.graphs.triples import Graph
from kgops.jobs.job import Job, read_job
from kgops.models.conve import ConvEConfig
from kgops.planning import profiles
from kgops.planning.graph_counts import count_triples
from kgops.planning.job_size import JobSize
from kgops.planning.planner import suggest
from kgops.planning.resolve import resolve
from kgops.planning.targets import find_targets
from kgops.trials import peers
from kgops.trials.train_step import synthetic
from kgops.workers.entry import StopRequest
from kgops.workers.train import train_conve

__all__ = ["compare_drawn", "largest", "on_gpu", "predictions", "small_gpu"]

MIB = 1 << 20
_SEED = 9_500_000  # no formula was tuned on settings from here on
_SETTINGS = 80
_FLOP = 4e12  # of a setting, at most: a second or so
_FORMATS = ("fp32", "tf32", "fp16", "bf16")
_CONTEXT = 400.0  # MiB, as predicted
_MORE = 1.02  # batches are bisected to this


def on_gpu() -> TargetDevice:
    """The first GPU, measured by torch's counters."""
    gpu = GpuFacts(torch.cuda.get_device_name(), torch.cuda.get_device_capability())
    return TargetDevice(torch.device("cuda"), gpu, _measured)


def _measured(work: Work) -> tuple[int, int]:
    _forget()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before, torch.cuda.max_memory_reserved()


def _forget() -> None:
    """Frees all tensors, segments and cuBLAS workspaces of an earlier setting."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def compare_drawn(number: int, target: TargetDevice) -> Outcome:
    """Two trainings, then a TracIn run."""
    setting = _drawn(number)
    if isinstance(setting, TrainSetting):
        return compare_train(setting, number, target)
    return compare_tracin(setting, number, target=target)


def _drawn(number: int) -> TrainSetting | TracinSetting:
    """14k to a million entities; of trainings every number format."""
    rng = random.Random(_SEED + number)
    if number % 3 == 2:
        return draw_tracin(rng, least_entities=14_000, most_entities=200_000, flop=_FLOP)
    setting = draw_train(rng, least_entities=14_000, most_entities=1_000_000, flop=_FLOP)
    return replace(setting, options={**setting.options, "precision": rng.choice(_FORMATS)})


def predictions(seconds: float) -> list[Line]:
    """Predicted against measured memory, over as many random settings as fit in the time."""
    target, begun = on_gpu(), time.monotonic()
    outcomes: list[Outcome] = []
    for number in range(_SETTINGS):
        if time.monotonic() - begun > seconds:
            break
        one = compare_drawn(number, target)
        outcomes.append(one)
        print(
            f"{one.seed} {one.kind} {one.measured / MIB:.0f} MiB live {100 * one.error:+.1f} %, "
            f"{one.reserved / MIB:.0f} reserved {100 * one.reserved_error:+.1f} %, {one.phase}: {one.setting}",
            flush=True,
        )
    _forget()
    free, total = torch.cuda.mem_get_info()
    context = (total - free - torch.cuda.memory_reserved()) / MIB
    live = tuple(100 * abs(one.error) for one in outcomes)
    reserved = tuple(100 * abs(one.reserved_error) for one in outcomes)
    under = tuple(-100 * min(0.0, one.error, one.reserved_error) for one in outcomes)
    totals = tuple(_total_error(one, context) for one in outcomes)
    many = f"of {len(outcomes)} settings"
    return [
        Line("gpu_estimate_settings", "settings predicted and run", "settings", (len(outcomes),), 60, at_least=True),
        Line("gpu_estimate_live", f"allocated: median error {many}", "%", live, 3),
        Line("gpu_estimate_reserved", f"reserved: worst error {many}", "%", reserved, 10, max(reserved)),
        Line("gpu_estimate_under", f"furthest predicted under {many}", "%", under, 0, max(under)),
        Line("gpu_estimate_context", "CUDA context and libraries (400 predicted)", "MiB", (context,)),
        Line("gpu_estimate_total", f"with context: worst error beyond 5 % {many}", "MiB", totals, 300, max(totals)),
    ]  # fmt: skip


def _total_error(one: Outcome, context: float) -> float:
    """MiB by which the whole was missed, where that is more than 5 %."""
    measured = one.reserved / MIB + context
    missed = abs(one.predicted_reserved / MIB + _CONTEXT - measured)
    return missed if missed > 0.05 * measured else 0.0


def small_gpu(graph: Graph, gpu: str = "t4") -> list[Line]:
    """With no more memory than this GPU: what the group's settings do, what the profile does, and how much of
    the largest batch that fits is suggested."""
    target = find_targets(gpu)[0]
    assert target.usable_mib is not None
    with _at_most(target.usable_mib - _CONTEXT):
        lines = [_group_settings(graph, 1024)] if find_spec("pykeen") is not None else []
        wide = synthetic(100_000)
        train = [(h, r, t) for h, r, t in wide.train.tolist()]
        counts = count_triples(train, [], [], wide.num_entities, wide.num_relations)
        table = {"dataset": "made", "num_epochs": 1, "checkpoint_frequency": 0}
        job = profiles.apply(read_job({"workload": "train", "profile": gpu, "train": table}, "a check"))
        job = resolve(job, lambda _: target.facts).job
        suggested = suggest(JobSize(job, counts, job, None, None), target)
        assert suggested is not None and suggested.largest_batch is not None
        batch = suggested.largest_batch
        finished = _fits(job, wide, batch)
        # Compiling each batch anew would take minutes, and asks for no more memory.
        plain = replace(job, options={**job.options, "compile": "off"})
        low = batch if _fits(plain, wide, batch) else 1
        most = largest(lambda many: _fits(plain, wide, many), low, batch * 4)
    return [
        *lines,
        Line(f"gpu_{gpu}_fits", f"--profile {gpu}, largest batch suggested ({batch:,}): finished", "runs",
             (float(finished),), 1, at_least=True),
        Line(f"gpu_{gpu}_share", f"suggested batch / largest that fits ({most:,})", "×",
             (batch / most,), 0.9, at_least=True),
    ]  # fmt: skip


def _group_settings(graph: Graph, batch: int) -> Line:
    """A step as the group's script takes it: PyKEEN as shipped, all entities at once, float32."""
    config = ConvEConfig(graph.num_entities, graph.num_relations)
    try:
        peers.PykeenStep(graph, config, batch, patched=False, device="cuda").take()
        ran_out = False
    except torch.cuda.OutOfMemoryError:
        ran_out = True
    _forget()
    says = f"the group's settings at batch {batch} on as much memory: ran out"
    return Line("gpu_group_runs_out", says, "runs", (float(ran_out),), 1, at_least=True)


def _fits(job: Job, graph: Graph, batch: int) -> bool:
    """Whether an epoch in batches of so many ends."""
    one = replace(job, options={**job.options, "batch_size": batch})
    _forget()
    with tempfile.TemporaryDirectory() as folder:
        try:
            train_conve(one, graph, torch.device("cuda"), Path(folder), SilentReporter(), StopRequest())
        except torch.cuda.OutOfMemoryError:
            return False
    return True


def largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """By bisection, between what fits and what is taken for too much."""
    while high - low > 1 and high > low * _MORE:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@contextmanager
def _at_most(mib: float) -> Iterator[None]:
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(min(1.0, mib * MIB / total))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        _forget()
