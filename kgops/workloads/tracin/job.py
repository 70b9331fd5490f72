"""The workload `tracin`: it scores the influence of training triples on test triples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from kgops.jobs.job import Job
from kgops.jobs.on_device import (
    NOTHING_TO_LOAD,
    Applied,
    ValueAndReason,
    WorkerDevice,
    applied_cleanup,
    product_precision,
)
from kgops.jobs.option import defaults_of, not_a_triple
from kgops.jobs.text import on_or_off
from kgops.workloads.shared_options import FOLDERS, data_problems
from kgops.workloads.tracin.options import (
    DEFAULT_LOSS,
    FILES,
    FILTERS,
    TRACIN_BLOCK,
    TRACIN_CHUNK,
    TRACIN_OPTIONS,
    TRACIN_TOP_K_DEFAULT,
    WRITTEN,
    trainings_of_validation,
)
from kgops.workloads.workload import Words, Workload

_DEFAULTS = defaults_of(TRACIN_OPTIONS)
_RANGE = ("start_index", "max_triples")
_TESTS = ("test_triple", "test_triples", "from_predictions", *_RANGE)
_MODES = ("self_influence", "validate")
# Settings that an option makes void: with it they have no effect.
_VOID = {
    "skip_tracin": (
        "skip_tracin only filters",
        (*_MODES, "score", "loss", "layers", "both_directions", "top_k"),
    ),
    "self_influence": (
        "self_influence scores each training triple with itself",
        ("validate", *_TESTS, *FILTERS),
    ),
    "test_triple": ("test_triple is one triple", _RANGE),
}


@dataclass(frozen=True, slots=True)
class Formats:
    """File formats of a run's results; `own_files`: a batch also writes files for each test triple."""

    csv: bool
    json: bool
    parquet: bool
    own_files: bool = False


def formats_of(settings: dict[str, Any]) -> Formats:
    """The requested formats; CSV if the job names no file."""
    batch = bool(settings["test_triples"]) and not settings["self_influence"]
    parquet = bool(settings["parquet"])
    both = bool(settings["output_dir"]) and not batch and not parquet
    only_table = not batch and not names_files(settings)
    csv = bool(settings["csv_output"]) or both or only_table
    return Formats(csv, bool(settings["output"]) or both, parquet, batch)


def names_files(settings: dict[str, Any]) -> bool:
    return any(settings[name] for name in ("output", "csv_output", "output_dir", "parquet"))


def top_k_of(settings: dict[str, Any]) -> int | None:
    """Influences to keep for each test triple; None: all."""
    top_k: int | None = settings["top_k"]
    if top_k is not None:
        return top_k
    return None if names_files(settings) else TRACIN_TOP_K_DEFAULT


def _check(settings: dict[str, Any]) -> list[str]:
    problems = []
    names_run = settings["run"] is not None or settings["from_predictions"] is not None
    if not (settings["model_path"] or settings["checkpoint_dir"] or names_run):
        problems.append("tracin: no model is named; give tracin.run, checkpoint_dir or model_path")
    if not names_run:
        problems += data_problems("tracin", settings)
    problems += _check_predictions(settings)
    targets = [name for name in ("test", "test_triple", "test_triples") if settings[name]]
    if settings["test_triple"] and (problem := not_a_triple(settings["test_triple"])):
        problems.append(f"tracin.test_triple: {problem}")
    if settings["test_triple"] and settings["test_triples"]:
        problems.append("tracin.test_triples: given together with test_triple; choose one")
    if not targets and not settings["self_influence"] and not settings["dataset"] and not names_run:
        problems.append(
            "tracin: no test triples; give test_triple, test_triples, tracin.test or self_influence"
        )
    for name in ("strict_path_filtering", "max_total_path_length"):
        if settings[name] and not settings["path_filtering"]:
            problems.append(f"tracin.{name}: needs path_filtering")
    if settings["last_checkpoints"] and not settings["checkpoint_dir"] and not names_run:
        problems.append("tracin.last_checkpoints: model_path is one checkpoint; give checkpoint_dir")
    return problems + _check_score(settings) + _check_void(settings)


def _check_predictions(settings: dict[str, Any]) -> list[str]:
    """Problems of answers as test triples."""
    if settings["from_predictions"] is None:
        return ["tracin.new: only predictions can be new; give from_predictions"] if settings["new"] else []
    if settings["test_triple"]:
        return ["tracin.test_triple: given together with from_predictions; choose one"]
    return predictions_and_more("tracin", settings, "test_triples")


def predictions_and_more(workload: str, settings: dict[str, Any], triples: str) -> list[str]:
    """Problems of settings that exclude `from_predictions`, which names the model and the triples itself."""
    if settings["checkpoint_dir"] or settings["model_path"]:  # a job that was filled also has them
        return []
    return [
        f"{workload}.{name}: given together with from_predictions, which names its own; choose one"
        for name in ("run", triples)
        if settings[name] is not None
    ]


def _check_score(settings: dict[str, Any]) -> list[str]:
    """Problems of options that have no meaning with the score."""
    score = settings["score"]
    without = {
        "cosine": ("self_influence",),
        "fisher": ("loss", "both_directions", "self_influence"),
    }
    given = [name for name in without.get(score, ()) if settings[name] not in (None, False)]
    return [f"tracin.{name}: has no meaning with the score {score}; leave it out" for name in given]


def _check_void(settings: dict[str, Any]) -> list[str]:
    """Problems of options that another one makes void."""
    problems = {
        name: f"tracin.{name}: {why}; leave it out, or {mode}"
        for mode, (why, names) in _VOID.items()
        if settings[mode]
        for name in names
        if settings[name] != _DEFAULTS[name]
    }
    if settings["self_influence"] and settings["parquet"]:
        return [
            *problems.values(),
            "tracin.parquet: self_influence is written as JSON or CSV: name output or csv_output",
        ]
    return [*problems.values()]


