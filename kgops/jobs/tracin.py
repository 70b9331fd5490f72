"""The workload `tracin`: which training triples made a model believe a test triple."""

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
    Key("run", "int", check=at_least(1), help="A training run of kgops: its checkpoints, rates and data."),
    Key("model_path", "str", help="One model: a checkpoint of kgops', or weights that PyKEEN wrote."),
    Key("checkpoint_dir", "str", help="Folder of checkpoints; scores are summed over all of them."),
    Key("last_checkpoints", "int", check=at_least(1), help="Only the last so many of them."),
    Key("trust_pickle", "bool", False, help="Load pickles too: that runs the code in them."),
    Key("dataset", "str", help="The training triples: one of PyKEEN's datasets by name."),
    Key("train", "str", help="The training triples: a file."),
    Key("valid", "str", help="The validation triples it was trained beside, where they add entities."),
    Key("test", "str", help="The test triples: all are traced, unless others are named."),
    Key("test_triple", "str", help="Trace this one: head, relation and tail, by tabs, commas or spaces."),
    Key("test_triples", "str", help="Trace a batch file, each triple on its neighbourhood, files for each."),
    Key("start_index", "int", 0, check=at_least(0), help="Leave out so many triples of the file."),
    Key("max_triples", "int", check=at_least(1), help="Trace at most so many."),
    Key("entity_to_id", "str", help="Vocabulary of entities, two columns in either order."),
    Key("relation_to_id", "str", help="Vocabulary of relations, two columns in either order."),
    Key("edge_map", "str", help="JSON that says what relations are called."),
    Key("node_name_dict", "str", help="TSV that says what entities are called."),
    Key("output", "str", help="Write the results as JSON, and copy them there."),
    Key("csv_output", "str", help="Write the results as CSV, and copy them there."),
    Key("output_dir", "str", help="Write CSV and JSON, and copy all results to this folder."),
    Key("parquet", "bool", False, help="Write the results as one Parquet file: the smallest."),
    Key(
        "top_k",
        "int",
        check=at_least(1),
        help="Keep the k strongest; default: all in files that are named, else 100.",
    ),
    Key("loss", "str", check=one_of(*LOSSES), help="Whose gradient; default: target, with --run train."),
    Key("both_directions", "bool", help="Also each triple's inverse; default: as the loss was trained."),
    Key("learning_rate", "float", check=above(0), help="For checkpoints that do not say theirs."),
    Key("layers", "strings", help="Only these layers or parameters."),
    Key("n_hops", "int", 2, check=at_least(1), help="Filter: how far from head and tail."),
    Key("min_degree", "int", 2, check=at_least(0), help="Filter: neighbours one end must have."),
    Key("preserve_test_edges", "bool", True, help="Filter: keep edges at the test head and tail anyway."),
    Key("strict_hop_constraint", "bool", False, help="Filter: the test head and tail keep to the hops too."),
    Key("path_filtering", "bool", False, help="Filter: only edges on a simple path from head to tail."),
    Key("max_total_path_length", "int", check=at_least(1), help="Filter: edges of a path; default 2 n_hops."),
    Key("strict_path_filtering", "bool", False, help="Filter: exactly the edges on such paths."),
    Key("skip_tracin", "bool", False, help="Only filter, and write what is left for each triple."),
    Key("self_influence", "bool", False, help="Score each training triple with itself instead."),
    Key("projection_dim", "int", check=at_least(8), help="Project wide gradients to so many numbers."),
    Key("build_index", "str", help="Write the training side to this folder, for later queries."),
    Key("use_index", "str", help="Take the training side from a folder written by --build-index."),
    Key("validate", "int", check=at_least(1), help="Delete the k found triples, train again, and compare."),
    Key("seed", "int", 0, check=at_least(0), help="Of projections and of what --validate draws."),
    Key("cache", "str", help="Accepted: the graph is built once, in a moment, and nothing is cached."),
    Key("filter_method", "str", help="Accepted: igraph or networkx; kgops finds the same edges itself."),
    Key(
        "device", "str", "auto", check=device_name, help="auto, cpu, cuda, or cuda:N; cuda insists on a GPU."
    ),
)


@dataclass(frozen=True, slots=True)
class Formats:
    """In what a run writes its results; `own_files` for each test triple of a batch as well."""

    csv: bool
    json: bool
    parquet: bool
    own_files: bool = False


def formats_of(settings: dict[str, Any]) -> Formats:
    """What was asked for, and no more. Where no file is named a table of the strongest is kept."""
    batch = bool(settings["test_triples"]) and not settings["self_influence"]
    parquet = bool(settings["parquet"])
    both = bool(settings["output_dir"]) and not batch and not parquet
    alone = not batch and not names_files(settings)
    csv = bool(settings["csv_output"]) or both or alone
    return Formats(csv, bool(settings["output"]) or both, parquet, batch)


def names_files(settings: dict[str, Any]) -> bool:
    return any(settings[name] for name in ("output", "csv_output", "output_dir", "parquet"))


def top_k_of(settings: dict[str, Any]) -> int | None:
    """How many influences are kept of each test triple; None: all of them."""
    asked: int | None = settings["top_k"]
    if asked is not None:
        return asked
    return None if names_files(settings) else chunk_sizes.TRACIN_TOP_K_OF_A_RUN


def _check(settings: dict[str, Any]) -> list[str]:
    problems = []
    if not (settings["model_path"] or settings["checkpoint_dir"]) and settings["run"] is None:
        problems.append("tracin: no model is named; give run, checkpoint_dir or model_path")
    if settings["run"] is None:
        problems += check_data(settings)
    asked = [name for name in ("test", "test_triple", "test_triples") if settings[name]]
    if settings["test_triple"] and settings["test_triples"]:
        problems.append("tracin.test_triples: given together with test_triple; choose one")
    alone = [name for name in ("self_influence", "build_index") if settings[name]]
    if not asked and not alone and not settings["dataset"] and settings["run"] is None:
        problems.append("tracin: nothing to trace; give test_triple, test_triples, test or self_influence")
    if settings["strict_path_filtering"] and not settings["path_filtering"]:
        problems.append("tracin.strict_path_filtering: has no meaning without path_filtering")
    if settings["use_index"] and (settings["build_index"] or settings["self_influence"]):
        problems.append(
            "tracin.use_index: answers queries; it goes with neither build_index nor self_influence"
        )
    return problems + _check_written(settings)


def _check_written(settings: dict[str, Any]) -> list[str]:
    """A file that is named is written, or refused."""
    written = [name for name in ("output", "csv_output", "parquet") if settings[name]]
    if settings["build_index"]:
        return [f"tracin.{name}: goes with no build_index, which writes an index alone" for name in written]
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
    summary="which training triples made a model believe a test triple",
    keys=KEYS,
    label=_label,
    check=_check,
    attempts=3,  # what is finished stays finished, so a lost worker costs a tile
    module="kgops.workers.tracin",
    inputs=FILES,
    folders=FOLDERS,
)
