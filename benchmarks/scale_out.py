"""Simulates a TracIn run on many GPUs, from costs measured and checked on this machine.

    python -m benchmarks.scale_out [--data DIR] [--measure FILE]

Costs are measured with kgops' code on DIR's train.txt and test.txt or a random graph. TracIn runs by one and by two
processes, with several cuts, check the predictions; then the large run is simulated. `--measure FILE` only measures
and writes the costs; `--costs FILE` reads them. The speed of a GPU and of the shared file system are assumed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.entry import run
from benchmarks.measure import Line, quietness, table
from benchmarks.scale_bed import Bed, Quiet, draw_graph, on_cores, waited
from benchmarks.scale_costs import measure
from benchmarks.simulation import Case, Costs, Cut, Fleet, Outcome, simulate
from kgops.jobs.numbers import finite_number
from kgops.tracin.attribution import attribute_tests
from kgops.tracin.finished_tests import FinishedTests
from kgops.tracin.scan import Settings
from kgops.tracin.shards import shards_per_tile
from kgops.workers.tracin_parallel import LocalProcesses, SpreadScorer

__all__ = ["LARGE", "main", "predicted", "took"]

LARGE = Case(trains=100_000_000, tests=1_000_000, top_k=100)
_TILE = 4096  # tests of a tile where only the strongest are kept


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    print(quietness(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs, off = None, []
        if args.costs:
            costs = Costs(**json.loads(args.costs.read_text()))
        else:
            bed = _bed(folder, args)
            costs = measure(bed)
            print(_described(bed, costs), flush=True)
            if args.measure:
                args.measure.write_text(json.dumps(asdict(costs), indent=1))
                return 0
            off = check(bed, costs, args.rounds)
    print("\n".join(table(off)) if off else "not checked: these costs were measured before")
    print("\n".join(_large(costs, args)))
    return 0 if all(line.reached is not False for line in off) else 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale_out",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, help="folder with train.txt and test.txt; otherwise drawn")
    parser.add_argument("--tests", type=int, default=128, help="test triples where costs are measured")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--loss", choices=("target", "one-to-n"), default="target")
    parser.add_argument("--top-k", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2, help="of each TracIn run that is predicted")
    parser.add_argument("--measure", type=Path, metavar="FILE", help="measure, keep the costs there, and end")
    parser.add_argument("--costs", type=Path, metavar="FILE", help="costs as --measure has kept them")
    parser.add_argument("--gpu", type=finite_number, default=200, help="a GPU's speed in cores (assumed)")
    parser.add_argument(
        "--entities", type=int, default=10_000_000, help="entities of the large graph (assumed)"
    )
    parser.add_argument("--checkpoints", type=int, default=10, help="checkpoints of the large run (assumed)")
    parser.add_argument(
        "--bandwidth", type=finite_number, default=5, help="GB/s of the file system (assumed)"
    )
    parser.add_argument("--latency", type=finite_number, default=1, help="ms of a call of it (assumed)")
    return parser.parse_args(argv)


def _bed(folder: Path, args: argparse.Namespace) -> Bed:
    data = args.data or draw_graph(folder, 2_000, 20, 40_000, args.tests)
    return Bed.made(folder, data, args.tests, args.top_k, args.dim, args.loss)


# --- predicted and done ---------------------------------------------------------------------------


def check(bed: Bed, costs: Costs, rounds: int) -> list[Line]:
    """Errors of predicted times against TracIn runs here; interleaved, so that noise affects all of them."""
    tests, lines = len(bed.tests), []
    cuts = [Cut(tests, 8, bed.step), Cut(tests, 32, bed.step), Cut(-(-tests // 4), 8, bed.step)]
    workers = (1, 2) if len(os.sched_getaffinity(0)) > 1 else (1,)
    taken: dict[tuple[Cut, int], list[float]] = {}
    for number in range(rounds):
        for cut in cuts:
            for many in workers:
                name = f"check-{number}-{cut.tile}-{cut.shares}-{many}"
                taken.setdefault((cut, many), []).append(took(bed, cut, many, name))
    for (cut, many), seconds in taken.items():
        said = predicted(bed, cut, many, costs)
        off = tuple(100 * abs(said / one - 1) for one in seconds)
        what = f"{many} process{'es' if many > 1 else ''}, tiles of {cut.tile:,}, {cut.shares} shares"
        shown = f"{what}: {said:.1f} s predicted, {min(seconds):.1f} – {max(seconds):.1f} s taken"
        lines.append(Line("scale_out_off", shown, "%", off, 15))
    return lines


def predicted(bed: Bed, cut: Cut, workers: int, costs: Costs) -> float:
    """Seconds of a TracIn run here, until the last tile is merged."""
    case = Case(len(bed.graph.train), len(bed.tests), bed.top_k, len(bed.scoring.checkpoints))
    fleet = Fleet((1.0,) * workers, handing="claims", merging="beside")
    return simulate(case, cut, fleet, replace(costs, write_s=0.0)).seconds


def took(bed: Bed, cut: Cut, workers: int, name: str) -> float:
    """Seconds that it really takes, on as many cores, less those that its workers waited for a core."""
    shards = bed.shards(name, cut)
    parts = FinishedTests(shards.folder / "parts")
    cores = sorted(os.sched_getaffinity(0))[:workers]
    waiting: dict[int, float] = {}

    def look() -> bool:
        for pid in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
            waiting[pid] = max(waiting.get(pid, 0.0), waited(pid))
        return False

    with on_cores(cores):
        begun = time.perf_counter()
        with LocalProcesses(shards, ["cpu"] * workers) as processes:
            scorer = SpreadScorer(shards, processes)
            for chunk in bed.chunks(cut.tile):
                attribute_tests(
                    scorer, bed.graph.train, chunk, parts, top_k=bed.top_k, neighbourhood=None,
                    report=Quiet(), stop_requested=look, on_finished=lambda parts: None,
                )  # fmt: skip
            seconds = time.perf_counter() - begun
    # Workers share the work: while one waited, the other worked.
    return seconds - sum(waiting.values()) / workers


# --- the large one --------------------------------------------------------------------------------


def variants(costs: Costs, args: argparse.Namespace) -> dict[str, tuple[Cut, Fleet]]:
    """The current setup, then one change after the other."""
    shared = {"latency_s": args.latency / 1000, "bandwidth": args.bandwidth * 1e9}
    shares, speeds = shards_per_tile(LARGE.trains, _TILE), (args.gpu,)
    room = Settings().test_mib * 2**20
    each = costs.test_bytes + (0 if args.loss == "target" else 4 * args.entities)
    step = min(_TILE, max(1, int(room / (each * args.checkpoints))))
    today, wider = Cut(_TILE, shares, step), Cut(_TILE, shares, _TILE)
    by_ray = Fleet(speeds, "asked", "beside", **shared)
    by_workers = Fleet(speeds, "asked", "workers", ordered_once=True, **shared)
    return {
        "Slurm as it is": (today, Fleet(speeds, "numbers", "after", **shared)),
        "Ray as it is": (today, by_ray),
        "Slurm, all tests at once": (wider, Fleet(speeds, "numbers", "after", **shared)),
        "Ray, all tests at once": (wider, by_ray),
        "and workers merge and write": (wider, by_workers),
        "and half as many shares": (replace(wider, shares=shares // 2), by_workers),
        "by claims, as on one machine": (wider, Fleet(speeds, "claims", "beside", **shared)),
    }


def _large(costs: Costs, args: argparse.Namespace) -> list[str]:
    case = replace(LARGE, top_k=args.top_k, checkpoints=args.checkpoints)
    costs = replace(costs, crowd=1.0)  # each has a machine, or its share of one, to itself
    lines = [
        f"{case.trains:,} training x {case.tests:,} test triples, top {case.top_k}, {case.checkpoints} checkpoints, "
        f"{args.entities:,} entities; assumed: a GPU is "
        f"{args.gpu:g} cores of these, the file system gives {args.bandwidth:g} GB/s and answers in "
        f"{args.latency:g} ms",
        "| setup | workers | hours | scoring | published | next to scoring most goes to |",
        "|---|---|---|---|---|---|",
    ]
    for name, (cut, fleet) in variants(costs, args).items():
        for many in (1, 8, 64, 512):
            out = simulate(case, cut, replace(fleet, speeds=fleet.speeds * many), costs)
            lines.append(_row(name, many, out))
    rows = case.tests * case.top_k
    return [
        *lines,
        f"files for people: {rows * costs.row_bytes / 1e9:,.0f} GB; a worker's training triples: "
        f"{case.trains * costs.triple_bytes / 1e9:,.0f} GB",
    ]


def _row(name: str, many: int, out: Outcome) -> str:
    most = out.bottleneck
    gone = f"{most}, {out.spent[most] / 3600:.2f} h"
    return (
        f"| {name} | {many} | {out.seconds / 3600:.2f} | {out.efficiency:.0%} "
        f"| {out.shards:,} files, {out.bytes_published / 1e9:,.0f} GB | {gone} |"
    )


def _described(bed: Bed, costs: Costs) -> str:
    graph = bed.graph
    of = (
        f"{len(graph.train):,} training triples, {graph.num_entities:,} entities, {len(bed.tests):,} test triples, "
        f"top {bed.top_k}, loss {bed.job.settings['loss']}"
    )
    return "\n".join(
        [f"measured here, one core; {of}:", *(f"  {k}: {v:.3g}" for k, v in asdict(costs).items())]
    )


if __name__ == "__main__":
    run(main)
