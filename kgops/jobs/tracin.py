"""The workload `tracin`: its job keys, their checks and help. TracIn scores the influence of training triples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from kgops.jobs import chunk_sizes
from kgops.jobs.keys import Key, above, at_least, device_name, one_of
from kgops.jobs.workload import Workload

LOSSES = ("target", "one-to-n", "train")
DATA = ("train", "valid", "test", "entity_to_id", "relation_to_id")
FILES = (*DATA, "test_triples", "model_path", "edge_map", "node_name_dict")
FOLDERS = ("checkpoint_dir", "use_index")
WRITTEN = ("output", "output_dir", "csv_output", "build_index")
FILTERS = (
    *("n_hops", "min_degree", "preserve_test_edges", "strict_hop_constraint"),
    *("path_filtering", "max_total_path_length", "strict_path_filtering"),
)

KEYS = (
    Key(
        "run",
        "int",
        check=at_least(1),
        help="Training run whose checkpoints, learning rates and data are used.",
    ),
    Key("model_path", "str", help="One model file: a kgops checkpoint or PyKEEN weights."),
    Key("checkpoint_dir", "str", help="Folder of checkpoints; scores are summed over all of them."),
    Key("last_checkpoints", "int", check=at_least(1), help="Use only the last N checkpoints."),
    Key("trust_pickle", "bool", False, help="Load pickled files too; loading runs code that they contain."),
    Key("dataset", "str", help="Training triples: a PyKEEN dataset by name."),
    Key("train", "str", help="Training triples: a file."),
    Key("valid", "str", help="Validation triples of the training, where they add entities."),
    Key("test", "str", help="Test triples: all are attributed unless test_triple or test_triples is given."),
    Key(
        "test_triple",
        "str",
        help="One test triple: head, relation, tail; separated by tabs, commas or spaces.",
    ),
    Key("test_triples", "str", help="File of test triples, each filtered to its neighbourhood."),
    Key("start_index", "int", 0, check=at_least(0), help="Skip the first N test triples of the file."),
    Key("max_triples", "int", check=at_least(1), help="Attribute at most N test triples."),
    Key("entity_to_id", "str", help="Entity vocabulary: label and id, in either order."),
    Key("relation_to_id", "str", help="Relation vocabulary: label and id, in either order."),
    Key("edge_map", "str", help="JSON file with names of relations."),
    Key("node_name_dict", "str", help="TSV file with names of entities."),
    Key("output", "str", help="JSON file for a copy of the results."),
    Key("csv_output", "str", help="CSV file for a copy of the results."),
    Key("output_dir", "str", help="Folder for a copy of the results, as CSV and JSON."),
    Key("parquet", "bool", False, help="Write the results as one Parquet file, the smallest format."),
    Key(
        "top_k",
        "int",
        check=at_least(1),
        help="Keep the k strongest influences; default: all in named files, else 100.",
    ),
    Key(
        "loss",
        "str",
        check=one_of(*LOSSES),
        help="Loss whose gradients are compared; default: target, with --run train.",
    ),
    Key("both_directions", "bool", help="Add the inverse of each triple; default: as the model was trained."),
    Key("learning_rate", "float", check=above(0), help="Learning rate for checkpoints that record none."),
    Key("layers", "strings", help="Compare gradients of these layers or parameters only."),
    Key("n_hops", "int", 2, check=at_least(1), help="Filter: hops from the test head and tail."),
    Key("min_degree", "int", 2, check=at_least(0), help="Filter: least degree of one end of an edge."),
    Key("preserve_test_edges", "bool", True, help="Filter: always keep edges at the test head and tail."),
    Key(
        "strict_hop_constraint",
        "bool",
        False,
        help="Filter: apply n_hops to edges at the test head and tail too.",
    ),
    Key("path_filtering", "bool", False, help="Filter: keep only edges on a simple path from head to tail."),
    Key(
        "max_total_path_length",
        "int",
        check=at_least(1),
        help="Filter: longest path in edges; default 2 n_hops.",
    ),
    Key("strict_path_filtering", "bool", False, help="Filter: keep exactly the edges on these paths."),
    Key(
        "skip_tracin", "bool", False, help="Only filter, and write the remaining triples of each test triple."
    ),
    Key("self_influence", "bool", False, help="Score the self-influence of each training triple instead."),
    Key(
        "projection_dim",
        "int",
        check=at_least(8),
        help="Random projection: dimension that wide gradients are projected to.",
    ),
    Key("build_index", "str", help="Write an index of training gradients to this folder."),
    Key("use_index", "str", help="Read training gradients from a folder written by --build-index."),
    Key(
        "validate", "int", check=at_least(1), help="Delete the k strongest triples, train again and compare."
    ),
    Key("seed", "int", 0, check=at_least(0), help="Random seed of projections and of --validate."),
    Key("cache", "str", help="Ignored: the graph is built once and nothing is cached."),
    Key("filter_method", "str", help="Ignored: igraph or networkx; kgops finds the same edges itself."),
    Key(
        "device",
        "str",
        "auto",
        check=device_name,
        help="Device: auto, cpu, cuda or cuda:N; cuda fails without a GPU.",
    ),
)


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
    if not (settings["model_path"] or settings["checkpoint_dir"]) and settings["run"] is None:
        problems.append("tracin: no model is named; give run, checkpoint_dir or model_path")
    if settings["run"] is None:
        problems += check_data(settings)
    targets = [name for name in ("test", "test_triple", "test_triples") if settings[name]]
    if settings["test_triple"] and settings["test_triples"]:
        problems.append("tracin.test_triples: given together with test_triple; choose one")
    other_modes = [name for name in ("self_influence", "build_index") if settings[name]]
    if not targets and not other_modes and not settings["dataset"] and settings["run"] is None:
        problems.append("tracin: no test triples; give test_triple, test_triples, test or self_influence")
    if settings["strict_path_filtering"] and not settings["path_filtering"]:
        problems.append("tracin.strict_path_filtering: needs path_filtering")
    if settings["use_index"] and (settings["build_index"] or settings["self_influence"]):
        problems.append("tracin.use_index: cannot be combined with build_index or self_influence")
    return problems + _check_written(settings)


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
    if settings["run"] is not None:
        return f"run {settings['run']}"
    path = PurePath(settings["checkpoint_dir"] or settings["model_path"] or "")
    return str(settings["dataset"] or path.parent.name or path.stem or "tracin")


TRACIN = Workload(
    name="tracin",
    summary="influence of training triples on predictions of test triples",
    keys=KEYS,
    label=_label,
    check=_check,
    attempts=3,  # finished tiles are kept, so a lost worker costs one tile
    module="kgops.workers.tracin",
    inputs=FILES,
    folders=FOLDERS,
)
