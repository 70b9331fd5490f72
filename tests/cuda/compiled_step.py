"""Compiles a step for the GPU of this machine and takes it: `compiled_step.py train fp16`, or regress, with Triton.

The GPU is the stand-in's, so kernels are really compiled for its compute capability, and launched, and compute nothing.
Any warning is an error, but for those of torch's compiler about its own code. Prints what became of it, as JSON, and
how many kernels the last step launched beside how many a plan says.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from cuda_values import give_bf16_to_cudnn
from launches import launched
from recording import Recorder

from kgops.gpus.facts import facts_here
from kgops.maths.graphs.triples import read_pykeen_dataset
from kgops.maths.models.build import build_model
from kgops.maths.regress.batches import Prepared
from kgops.maths.regress.flights import read_flights
from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.maths.regress.metrics import HeightLoss
from kgops.maths.regress.network import RegressionModel
from kgops.maths.regress.stages import RegressionSettings, plan_stages
from kgops.maths.regress.step import RegressionStep
from kgops.maths.train.acceleration import AcceleratedStep
from kgops.maths.train.batches import Batches
from kgops.maths.train.losses import EntityLoss
from kgops.maths.train.settings import resolve_precision
from kgops.planning.memory_estimate import JobSize, job_size_of
from kgops.planning.speed import rates_of, step_time
from kgops.planning.targets import find_targets
from kgops.workloads.job_files import read_job
from kgops.workloads.train.sizes import TrainShape

BATCH = 8
# What compile and precision came to, the shape that is planned, and steps to take.
Told = tuple[tuple[Any, str | None], str, Any, Sequence[Callable[[], object]]]


def train(precision: str) -> Told:
    shape = planned("train", {"dataset": "nations", "embedding_dim": 32, "validate_every": 0}, precision)
    assert isinstance(shape, TrainShape)
    with torch.device("cuda"):
        model = build_model(shape.model)
    graph = read_pykeen_dataset("nations")
    how: dict[str, Any] = {"inverse": True, "one_positive": False, "batch_size": BATCH, "device": "cuda"}
    batches = Batches(graph.train, seed=0, **how).epoch(1)
    report = Recorder()
    applied = resolve_precision(precision, "cuda")
    # The rate a number: `build_optimizer` makes it a tensor, and torch looks at its value.
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    step = AcceleratedStep(
        model,
        EntityLoss(dtype=applied.dtype, chunk=shape.chunk),
        optimizer,
        requested=("default", False),
        usual_size=BATCH,
        checkpointing=False,
        report=report,
    )
    step.prepare(next(batches))
    takes = [lambda: step(next(batches), want_value=False)] * 3
    return report.options["compile"][1:], applied.applied, shape, takes


def regress(precision: str) -> Told:
    with tempfile.TemporaryDirectory() as folder:
        make_flights(Path(folder), 3, Sky(frames=24, size=16), seed=4)
        settings = {"data_directory": folder, "pretrain": False}
        shape = planned("regress", settings, precision)
        flights = read_flights(Path(folder), shape.model.temporal_frames)
        applied = resolve_precision(precision, "cuda")
        model = RegressionModel(shape.model).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        own = RegressionSettings(batch_size=BATCH, pretrain=False)
        data = Prepared(plan_stages(flights, own)[0], shape.model.temporal_frames, own, torch.device("cuda"))
        batches = [batch for batch in data.stream.epoch("key") if len(batch) == BATCH][:3]
    step = RegressionStep(model, HeightLoss(), optimizer, applied, BATCH, compile="default")
    step.rehearse()
    takes = [lambda batch=batch: step(*data.inputs(batch, "key")) for batch in batches]
    compiled = "off" if step.compile_failure else step.compile, step.compile_failure
    return compiled, applied.applied, shape, takes


def planned(workload: str, settings: dict[str, Any], precision: str) -> Any:
    options = {"batch_size": BATCH, "precision": precision, "compile": "default"}
    job = read_job({"workload": workload, workload: settings, "options": options}, "a test's job")
    size = job_size_of(job)
    assert isinstance(size, JobSize)
    (shape,) = size.shapes(dict(job.options), facts_here(None))
    return shape


def main(workload: str, precision: str) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", module=r"torch\._(inductor|dynamo|functorch)")
    warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)  # in torch's own modules
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)  # the stand-in has no such attention
    give_bf16_to_cudnn("cuda")
    compiled, applied, shape, takes = {"train": train, "regress": regress}[workload](precision)
    for take in takes:
        counted = launched(take)
    told: dict[str, Any] = {"compile": compiled, "precision": applied}
    told |= {"eager": dict(torch._dynamo.utils.counters["graph_break"])}
    told |= {"launched": counted, "planned": step_time(shape, rates_of(find_targets("0")[0])).launches}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
