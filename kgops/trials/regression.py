"""The network that regresses heights from frames: as it is, with checkpointing, compiled, with both, at half its width.

    python -m kgops.trials.regression --size 64 --batch-size 4 --round 1

Made frames whose brightness tells the height; the network and its step are those of `kgops run regress`.
"""

from __future__ import annotations

import argparse

import torch

from kgops.jobs.regression_config import CHANNELS, SMALL_CHANNELS, RegressionConfig
from kgops.regression.metrics import HeightLoss
from kgops.regression.network import RegressionModel
from kgops.regression.step import RegressionStep
from kgops.training.optimizers import build_optimizer
from kgops.training.precision import resolve_precision
from kgops.trials.entry import run
from kgops.trials.interleaved import take_turns
from kgops.trials.variants import Done, Turn, Untestable, Way

__all__ = ["main"]

WARM_UP = 2  # steps


def ways(size: int, frames: int, batch: int, steps: int, compiling: bool) -> dict[str, Way]:
    draw = torch.Generator().manual_seed(0)
    heights = torch.rand(batch, generator=draw)
    images = heights[:, None, None, None] + 0.1 * torch.randn(batch, frames, size, size, generator=draw)
    angles = 90 * torch.rand(batch, frames, 2, generator=draw)
    precision = resolve_precision("fp32", "cpu")

    def way(
        turn: Turn,
        *,
        checkpointing: bool = False,
        compile: str = "off",
        channels: tuple[int, int, int] = CHANNELS,
    ) -> Done:
        if compile != "off" and not compiling:
            raise Untestable("--quick leaves it out: compiling takes longer than all of it")
        torch.manual_seed(0)
        config = RegressionConfig(size, size, temporal_frames=frames, channels=channels)
        model = RegressionModel(config, checkpointing=checkpointing).train()
        optimizer = build_optimizer("adamw", model, 1e-3)
        step = RegressionStep(model, HeightLoss("huber"), optimizer, precision, batch, compile=compile)
        last = [0.0]

        def work(count: int) -> None:
            for _ in range(count):
                last[0] = float(step(images, angles, heights, torch.ones(batch)))

        taken = turn.take(lambda _: work(steps), lambda: work(WARM_UP))
        if step.compile_failure:
            raise Untestable(step.compile_failure)
        remark = "on the CPU; compiling is neither timed nor weighed" if compile != "off" else None
        return Done(taken.each(steps), taken.resident_mib, {"loss": last[0]}, remark)

    return {
        "original": way,
        "original again": way,
        "+ checkpointing": lambda turn: way(turn, checkpointing=True),
        "+ compile": lambda turn: way(turn, compile="default"),
        "+ checkpointing + compile": lambda turn: way(turn, checkpointing=True, compile="default"),
        "small model": lambda turn: way(turn, channels=SMALL_CHANNELS),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kgops.trials.regression", description=__doc__)
    parser.add_argument("--size", type=int, default=128, help="pixels on a side of a frame")
    parser.add_argument("--frames", type=int, default=5, help="of a window")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1, help="of a part")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes a minute")
    parser.add_argument("--turns", type=int, default=2, help="how often each way is taken")
    parser.add_argument("--parts", type=int, default=4, help="of a turn; ways take turns at parts")
    parser.add_argument("--round", type=int, default=0, help="which way begins")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # a child of a process that had threads would wait for them for ever
    taken = ways(args.size, args.frames, args.batch_size, args.steps, args.compile)
    take_turns(taken, args.round, turns=args.turns, parts=args.parts)
    return 0


if __name__ == "__main__":
    run(main)
