"""Step times that are predicted before a first run: by launches that were counted, and said to be predicted."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from estimate_regress import shape_of as regress_shape_of
from estimate_regress import work_of
from estimating import SilentReporter
from launches import launched
from recording import Recorder

from kgops.gpus.facts import facts_here
from kgops.jobs.job import Job
from kgops.maths.graphs.triples import Graph
from kgops.maths.models.build import build_model
from kgops.maths.predict.pairs import best_pairs
from kgops.maths.predict.ranking import answers, probability_of
from kgops.maths.predict.scores import scorer_of
from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.maths.tracin.blocks import Settings, TracinCheckpoint
from kgops.maths.tracin.loss import ONE_TO_N, TARGET, TracinLoss
from kgops.maths.tracin.scan import AllScores, Scoring
from kgops.maths.train.loop import fit
from kgops.maths.train.settings import TrainSettings
from kgops.planning.memory_estimate import JobSize, Measured, TimeCorrection, job_size_of
from kgops.planning.planner import MachineCorrections, Suggestion, suggest
from kgops.planning.speed import rates_of, seconds, step_time
from kgops.planning.targets import cpu_target, find_targets
from kgops.present.plan_sections import time_text
from kgops.workloads.graphs.counts import counts_of
from kgops.workloads.job_files import read_job
from kgops.workloads.plan import Shape
from kgops.workloads.predict.plan import PredictShape
from kgops.workloads.tracin.sizes import tracin_shape
from kgops.workloads.train.sizes import TrainShape

NATIONS = {"dataset": "nations", "embedding_dim": 128, "output_channels": 8, "validate_every": 0}


def training(**more: Any) -> Job:
    settings = {name: value for name, value in more.items() if name in ("loss", "batch_norm")}
    options = {name: value for name, value in more.items() if name not in settings}
    table = {"workload": "train", "train": {**NATIONS, **settings}, "options": options}
    return read_job(table, "a test's job")


def shape_of(job: Job) -> Shape:
    subject = job_size_of(job)
    assert isinstance(subject, JobSize)
    (shape,) = subject.shapes(dict(job.options), facts_here(None))
    return shape


def suggested(gpu: str | None, measured: TimeCorrection | None = None) -> Suggestion:
    subject = job_size_of(training())
    assert isinstance(subject, JobSize)
    found = suggest(subject, find_targets(gpu)[0] if gpu else cpu_target(), MachineCorrections(time=measured))
    assert found is not None
    return found


def test_a_step_on_a_known_gpu_is_predicted_and_says_so() -> None:
    on_t4 = suggested("t4")
    words = time_text(on_t4, None)
    assert on_t4.predicted_step is not None
    assert f"{on_t4.predicted_step.launches} kernel launches" in words
    assert words.startswith("at least ") and words.endswith("predicted, never measured on Tesla T4")


def test_a_measured_run_takes_the_place_of_the_prediction() -> None:
    measured = TimeCorrection((Measured(1.0, 2.0),))
    assert "never measured" not in time_text(suggested("t4", measured), None)


def test_nothing_is_predicted_for_a_cpu() -> None:
    assert time_text(suggested(None), None).startswith("unknown")


@pytest.mark.parametrize(
    ("changed", "limit"),
    [({}, "launches"), ({"batch": 1 << 14, "entities": 1 << 17}, "operations")],
    ids=["small", "large"],
)
def test_what_limits_a_step_is_named(changed: dict[str, int], limit: str) -> None:
    shape = shape_of(training())
    assert isinstance(shape, TrainShape)
    if changed:
        queries = replace(shape.queries, queries=changed["batch"])
        model = replace(shape.model, num_entities=changed["entities"])
        shape = replace(shape, batch_size=changed["batch"], queries=queries, model=model)
    assert step_time(shape, rates_of(find_targets("t4")[0])).limit == limit


def test_an_epoch_takes_its_steps() -> None:
    shape, rates = shape_of(training(batch_size=32)), rates_of(find_targets("t4")[0])
    assert isinstance(shape, TrainShape)
    steps = -(-shape.queries.queries // 32)
    assert seconds(shape, rates) == pytest.approx(steps * step_time(shape, rates).seconds)


# ---- launches, as the machine counts them ----


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_norm": False},
        {"precision": "fp16"},
        {"entity_chunk": 4},
        {"loss": "kvsall-ce", "entity_chunk": 7},
        {"cuda_graphs": True},
    ],
    ids=str,
)
def test_a_training_step_launches_what_was_planned(
    options: dict[str, Any], nations: Graph, tmp_path: Path
) -> None:
    job = training(batch_size=32, **{"precision": "fp32", **options})
    shape = shape_of(job)
    assert isinstance(shape, TrainShape)
    chosen = {name: value for name, value in options.items() if name != "batch_norm"}
    settings = TrainSettings(batch_size=32, validate_every=0, **{"precision": "fp32", **chosen})

    def train(epochs: int) -> None:
        with torch.device("cuda"):
            model = build_model(shape.model)
        fit(model, nations, replace(settings, num_epochs=epochs), tmp_path / str(epochs), Recorder())

    train(1)  # what a process does once, it has done
    few, many = launched(partial(train, 1)), launched(partial(train, 2))
    a_step = (many - few) / -(-shape.queries.queries // 32)
    assert step_time(shape, rates_of(find_targets("t4")[0])).launches == pytest.approx(a_step, rel=0.15)


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("loss", [TARGET, ONE_TO_N], ids=["target", "one-to-n"])
def test_a_block_of_tracin_launches_what_was_planned(loss: TracinLoss, nations: Graph) -> None:
    shape = shape_of(training())
    assert isinstance(shape, TrainShape)
    with torch.device("cuda"):
        model = build_model(shape.model).eval()

    def trace(block: int) -> None:
        points = [TracinCheckpoint(model, 0.1)]
        scores = torch.zeros(8, len(nations.train), device="cuda")
        sink = AllScores(8, len(nations.train), out=scores)
        Scoring(points, loss, replace(Settings(), block=block))(nations.train, nations.test[:8], sink)

    trace(256)
    few, many = launched(partial(trace, 256)), launched(partial(trace, 64))
    triples = len(nations.train)
    a_block = (many - few) / (-(-triples // 64) - -(-triples // 256))
    asked = {"run": 1, "loss": "target" if loss is TARGET else "one-to-n"}
    job = read_job({"workload": "tracin", "tracin": asked}, "a test's job")
    counts = counts_of(training().settings, None)
    assert counts is not None
    trained: dict[str, Any] = {"trained": {"loss": None, "label_smoothing": 0}, "checkpoints": 1}
    planned = tracin_shape(job, counts, facts_here(None), shape.model, **trained, tests=8)
    assert step_time(planned, rates_of(find_targets("t4")[0])).launches == pytest.approx(a_block, rel=0.15)


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": "fp16"},
        {"temporal_frames": 5, "gradient_checkpointing": True},
        {"precision": "fp16", "gradient_checkpointing": True},
    ],
    ids=str,
)
def test_a_regression_step_launches_what_was_planned(options: dict[str, Any], tmp_path: Path) -> None:
    make_flights(tmp_path, 3, Sky(frames=24, size=16), seed=4)
    plain = {"temporal_frames": 3, "compile": "off", "precision": "fp32"}

    def counted(batch: int, *lengths: int) -> tuple[int, int, int]:
        """Launches and steps of an epoch, by two lengths of a training, and what was planned of one."""
        shape, each = None, []
        for epochs in lengths:
            own = {"data_directory": str(tmp_path), "epochs": epochs, "pretrain": False, "device": "cuda"}
            chosen = {**plain, **options, "batch_size": batch}
            job = read_job({"workload": "regress", "regress": own, "options": chosen}, "a test's job")
            shape = regress_shape_of(job, tmp_path, facts_here(None))
            each.append(launched(work_of(job, tmp_path, torch.device("cuda"), SilentReporter())))
        assert shape is not None
        planned = step_time(shape, rates_of(find_targets("t4")[0])).launches
        return each[-1] - each[0], shape.steps, planned

    counted(8, 1)  # what a process does once, it has done
    (few, few_steps, planned), (many, many_steps, _) = counted(8, 1, 2), counted(4, 1, 2)
    assert planned == pytest.approx((many - few) / (many_steps - few_steps), rel=0.15)


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize(("pairs", "asked", "chunk"), [(False, 1, 14), (False, 64, 14), (True, 1, 4)])
def test_a_block_of_answers_launches_what_was_planned(
    nations: Graph, pairs: bool, asked: int, chunk: int
) -> None:
    trained = shape_of(training())
    counts = counts_of(training().settings, None)
    assert isinstance(trained, TrainShape) and counts is not None
    with torch.device("cuda"):
        model = build_model(trained.model).eval()
    scorer, probability = scorer_of(model, chunk), probability_of({"name": "kvsall-bce"}, model)
    some = nations.train[:asked]
    questions = torch.stack([some[:, 0], some[:, 1], torch.zeros(asked, dtype=torch.long)], dim=1)

    def answer() -> None:
        if pairs:
            best_pairs(scorer, 3, 10, probability, chunk=chunk)
        else:
            list(answers(scorer, questions, 5, probability))

    shape = PredictShape(trained.model, True, counts, asked, 10, 5, pairs, chunk)
    answer()
    assert step_time(shape, rates_of(find_targets("t4")[0])).launches == pytest.approx(
        launched(answer), rel=0.15
    )
