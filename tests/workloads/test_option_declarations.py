"""One declaration per option: what is made from it agrees wherever it is used."""

from pathlib import Path
from typing import Any

import click
import pytest

from kgops.cli import run_regress, run_workload
from kgops.cli.command_line import as_command
from kgops.cli.launching import with_flags
from kgops.jobs.job import Job
from kgops.jobs.option import Option
from kgops.workloads.job_files import read_job
from kgops.workloads.registry import WORKLOADS, values_of
from kgops.workloads.shared_options import TRIPLES

NAMES = [name for name, workload in WORKLOADS.items() if workload.has_flags]
NEEDED: dict[str, dict[str, Any]] = {
    "train": {"dataset": "nations"},
    "predict": {"run": 1, "relation": "r", "head": "h"},
    "tracin": {"run": 1},
    "explain": {"run": 1, "triple": "a\tr\tb"},
    "evaluate": {"run": 1},
    "regress": {"data_directory": "/flights"},
}
EVERY = [
    (name, option)
    for name in NAMES
    for option in WORKLOADS[name].options
    if option.flags and option.name != "image_size"  # the data have a size; only plans without data need it
]
# Values that differ from the default, where a check wants a certain text.
CHECKED = {
    "test_triple": "a,r,b",
    "triple": "a,r,b",
    "device": "cpu",
    "engine": "pykeen",
    "image_size": "64x48",
    "architecture": "gnn",
    "angles_mode": "none",
    "loss": {"train": "kvsall-ce", "tracin": "target"},
    "score": {"tracin": "cosine"},
    "loss_type": "mse",
    "output": {"predict": "/x/y.json", "tracin": "/x/y.json", "explain": "/x/y.json"},
    "optimizer": "sgd",
    "regularizer": "n3",
    "schedule": "cosine",
    "scheduler": "cosine",
}

# What options of a workload need beside them, and what else names a model or triples and has to go.
_BESIDE: dict[str, dict[str, dict[str, Any]]] = {
    "train": {
        "schedule_factor": {"schedule": "plateau"},
        "schedule_patience": {"schedule": "plateau"},
        "model": {"engine": "pykeen"},
        "group_queries": {"loss": "1vsall-ce"},
        "regularizer": {"model": "ComplEx"},
        "regularizer_weight": {"model": "ComplEx", "regularizer": "n3"},
        "relation_prediction": {"model": "DistMult"},
    },
    "predict": {
        "candidate_type": {"node_types": "/x/types.tsv"},
        "each": {"node_types": "/x/types.tsv"},
        "dataset": {"model_path": "/m.pt"},
    },
    "tracin": {
        "dataset": {"model_path": "/m.pt"},
        "new": {"from_predictions": 2},
        "strict_path_filtering": {"path_filtering": True},
        "max_total_path_length": {"path_filtering": True},
    },
    "evaluate": {"dataset": {"model_path": "/m.pt"}, "node_types": {"matrix": "treats"}},
    "explain": {
        "dataset": {"model_path": "/m.pt"},
        "new": {"from_predictions": 2},
        "max_triples": {"triples": "/x/triples.tsv"},
        "verify_seeds": {"verify": True},
    },
}
_INSTEAD: dict[str, dict[str, tuple[str, ...]]] = {
    "predict": {
        "dataset": ("run",),
        "queries": ("head", "relation"),
        "best": ("head",),
        "each": ("head",),
        "tail": ("head",),
    },
    "tracin": {"dataset": ("run",), "from_predictions": ("run",), "new": ("run",)},
    "explain": {
        "dataset": ("run",),
        "triples": ("triple",),
        "max_triples": ("triple",),
        "from_predictions": ("run", "triple"),
        "new": ("run", "triple"),
    },
}


def other_value(workload: str, option: Option) -> Any:
    """A valid value that is not the default."""
    if option.name in CHECKED:
        value = CHECKED[option.name]
        return value[workload] if isinstance(value, dict) else value
    if option.type == "choice":
        values = [9 if value is int else value for value in option.choices]
        return next(value for value in reversed(values) if value != option.default)
    if option.type == "bool":
        return not option.default
    return {"str": "/x/y", "int": 9, "float": 0.25, "strings": ["one", "two"]}[option.type]


def command_of(name: str) -> click.Command:
    return run_regress.command if name == "regress" else run_workload.command_of(name)


def parsed(words: list[str]) -> Job:
    """The job that a printed command makes."""
    name = words[1]
    with command_of(name).make_context(name, list(words[2:])) as ctx:
        given = dict(ctx.params)
        return with_flags(
            (run_regress.job_of(given) if name == "regress" else run_workload.job_of(name, given)), given
        )


@pytest.mark.parametrize(("workload", "option"), EVERY, ids=[f"{w}-{o.name}" for w, o in EVERY])
def test_a_printed_command_sets_every_option(workload: str, option: Option) -> None:
    value = other_value(workload, option)
    table: dict[str, Any] = {"workload": workload, workload: dict(NEEDED[workload]), "options": {}}
    table[workload if option.effect is None else "options"][option.name] = value
    if option.name in TRIPLES and workload == "train":
        table["train"] = {"train": "/data/train.txt", option.name: value}
    table[workload] |= _BESIDE.get(workload, {}).get(option.name, {})
    for name in _INSTEAD.get(workload, {}).get(option.name, ()):
        del table[workload][name]
    job = read_job(table, "a test")
    words = as_command(job)
    if words is None:  # a flag sets one of two values, and this is the other one
        assert all(flag.sets is not None for flag in option.flags)
        return
    again = parsed(words)
    assert values_of(again)[option.name] == value
    assert (again.settings, again.gpu, again.limits) == (job.settings, job.gpu, job.limits)


def test_new_run_offers_only_options_that_a_command_can_set() -> None:
    for workload in WORKLOADS.values():
        for option in workload.optimizations.values():
            assert option.flags or not option.in_form
            assert not option.off_because or not option.in_form


@pytest.mark.parametrize("workload", NAMES)
def test_defaults_pass_their_own_checks(workload: str) -> None:
    for option in WORKLOADS[workload].options:
        if option.default is not None:
            assert option.problem(option.default) is None, option.name


@pytest.mark.parametrize("workload", NAMES)
def test_help_shows_each_flag_once_and_the_migration_page_the_hidden_ones(
    workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = command_of(workload)
    with pytest.raises(click.exceptions.Exit):
        command.make_context(workload, ["--help-all"])
    shown = capsys.readouterr().out
    page = (Path(__file__).parents[2] / "docs" / "MIGRATING.md").read_text().replace("_", "-")
    for option in WORKLOADS[workload].options:
        for flag in option.flags:
            name = option.flag_name(flag)
            lines = [line for line in shown.splitlines() if line.strip().split(" ")[0] == name]
            assert len(lines) == (0 if flag.hidden else 1), name
            if flag.hidden:
                assert name in page, f"{name} is accepted, and docs/MIGRATING.md does not list it"


def test_the_flag_of_a_test_triple_takes_a_file_of_them_too(tmp_path: Path) -> None:
    file = tmp_path / "asked.tsv"
    file.write_text("a\tr\tb\n")
    one = parsed(["kgops", "tracin", "--run", "1", "--test-triple", "a,r,b"])
    many = parsed(["kgops", "tracin", "--run", "1", "--test-triple", str(file)])
    assert (one.settings["test_triple"], one.settings["test_triples"]) == ("a,r,b", None)
    assert (many.settings["test_triple"], many.settings["test_triples"]) == (None, str(file))
    assert "filtering" not in one.options and many.options["filtering"] is True
