"""The memory estimate of a regression: beside what its training really allocates, by part, and quickly."""

import random
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from counting import calls_of
from estimate_regress import draw_regress
from estimating import compare_regress, judge

from kgops.gpus.facts import GpuFacts
from kgops.maths.regress.batches import Training
from kgops.maths.regress.flights import Flight, Survey
from kgops.maths.regress.stages import RegressionSettings
from kgops.planning.memory_estimate import job_size_of, predict
from kgops.planning.planner import suggest
from kgops.planning.speed import rates_of, seconds
from kgops.planning.targets import find_targets
from kgops.workloads import number_formats
from kgops.workloads.job_files import read_job
from kgops.workloads.number_formats import applied_precision
from kgops.workloads.regress.memory import MOMENTS
from kgops.workloads.regress.options import OPTIMIZERS, REGRESS_BATCH
from kgops.workloads.regress.sizes import Flights, RegressShape, regress_shape

T4 = GpuFacts("Tesla T4", (7, 5))


def shape_of(
    gpu: GpuFacts | None = None, size: int = 224, options: dict[str, Any] | None = None, **settings: Any
) -> RegressShape:
    table = {
        "workload": "regress",
        "regress": {"image_size": str(size), **settings},
        "options": options or {},
    }
    job = read_job(table, "test")
    flights = Flights(size, size, 1, {"a": 500, "b": 400, "c": 300})
    return regress_shape(job, flights, gpu, applied_precision((options or {}).get("precision", "fp32"), gpu))


def need(**options: Any) -> int:
    return predict(shape_of(T4, options=options), T4).total


def test_a_format_that_two_cpus_have_is_predicted_alike_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def predicted(precision: str, *flags: str) -> int:
        monkeypatch.setattr(number_formats, "_cpu_flags", lambda: frozenset(flags))
        return predict(shape_of(size=32, options={"precision": precision, "batch_size": 1})).total

    assert predicted("bf16", "avx512_bf16", "amx_bf16") == predicted("bf16", "avx512_bf16")
    assert predicted("fp32", "avx512_bf16", "amx_bf16") == predicted("fp32", "avx2")


def test_what_a_processor_can_do_is_read_on_x86_and_on_arm() -> None:
    for text, flags in (
        ("CPU\t: 0\nflags\t\t: fpu avx512_bf16\nvmx flags\t: vnmi\n", {"fpu", "avx512_bf16"}),
        ("CPU\t: 0\nFeatures\t: asimd svebf16\nCPU part\t: 0xd4f\n", {"asimd", "svebf16"}),
        ("cpu model\t: something else\n", set()),
    ):
        assert number_formats.cpu_flags_in(text) == flags


# ---- beside what is measured ----


def test_regressions_take_what_was_predicted() -> None:
    drawn = [(seed, random.Random(seed)) for seed in range(710_000, 710_012)]
    judge([compare_regress(draw_regress(rng, gflop=3), seed) for seed, rng in drawn])


def test_so_they_do_frame_by_frame_piece_by_piece_and_in_fewer_bits() -> None:
    ways: list[dict[str, Any]] = [
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": True, "microbatch": 2},
        {"gradient_checkpointing": True, "precision": "bf16"},
        {"precision": "bf16"},
        {"microbatch": 3},
    ]
    outcomes = []
    for number, way in enumerate(ways):
        drawn = draw_regress(random.Random(711_000 + number), gflop=3)
        options = {"temporal_frames": 3, "batch_size": 8, "memory_optimized": True, **way}
        setting = replace(drawn, height=24, width=28, frames=20, options=options)
        outcomes.append(compare_regress(setting, number))
    judge(outcomes)


def test_a_estimate_knows_the_training_that_it_follows() -> None:
    """Numbers that two rooms hold, since this one loads no torch."""
    assert RegressionSettings().batch_size == REGRESS_BATCH
    assert set(OPTIMIZERS) == {*MOMENTS, "sgd"}


# ---- by part ----