def _label(settings: dict[str, Any]) -> str:
    if settings["from_predictions"] is not None:
        return f"predictions of run {settings['from_predictions']}"
    if settings["run"] is not None:
        return f"run {settings['run']}"
    path = PurePath(settings["checkpoint_dir"] or settings["model_path"] or "")
    return str(settings["dataset"] or path.parent.name or path.stem or "tracin")


Does = Literal["trace", "self", "filter"]


def does_of(settings: Mapping[str, Any]) -> Does:
    """As the worker decides."""
    if settings["skip_tracin"]:
        return "filter"
    return "self" if settings["self_influence"] else "trace"


def _retrainings(settings: Mapping[str, Any]) -> int:
    return trainings_of_validation() if settings["validate"] else 0


def _time_kind(settings: Mapping[str, Any]) -> str:
    return f"{does_of(settings)} {settings['loss'] or DEFAULT_LOSS}"


def _outputs(settings: Mapping[str, Any]) -> dict[str, str]:
    stem = "self_influence" if settings.get("self_influence") else "tracin"
    named = {f"{stem}.json": settings.get("output"), f"{stem}.csv": settings.get("csv_output")}
    return {name: path for name, path in named.items() if path}


def _implied(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"filtering": True} if any(name in settings for name in (*FILTERS, "test_triples")) else {}


WORDS = Words(
    help="""Compute the influence of training triples on test triples with exact TracIn over all checkpoints kept.

    Every flag of run_tracin.py and batch_tracin_with_filtering.py works as it did there, or the run reports what
    happens instead.
    """,
    example="--run 1 --test-triple 'usa,embassy,china' --score fisher --top-k 10",
    plan_example="--run 1 --gpu t4",
    shown=(
        *(
            "test_triple",
            "test_triples",
            "max_triples",
            "from_predictions",
            "top_k",
            "score",
            "loss",
            "n_hops",
        ),
        *("path_filtering", "max_total_path_length", "precision", "skip_tracin", "validate"),
    ),
    paths=(*FILES, *FOLDERS, *WRITTEN),
    triple=("test_triple", "test_triples"),
    implied=_implied,
)


TRACIN = Workload(
    name="tracin",
    summary="influence of training triples on predictions of test triples",
    options=TRACIN_OPTIONS,
    label=_label,
    check=_check,
    attempts=3,  # finished tiles are kept, so a lost worker costs one tile
    module="kgops.maths.tracin.worker",
    keeps_budget=True,
    inputs=FILES,
    folders=FOLDERS,
    reads_model=True,
    retrainings=_retrainings,
    time_kind=_time_kind,
    timed_on_cpu=True,
    outputs=_outputs,
    triples="test_triples",
    shares_devices=True,
    on_clusters=True,
    words=WORDS,
)


def single_device_reason(settings: Mapping[str, Any]) -> str | None:
    """Why a TracIn run uses one device whatever `devices` says; None: it may use several."""
    if settings["self_influence"]:
        return "self-influence runs on one device"
    return None


def tracin_options(
    job: Job,
    device: WorkerDevice,
    processes: int | None,
    why: str | None = None,
    *,
    factored: bool | None = True,
) -> Iterator[Applied]:
    """Applied options of a TracIn run. `factored`: the model is kgops' ConvE (None: unknown). Others stay in fp32."""
    requested = job.options
    precision = product_precision(requested.get("precision", "fp32"), device)
    if not factored:
        precision = _unfactored_precision(requested.get("precision", "fp32"), precision[0], factored)
    yield Applied("precision", *precision)
    yield Applied("filtering", on_or_off(requested.get("filtering", bool(job.settings["test_triples"]))))
    yield Applied("last_layers", on_or_off(requested.get("last_layers", False)))
    yield Applied("block", requested.get("block", TRACIN_BLOCK))
    yield applied_cleanup(job, device)
    for name, value in {"gradient_checkpointing": False, **requested}.items():
        if name == "devices":
            yield Applied(name, processes, why)
        elif name not in _TRACIN_OPTIONS:
            yield _other_tracin_option(name, value)


_TRACIN_OPTIONS = frozenset({"precision", "filtering", "last_layers", "block", "memory_cleanup"})


def _unfactored_precision(requested: str, applied: str, factored: bool | None) -> ValueAndReason:
    if factored is None:
        return (
            (applied, None) if applied == "fp32" else (None, "depends on the model, which the worker reads")
        )
    return "fp32", None if requested == "fp32" else "products of this model stay in fp32"


def _other_tracin_option(name: str, value: Any) -> Applied:
    off = value in (False, "off")
    if name == "entity_chunk":
        return Applied(name, TRACIN_CHUNK if value == "auto" else value)
    if name == "tests_at_once":
        return Applied(name, value)
    if name in ("vectorized_gradients", "test_gradient_caching"):
        reason = "kgops builds no gradient per triple: products of factors give the same scores"
        return Applied(name, "on", None if value else reason)
    if name == "num_workers":
        return Applied(name, 0, None if value == 0 else NOTHING_TO_LOAD)
    option = TRACIN.optimizations.get(name)
    reason = option.off_because if option else _NOT_IN_TRACIN.get(name, "TracIn has no such option")
    return Applied(name, "off", None if off else reason)


_NOT_IN_TRACIN = {
    "batch_size": "TracIn has no batches; `block` is the number of triples scored at once",
    "cuda_graphs": TRACIN.optimizations["compile"].off_because,
    **dict.fromkeys(("optimizer_kernel", "scale_gradients"), "TracIn has no optimizer steps"),
}
