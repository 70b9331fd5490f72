"""The workload `tracin`: it scores the influence of training triples on test triples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from kgops.jobs import chunk_sizes
from kgops.jobs.workload import Workload
from kgops.options.tracin import FILES, FOLDERS, TRACIN_OPTIONS


@dataclass(frozen=True, slots=True)
class Formats:
    """File formats of a run's results; `own_files`: a batch also writes files for each test triple."""

    csv: bool
    json: bool
    parquet: bool
    own_files: bool = False


def formats_of(settings: dict[str, Any]) -> Formats:
    """The requested formats; CSV where no file is named."""
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
    return None if names_files(settings) else chunk_sizes.TRACIN_TOP_K_DEFAULT


def _check(settings: dict[str, Any]) -> list[str]:
    problems = []
    names_run = settings["run"] is not None or settings["from_predictions"] is not None
    if not (settings["model_path"] or settings["checkpoint_dir"] or names_run):
        problems.append("tracin: no model is named; give run, checkpoint_dir or model_path")
    if not names_run:
        problems += check_data(settings)
    if settings["from_predictions"] is not None and settings["test_triple"]:
        problems.append("tracin.test_triple: given together with from_predictions; choose one")
    if settings["new"] and settings["from_predictions"] is None:
        problems.append("tracin.new: only predictions can be new; give from_predictions")
    targets = [name for name in ("test", "test_triple", "test_triples") if settings[name]]
    if settings["test_triple"] and settings["test_triples"]:
        problems.append("tracin.test_triples: given together with test_triple; choose one")
    other_modes = [name for name in ("self_influence", "build_index") if settings[name]]
    if not targets and not other_modes and not settings["dataset"] and not names_run:
        problems.append("tracin: no test triples; give test_triple, test_triples, test or self_influence")
    if settings["strict_path_filtering"] and not settings["path_filtering"]:
        problems.append("tracin.strict_path_filtering: needs path_filtering")
    problems += _check_score(settings)
    if settings["use_index"] and (settings["build_index"] or settings["self_influence"]):
        problems.append("tracin.use_index: cannot be combined with build_index or self_influence")
    return problems + _check_written(settings)


def _check_score(settings: dict[str, Any]) -> list[str]:
    """Problems of options that have no meaning with the score."""
    score, others = settings["score"], ("self_influence", "build_index", "use_index")
    of_logits = ("loss", "both_directions", *others)
    without = {"tracin": (), "cosine": others, "fisher": (*of_logits, "projection_dim"), "trak": of_logits}
    given = [name for name in without.get(score, ()) if settings[name] not in (None, False)]
    return [f"tracin.{name}: has no meaning with the score {score}; leave it out" for name in given]


def _check_written(settings: dict[str, Any]) -> list[str]:
    """Problems of named result files that this kind of run does not write."""
    written = [name for name in ("output", "csv_output", "parquet") if settings[name]]
    if settings["build_index"]:
        return [f"tracin.{name}: build_index writes an index only" for name in written]
    if settings["self_influence"] and settings["parquet"]:
        return ["tracin.parquet: self_influence is written as JSON or CSV: name output or csv_output"]
    return []


def check_data(settings: dict[str, Any]) -> list[str]:
    if settings["dataset"] and settings["train"]:
        return ["tracin.dataset: given together with train; choose one or the other"]
    if not settings["dataset"] and not settings["train"]:
        return ["tracin.train: missing, and so is tracin.dataset; the training triples are needed"]
    return []


def _label(settings: dict[str, Any]) -> str:
    if settings["from_predictions"] is not None:
        return f"predictions of run {settings['from_predictions']}"
    if settings["run"] is not None:
        return f"run {settings['run']}"
    path = PurePath(settings["checkpoint_dir"] or settings["model_path"] or "")
    return str(settings["dataset"] or path.parent.name or path.stem or "tracin")


TRACIN = Workload(
    name="tracin",
    summary="influence of training triples on predictions of test triples",
    options=TRACIN_OPTIONS,
    label=_label,
    check=_check,
    attempts=3,  # finished tiles are kept, so a lost worker costs one tile
    module="kgops.workers.tracin",
    inputs=FILES,
    folders=FOLDERS,
)
