"""Whether the largest batch that a plan suggests really fits an emulated GPU, and whether a tenth more is too much.

    python tests/cuda/cuda_machine.py small .venv-cuda/bin/python tests/cuda/batch_judge.py [--settings 40] [--seed 1]

Each setting is a random training. A batch *fits* where an epoch in such batches ends on that GPU. A plan keeps a
margin of the GPU free, so a tenth more need not run out of memory: it is *too much* where the allocator and the
context then hold more than the plan may use. Plans without margin are judged too: how often their batch fits, and a
tenth more does not. It fails where a batch does not fit, where a tenth more leaves over 5 % of what the plan may use,
or where it is too much in fewer than `--at-least` of the settings.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from memory_judge import forget
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).parents[2]))  # started as a program, for `benchmarks`

from functools import partial

from estimate_settings import TrainSetting
from estimating import SilentReporter, drawn_data

from kgops.jobs.job import Job
from kgops.maths.graphs.triples import Graph
from kgops.maths.train.worker import train_conve
from kgops.maths.worker.entry import StopRequest
from kgops.planning.job_size import JobSize
from kgops.planning.planner import MARGIN, MachineCorrections, suggest
from kgops.planning.targets import Target, find_targets
from kgops.workloads.graphs.counts import Counts
from kgops.workloads.plan import plan_of

MIB = 1 << 20
_MORE = 1.1
_TOO_MUCH = 0.9  # of the settings: the allocator's holes come and go with the batch
_FULL = 0.95  # of what the plan may use, with a tenth more
_LARGE = 1 << 16  # numbers; of larger planes no value is computed: memory does not depend on them
_TRIPLES = 60_000
_STEPS = 5  # an epoch has at least so many: a graph is captured in the fourth


class _NoValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Launches what makes large planes of numbers as it is, and computes none of them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        is_large = any(x.is_cuda and x.is_floating_point() and x.numel() >= _LARGE for x in given)
        makes_numbers = all(str(one.type) == "Tensor" for one in func._schema.returns)
        if not is_large or not makes_numbers or func._schema.name in _PLACES:
            return func(*args, **kwargs)
        with _disable_current_modes():
            made = func(*args, **kwargs)
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel() < _LARGE:
                one.fill_(0.5)  # a loss, say, which is looked at
        return made


# Their results are places in other tensors, or sizes.
_PLACES = {
    f"aten::{name}" for name in ("topk", "sort", "argsort", "argmax", "nonzero", "searchsorted", "index")
}


@dataclass(frozen=True)
class Judged:
    """Of one setting: batches that plans suggest with and without a margin, and what came of each and a tenth more."""

    setting: str
    batch: int
    fits: bool
    held: float  # share of what the plan may use, with a tenth more
    bare_batch: int
    bare_fits: bool
    bare_more_fits: bool

    def __str__(self) -> str:
        said = "fits" if self.fits else "DOES NOT FIT"
        bare = "fits" if self.bare_fits else "out of memory"
        more = "fits" if self.bare_more_fits else "out of memory"
        return (
            f"batch {self.batch:6} {said}, a tenth more holds {self.held:.3f} of what may be used; without a margin "
            f"{self.bare_batch:6} {bare}, a tenth more {more}  {self.setting}"
        )


def judge(seed: int) -> Judged:
    """One random setting, in this process, which must hold nothing on the GPU."""
    torch.set_num_threads(1)
    torch.zeros(1, device="cuda")
    forget()
    free, total = torch.cuda.mem_get_info()
    context = (total - free - torch.cuda.memory_reserved()) / MIB
    target = find_targets("0")[0]
    assert target.usable_mib is not None
    bare_target = replace(target, usable_mib=target.usable_mib * (1 + MARGIN))
    for number in range(1000):
        setting = _draw(random.Random(f"batch {seed} {number}"))
        graph, counts = drawn_data(setting, seed)
        stages = plan_of("train").stages(setting.job(), partial(_known, counts))
        assert not isinstance(stages, str)
        job_size = JobSize(setting.job(), counts, tuple(stages))
        batch, bare, examples = (*[_largest(job_size, one, context) for one in (target, bare_target)], counts)
        if batch and bare and _STEPS * _MORE * bare < _queries(setting, examples):
            break
    else:
        raise RuntimeError("no setting has batches enough")
    fits, _ = _run(setting.job(), graph, batch)
    more_fits, held = _run(setting.job(), graph, int(_MORE * batch) + 1)
    usable = target.usable_mib / (1 + MARGIN)
    bare_fits, _ = _run(setting.job(), graph, bare)
    bare_more_fits, _ = _run(setting.job(), graph, int(_MORE * bare) + 1)
    share = (held + context) / usable if more_fits else float("inf")
    return Judged(str(setting), batch, fits, share, bare, bare_fits, bare_more_fits)


def _known(counts: Counts, settings: object) -> Counts:
    return counts


def _draw(rng: random.Random) -> TrainSetting:
    entities = round(1000 * 40 ** rng.random())
    settings: dict[str, Any] = {
        "embedding_dim": rng.choice((64, 100, 128, 200)),
        "output_channels": rng.choice((8, 16, 32)),
        "inverse": rng.random() < 0.6,
        "batch_norm": rng.random() < 0.75,
        "loss": rng.choice(("kvsall-bce", "kvsall-ce", "1vsall-bce", "1vsall-ce")),
        "optimizer": rng.choice(("adam", "adamw", "adagrad", "sgd")),
        "validate_every": rng.choice((0, 1)),
        "num_epochs": 1,
    }
    options = {
        "batch_size": 64,
        "precision": rng.choice(("fp32", "fp16")),
        "gradient_checkpointing": rng.random() < 0.3,
        "cuda_graphs": rng.random() < 0.3,
        "compile": "off",
    }
    if rng.random() < 0.4:
        options["entity_chunk"] = rng.choice((500, 2048, 8192))
    return TrainSetting(entities, rng.choice((3, 20, 150)), _TRIPLES, 200, 200, settings, options)


def _queries(setting: TrainSetting, counts: Any) -> int:
    rows = 2 if setting.settings["inverse"] else 1
    if setting.settings["loss"].startswith("1vsall"):
        return rows * int(counts.train)
    return int(counts.tails.queries) + (int(counts.heads.queries) if rows == 2 else 0)


def _largest(job_size: JobSize, target: Target, context: float) -> int | None:
    found = suggest(job_size, target, MachineCorrections(context_mib=context))
    return None if found is None or found.best.changes else found.largest_batch


def _run(job: Job, graph: Graph, batch: int) -> tuple[bool, float]:
    """Whether an epoch in batches of so many ends, and the MiB that the allocator held at most."""
    forget()
    torch.cuda.reset_peak_memory_stats()
    one = replace(job, options={**job.options, "batch_size": batch})
    fits = True
    with tempfile.TemporaryDirectory() as folder, _NoValues():  # type: ignore[no-untyped-call]
        try:
            train_conve(one, graph, torch.device("cuda"), Path(folder), SilentReporter(), StopRequest())
        except torch.cuda.OutOfMemoryError:
            fits = False
    held = torch.cuda.max_memory_reserved() / MIB
    forget()
    return fits, held


def judged(settings: int, seed: int) -> Iterator[Judged]:
    """That many random settings, each in a process of its own."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, max_tasks_per_child=1) as pool:
        yield from pool.map(judge, [1000 * seed + number for number in range(settings)])


def summary(found: Sequence[Judged]) -> str:
    fits, bare = sum(one.fits for one in found), sum(one.bare_fits for one in found)
    return (
        f"{len(found)} settings: the batch fits in {fits}, a tenth more is too much in "
        f"{sum(one.held > 1 for one in found)}; without a margin it fits in {bare}, a tenth more is out of memory in "
        f"{sum(not one.bare_more_fits for one in found)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--settings", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--at-least", type=float, default=_TOO_MUCH, help="share of settings, default %(default)s"
    )
    asked = parser.parse_args()
    found: list[Judged] = []
    for one in judged(asked.settings, asked.seed):
        print(one, flush=True)
        found.append(one)
    print(summary(found))
    too_much = sum(one.held > 1 for one in found)
    is_right = all(one.fits and one.held >= _FULL for one in found)
    return 0 if is_right and too_much >= asked.at_least * len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
