"""Roofline model of run time: the larger of operations over peak rate and bytes over bandwidth, plus kernel launches.

It ranks options. Its seconds are off by a factor, which `corrections.learn_time` learns from measured runs; without
them its seconds on a GPU are what a step takes at least, and said to be predicted.
"""

from __future__ import annotations

import os
from dataclasses import replace

from kgops.gpus.known import KnownGpu
from kgops.jobs.job import Job
from kgops.planning.process_memory import kind_of
from kgops.planning.targets import Target
from kgops.workloads.plan import Rates, Shape, StepTime, plan_of
from kgops.workloads.registry import devices_of, workload_of

# One core of a CPU with AVX-512: what products reached here, and a core's share of the memory's bandwidth. They order
# chunk sizes on a CPU; of its seconds only those of TracIn are shown, as predicted, until such a run was measured.
_CORE_FLOPS = {"fp32": 9e10, "bf16": 3e11}
_CORE_BANDWIDTH = 1.2e10
_CORE_CACHE = 2 << 20  # scores of a chunk that stay in it cost no bandwidth
_CORE_LAUNCH = 2e-6
_CORE_STEP = 3.9e-3  # what a step took there however small its model: dozens of small operations and Python
# Between two kernels of an eager step; what the driver needs, whatever the GPU.
_GPU_LAUNCH = 5e-6
# A GPU of which nothing is known but its driver's answers: ratios between formats as on most.
_UNKNOWN_FLOPS = {"fp32": 2e13, "tf32": 4e13, "fp16": 8e13, "bf16": 8e13}
_UNKNOWN_BANDWIDTH = 6e11


def rates_of(target: Target) -> Rates:
    if not target.on_gpu:
        core = Rates(_CORE_FLOPS, _CORE_BANDWIDTH, _CORE_LAUNCH, _CORE_STEP, _CORE_CACHE, overlaps=False)
        return replace(core, cores=len(os.sched_getaffinity(0)))
    if target.known is None:
        return Rates(_UNKNOWN_FLOPS, _UNKNOWN_BANDWIDTH, _GPU_LAUNCH)
    return Rates(_gpu_flops(target.known), target.known.bandwidth_gb_s * 1e9, _GPU_LAUNCH)


def seconds(shape: Shape, rates: Rates) -> float:
    """Modelled seconds of a training epoch, of all answers, or of a TracIn run over all tests and checkpoints."""
    return step_time(shape, rates).seconds * plan_of(shape.workload).steps(shape)


def time_kind(job: Job) -> str:
    """Runs of one kind are off the model by a similar factor."""
    settings = job.settings
    kind = kind_of(
        *(job.workload, settings.get("engine"), settings.get("model")),
        shared_out=devices_of(job) != 1,
    )
    return f"{kind} {own}" if (own := workload_of(job).time_kind(settings)) else kind


def step_time(shape: Shape, rates: Rates) -> StepTime:
    return plan_of(shape.workload).step_time(shape, rates)


def _gpu_flops(gpu: KnownGpu) -> dict[str, float]:
    tera = 1e12
    fp32 = gpu.fp32_tflops * tera
    flops = {"fp32": fp32, "tf32": (gpu.tf32_tflops or gpu.fp32_tflops) * tera}
    for name in ("fp16", "bf16"):
        flops[name] = gpu.half_tflops * tera if name in gpu.tensor_core_dtypes else fp32
    return flops