def test_parts_sum_to_the_total_and_a_gpu_adds_its_own() -> None:
    for gpu in (None, T4):
        estimate = predict(shape_of(gpu), gpu)
        assert sum(row.size for row in estimate.explain()) == estimate.total
        assert {"weights", "gradients", "optimizer", "activations"} <= estimate.parts.keys()
        assert ("context" in {row.part for row in estimate.explain()}) == (gpu is not None)
        assert {"loading", "step", "validation", "test"} <= estimate.phases.keys()


def test_every_option_of_memory_needs_less() -> None:
    usual = need(batch_size=16)
    for option in (
        {"gradient_checkpointing": True},
        {"microbatch": 4},
        {"temporal_frames": 3},
        {"memory_optimized": True},
        {"batch_size": 8},
    ):
        assert need(**{"batch_size": 16, **option}) < 0.8 * usual, option
    # The maps of a frame in work, and of the last frame's way back: not those of five.
    assert need(gradient_checkpointing=True) < 0.45 * usual


def test_a_smaller_piece_does_what_a_smaller_batch_does() -> None:
    piece = predict(shape_of(options={"batch_size": 32, "microbatch": 4}))
    batch = predict(shape_of(options={"batch_size": 4}))
    frames = 32 * 5 * 224 * 224 * 4
    assert batch.live <= piece.live <= batch.live + 4 * frames


def test_the_original_settings_hardly_fit_a_t4_and_the_shipped_ones_do() -> None:
    """Batches of 20 windows of 224 pixels: their guide says 14-15 GB before, 9-10 GB after."""
    before = predict(shape_of(T4, options={"batch_size": 20}), T4)
    after = predict(shape_of(T4, options={"batch_size": 20, "gradient_checkpointing": True}), T4)
    assert 11_000 < before.total_mib < 16_000
    assert after.total_mib < 0.45 * before.total_mib


def test_windows_are_split_as_training_splits_them() -> None:
    survey = Survey(0.0, 1.0, np.zeros((8, 8), np.float32))
    for count, length in ((4, 4), (9, 3), (40, 5), (41, 8), (200, 1)):
        column = np.zeros(count, np.float32)
        frames = np.zeros((count, 8, 8), np.uint8)
        flight = Flight("a", None, frames, column, column, column, np.arange(count, dtype=float), survey)  # type: ignore[arg-type]
        split = Training.of([flight], length)
        table = {"regress": {"image_size": "8"}, "options": {"temporal_frames": length}}
        job = read_job({"workload": "regress", **table}, "test")
        found = regress_shape(job, Flights(8, 8, 1, {"a": count, "b": 50}), None, "fp32")
        assert (found.train, found.valid) == (len(split.train), len(split.valid)), (count, length)
        assert found.held_out == 50 - length + 1


# ---- fast, and of use ----


def test_an_estimate_takes_some_thousand_calls() -> None:
    for shape in (shape_of(T4), shape_of(T4, options={"gradient_checkpointing": True, "microbatch": 1})):
        assert calls_of(partial(predict, shape, T4)) < 50_000  # milliseconds


def test_checkpointing_costs_time_and_fewer_bits_and_channels_save_it() -> None:
    rates = rates_of(find_targets("t4")[0])

    def pace(**options: Any) -> float:
        return seconds(shape_of(T4, options=options), rates)

    half, halved = pace(precision="fp16"), pace(precision="fp16", memory_optimized=True)
    assert pace(gradient_checkpointing=True) > pace() > half > halved


@pytest.mark.parametrize(("size", "checkpoints"), [(160, False), (440, True)])
def test_the_fastest_plan_that_fits_keeps_activations_wherever_they_fit(size: int, checkpoints: bool) -> None:
    job = read_job({"workload": "regress", "regress": {"image_size": str(size)}, "profile": "auto"}, "test")
    subject = job_size_of(job)
    assert not isinstance(subject, str)
    found = suggest(subject, find_targets("t4")[0])
    assert found is not None and found.fits
    assert found.best.changes == ({"gradient_checkpointing": True} if checkpoints else {})
    assert found.largest_batch is not None and found.largest_batch >= REGRESS_BATCH
    assert found.target.usable_mib is not None and found.best.need_mib <= found.target.usable_mib
