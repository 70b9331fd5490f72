"""Benchmark of the regression network: plain, in FP16, with checkpointing, compiled, and at half its width.

    python -m kgops.maths.trials.regression --size 64 --batch-size 4 --round 1

The frames are synthetic, with a brightness proportional to height; network and step are those of `kgops regress`.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

from kgops.maths.regress.metrics import HeightLoss
from kgops.maths.regress.network import RegressionModel
from kgops.maths.regress.step import RegressionStep
from kgops.maths.train.optimizers import build_optimizer
from kgops.maths.train.settings import resolve_precision
from kgops.maths.trials.interleaved import read_arguments, run_trials
from kgops.maths.trials.variants import (
    Trial,
    TrialResult,
    Untestable,
    Variant,
    device,
    leave_out_compile,
    needs_a_gpu,
    on_gpu,
    run,
)
from kgops.workloads.regress.job import CHANNELS, SMALL_CHANNELS, RegressionConfig

WARM_UP = 2  # steps


def variants(size: int, frames: int, batch: int, steps: int, compiling: bool) -> dict[str, Variant]:
    """`full` and `small` are the documents' configurations, in FP16 on a GPU; full has a batch a quarter larger."""
    draw = torch.Generator().manual_seed(0)
    most = batch * 5 // 4
    all_heights = torch.rand(most, generator=draw)
    all_images = all_heights[:, None, None, None] + 0.1 * torch.randn(
        most, frames, size, size, generator=draw
    )
    all_angles = 90 * torch.rand(most, frames, 2, generator=draw)

    def variant(
        trial: Trial,
        *,
        checkpointing: bool = False,
        compile: str = "off",
        channels: tuple[int, int, int] = CHANNELS,
        precision: str = "fp32",
        windows: int = batch,
    ) -> TrialResult:
        if compile != "off" and not compiling:
            leave_out_compile()
        torch.manual_seed(0)
        config = RegressionConfig(size, size, temporal_frames=frames, channels=channels)
        model = RegressionModel(config, checkpointing=checkpointing).to(device()).train()
        optimizer = build_optimizer("adamw", model, 1e-3)
        resolved = resolve_precision(precision, device())
        step = RegressionStep(model, HeightLoss("huber"), optimizer, resolved, windows, compile=compile)
        images, angles, heights = (
            one[:windows].to(device()) for one in (all_images, all_angles, all_heights)
        )
        weights = torch.ones(windows, device=device())
        last = [0.0]

        def work(count: int) -> None:
            for _ in range(count):
                last[0] = float(step(images, angles, heights, weights))

        measured = trial.measure(lambda _: work(steps), lambda: work(WARM_UP))
        if step.compile_failure:
            raise Untestable(step.compile_failure)
        remark = "compile time and memory are not counted" if compile != "off" else None
        metrics = {"loss": last[0]} if windows == batch else {}
        return TrialResult(measured.each(steps * windows), measured.resident_mib, metrics, remark)

    def fp16(trial: Trial) -> TrialResult:
        needs_a_gpu("mixed precision is CUDA's")
        return variant(trial, precision="fp16")

    usual = "fp16" if on_gpu() else "fp32"
    both = partial(variant, checkpointing=True, compile="default")
    small = partial(variant, channels=SMALL_CHANNELS)
    return {
        "original": variant,
        "original again": variant,
        "+ fp16": fp16,
        "+ checkpointing": lambda trial: variant(trial, checkpointing=True),
        "+ compile": lambda trial: variant(trial, compile="default"),
        "+ checkpointing + compile": both,
        "small model": small,
        "full, as documented": partial(both, precision=usual, windows=most),
        "small, as documented": partial(small, precision=usual),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.maths.trials.regression", description=__doc__)
    parser.add_argument("--size", type=int, default=128, help="pixels on a side of a frame")
    parser.add_argument("--frames", type=int, default=5, help="frames in a window")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1, help="steps in each repetition")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes a minute")
    args = read_arguments(parser, argv)
    chosen = variants(args.size, args.frames, args.batch_size, args.steps, args.compile)
    run_trials(chosen, args.round, trials=args.trials, repetitions=args.repetitions)
    return 0


if __name__ == "__main__":
    run(main)
