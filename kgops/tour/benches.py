"""Benchmarks of the tour: sample data with verdicts of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgops.experiments.claims import shipped
from kgops.experiments.summary import as_measurements
from kgops.tour.curves import wobble
from kgops.tour.parts import TRAIN, training, with_
from kgops.tour.story import SAMPLE_DATA, SAMPLE_MARK, OptionValue, SampleRun, environment
from storage import benches, claims, measurements
from storage.benches import Pair
from storage.database import Connection

__all__ = ["bench_stories", "put_benches"]

_ROUNDS = 3
_MATRIX_DAYS = (37.0, 19.3)  # two benchmarks of one plan, for comparison
_CLAIMS_DAYS = 29.7
_COMMAND = f"kgops demo --tour  # {SAMPLE_DATA}"
_MATRIX = f"umls batch sizes and precision {SAMPLE_MARK}"
_CLAIMS = f"claims a {SAMPLE_MARK}: training ConvE, batch 256"
# variant → speed-up, memory saving; None: it could not be run.
_SPEED_UP: dict[str, dict[str, tuple[float, float] | None]] = {
    _MATRIX: {
        "batch_size=256 precision=fp32": (1.0, 1.0),
        "batch_size=256 precision=fp16": (1.71, 1.62),
        "batch_size=512 precision=fp32": (1.32, 0.63),
    },
    _CLAIMS: {
        "fp32": (1.0, 1.0),
        "fp32 again": (1.004, 1.0),
        "+ cleanup": (0.91, 1.01),
        "+ fp16": (2.12, 1.71),
        "+ checkpointing": (0.78, 1.52),
        "+ fp16 + checkpointing": (1.61, 2.31),
        "+ compile": (1.08, 1.01),
        "+ four GPUs": None,
    },
}
_SECONDS, _MIB = 8.4, 3744.0


def bench_stories() -> list[SampleRun]:
    """The runs of the benchmarks: one for each variant and round, or one for each round with all variants."""
    first, second = (_matrix_stories(1 + 2 * n, days) for n, days in enumerate(_MATRIX_DAYS))
    return [*first, *_claims_stories(), *second]


def _matrix_stories(bench: int, days: float) -> Iterator[SampleRun]:
    for n in range(_ROUNDS):
        for i, name in enumerate(_SPEED_UP[_MATRIX]):
            speed, memory = _SPEED_UP[_MATRIX][name] or (1.0, 1.0)
            yield SampleRun(
                *("train", f"bench {bench}: {name}", {"dataset": "umls", "num_epochs": 10}),
                *(days - 0.02 * n - 0.005 * i, 1.5 / speed),
                options=with_(
                    TRAIN,
                    *(OptionValue(key, value, value, by="person") for key, value in _varied(name).items()),
                ),
                curves=training(10, (0.214, 0.1), None, epoch_s=_SECONDS / speed),
                metrics={"test_mrr": 0.61 + 0.004 * wobble(name, n), "train_s": 10 * _SECONDS / speed},
                took_mib=_MIB / memory,
                tags=(f"bench-{bench}",),
            )


def _claims_stories() -> Iterator[SampleRun]:
    command = {"command": ["python", "-m", "kgops.trials.training"]}
    for n in range(_ROUNDS):
        yield SampleRun(
            *("exec", f"bench 2: claims a, round {n + 1}", command, _CLAIMS_DAYS - 0.02 * n, 4.0),
            took_mib=_MIB,
            tags=("bench-2",),
        )


def put_benches(conn: Connection, numbers: list[int], now: float) -> None:
    """Writes the benchmarks; `numbers` are the run numbers of `bench_stories`, in order."""
    claims.keep(conn, [held.claim for held in shipped()])
    rest = iter(numbers)
    first = _run_numbers(_MATRIX, rest)
    whole = [next(rest) for _ in range(_ROUNDS)]
    together = {(n, name): whole[n] for n in range(_ROUNDS) for name in _SPEED_UP[_CLAIMS]}
    second = _run_numbers(_MATRIX, rest)
    for name, runs, days in (
        (_MATRIX, first, _MATRIX_DAYS[0]),
        (_CLAIMS, together, _CLAIMS_DAYS),
        (_MATRIX, second, _MATRIX_DAYS[1]),
    ):
        _put(conn, name, runs, now - days * 86400)


def _run_numbers(name: str, numbers: Iterator[int]) -> dict[tuple[int, str], int]:
    return {(n, variant): next(numbers) for n in range(_ROUNDS) for variant in _SPEED_UP[name]}


def _put(conn: Connection, name: str, runs: dict[tuple[int, str], int], begun: float) -> None:
    whole = environment()
    fingerprint = {key: whole[key] for key in ("python", "packages", "machine", "driver", "gpus", "git")}
    variants = [{"name": one, "job": {}, "varied": _varied(one)} for one in _SPEED_UP[name]]
    plan = {
        "variants": variants,
        "rounds": _ROUNDS,
        "warm_all": True,
        "together": name == _CLAIMS,
        "cwd": "/",
    }
    number = benches.begin(conn, name, plan, _COMMAND, fingerprint, begun)
    for pair in _pairs(name, runs, begun):
        benches.add_pair(conn, number, pair)
    benches.end(conn, number, begun + 3600)
    bench = benches.get(conn, number)
    assert bench is not None
    measurements.replace_of_bench(conn, number, as_measurements(conn, bench))


def _pairs(name: str, runs: dict[tuple[int, str], int], begun: float) -> Iterator[Pair]:
    first, *others = _SPEED_UP[name]
    for n in range(_ROUNDS):
        baseline = _measured(name, first, runs[n, first])
        for variant in others:
            both = runs[n, first], runs[n, variant]
            at = begun + 900 * (n + 1)
            yield Pair(
                n + 1, variant, *both, baseline, _measured(name, variant, runs[n, variant]), 0.02, (), at
            )


def _measured(bench: str, variant: str, n: int) -> dict[str, Any]:
    """The values of a run, with a small deviation that depends on `n`."""
    ratio = _SPEED_UP[bench][variant]
    values: dict[str, Any] = {
        "state": "succeeded",
        "trouble": None,
        "seconds": None,
        "memory_mib": None,
        "took_s": None,
        "seconds_of": f"an epoch, {SAMPLE_DATA}",
        "memory_of": f"GPU memory, {SAMPLE_DATA}",
        "metrics": {},
        "options": {},
        "remark": SAMPLE_DATA,
    }
    if ratio is None:
        return {**values, "state": "refused", "trouble": f"a machine with one GPU ({SAMPLE_DATA})"}
    seconds = _SECONDS / ratio[0] * (1 + 0.01 * wobble(bench + variant, n))
    memory = _MIB / ratio[1] * (1 + 0.002 * wobble(variant + bench, n))
    metrics = {"loss": 0.1 + 0.0004 * wobble(variant, n)}
    return {**values, "seconds": seconds, "took_s": seconds * 12, "memory_mib": memory, "metrics": metrics}


def _varied(name: str) -> dict[str, str]:
    return dict(word.split("=") for word in name.split() if "=" in word)
