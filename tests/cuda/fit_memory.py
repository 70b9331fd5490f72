"""Fits what the allocator reserves beyond counted segments to runs that `memory_judge.py --json` measured.

    python tests/cuda/fit_memory.py MEASURED.jsonl

It writes kgops/workloads/memory/fitted.py. Every fifth setting is held out, and its errors are printed.
"""

import json
import statistics
import sys
from collections import defaultdict
from itertools import product
from pathlib import Path

from estimate_regress import shape_of_setting
from estimating import drawn_data
from memory_judge import regress_setting, train_setting

from kgops.gpus.facts import GpuFacts
from kgops.workloads.memory import fitted
from kgops.workloads.memory.fitted import RESERVED, Fitted
from kgops.workloads.memory.phases import Phases
from kgops.workloads.regress import memory as regress
from kgops.workloads.train import memory as train
from kgops.workloads.train.sizes import train_shape

GPUS = {
    "t4": GpuFacts("Tesla T4", (7, 5)),
    "a100": GpuFacts("NVIDIA A100-SXM4-40GB", (8, 0)),
    "h200": GpuFacts("NVIDIA H200", (9, 0)),
}
_MIB = 1 << 20
_UNDER = 0.07  # that a fitted setting may be predicted too low: plans have a margin of a tenth
_FACTORS = [1.03 + step / 100 for step in range(60)]  # graphs that are larger than drawn ones have more holes
_SPARE = range(8, 41, 4)  # MiB
Sample = tuple[int, int]
"""Segments counted, and bytes reserved."""


def phases_of(workload: str, seed: int, machine: str) -> Phases:
    gpu = GPUS[machine]
    if workload == "regress":
        return regress.phases(shape_of_setting(regress_setting(seed, gpu), gpu), gpu)
    setting = train_setting(seed, gpu)
    shape = train_shape(setting.job(), drawn_data(setting, seed)[1], gpu)
    assert shape is not None
    return train.phases(shape, gpu)


def fit(samples: list[Sample]) -> Fitted:
    """The smallest error of large jobs, by mean, among those that predict no sample much too low."""
    large = [one for one in samples if one[1] > 1 << 30] or samples

    def cost(way: Fitted) -> tuple[float, float]:
        under = max(0.0, -_UNDER - min(_errors(samples, way)))
        return under, statistics.fmean(map(abs, _errors(large, way)))

    return min((Fitted(*way) for way in product(_FACTORS, _SPARE)), key=cost)


def _errors(samples: list[Sample], way: Fitted) -> list[float]:
    return [(way.factor * counted + way.mib * _MIB) / reserved - 1 for counted, reserved in samples]


def main(path: Path) -> None:
    fitted_on: dict[str, list[Sample]] = defaultdict(list)
    held_out: dict[str, list[Sample]] = defaultdict(list)
    for line in path.read_text().splitlines():
        one = json.loads(line)
        if one["workload"] in ("train", "regress"):
            counted = phases_of(one["workload"], one["seed"], one["machine"])
            where = fitted_on if one["seed"] % 5 else held_out
            where[counted.kind].append((counted.segments, round(one["reserved"] * _MIB)))
    found = RESERVED | {kind: fit(samples) for kind, samples in fitted_on.items()}
    for kind, samples in held_out.items():
        errors = _errors(samples, found[kind])
        way, lowest, highest = found[kind], 100 * min(errors), 100 * max(errors)
        print(
            f"{kind}: {way.factor:.2f}, {way.mib} MiB from {len(fitted_on[kind])} settings; {len(errors)} held out: "
            f"{lowest:+.1f} % to {highest:+.1f} %, median {100 * statistics.median(errors):+.1f} %"
        )
    table = Path(fitted.__file__)
    head = table.read_text().partition("RESERVED = {")[0]
    rows = [f"    {json.dumps(kind)}: Fitted({way.factor:.2f}, {way.mib}),\n" for kind, way in found.items()]
    table.write_text(f"{head}RESERVED = {{\n{''.join(rows)}}}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
