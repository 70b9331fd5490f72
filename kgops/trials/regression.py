"""Benchmark of the regression network: plain, with checkpointing, compiled, with both, and at half its width.

    python -m kgops.trials.regression --size 64 --batch-size 4 --round 1

The frames are synthetic, with a brightness proportional to height; network and step are those of `kgops run regress`.
"""

from __future__ import annotations

import argparse

import torch

from kgops.jobs.regress import CHANNELS, SMALL_CHANNELS, RegressionConfig
from kgops.regression.metrics import HeightLoss
from kgops.regression.network import RegressionModel
from kgops.regression.step import RegressionStep
from kgops.training.optimizers import build_optimizer
from kgops.training.settings import resolve_precision
from kgops.trials.entry import run
from kgops.trials.interleaved import read_arguments, run_trials
from kgops.trials.variants import Trial, TrialResult, Untestable, Variant, leave_out_compile

WARM_UP = 2  # steps


def variants(size: int, frames: int, batch: int, steps: int, compiling: bool) -> dict[str, Variant]:
    draw = torch.Generator().manual_seed(0)
    heights = torch.rand(batch, generator=draw)
    images = heights[:, None, None, None] + 0.1 * torch.randn(batch, frames, size, size, generator=draw)
    angles = 90 * torch.rand(batch, frames, 2, generator=draw)
    precision = resolve_precision("fp32", "cpu")

    def variant(
        trial: Trial,
        *,
        checkpointing: bool = False,
        compile: str = "off",
        channels: tuple[int, int, int] = CHANNELS,
    ) -> TrialResult:
        if compile != "off" and not compiling:
            leave_out_compile()
        torch.manual_seed(0)
        config = RegressionConfig(size, size, temporal_frames=frames, channels=channels)
        model = RegressionModel(config, checkpointing=checkpointing).train()
        optimizer = build_optimizer("adamw", model, 1e-3)
        step = RegressionStep(model, HeightLoss("huber"), optimizer, precision, batch, compile=compile)
        last = [0.0]

        def work(count: int) -> None:
            for _ in range(count):
                last[0] = float(step(images, angles, heights, torch.ones(batch)))

        measured = trial.measure(lambda _: work(steps), lambda: work(WARM_UP))
        if step.compile_failure:
            raise Untestable(step.compile_failure)
        remark = "on the CPU; compile time and memory are not counted" if compile != "off" else None
        return TrialResult(measured.each(steps), measured.resident_mib, {"loss": last[0]}, remark)

    return {
        "original": variant,
        "original again": variant,
        "+ checkpointing": lambda trial: variant(trial, checkpointing=True),
        "+ compile": lambda trial: variant(trial, compile="default"),
        "+ checkpointing + compile": lambda trial: variant(trial, checkpointing=True, compile="default"),
        "small model": lambda trial: variant(trial, channels=SMALL_CHANNELS),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.trials.regression", description=__doc__)
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
