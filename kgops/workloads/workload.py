"""Workload: its options, the results that its runs leave, and its worker. Nothing outside asks which workload a job
has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kgops.jobs.option import Option
from kgops.workloads.results import LEAVES, Result, trains


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    summary: str
    options: tuple[Option, ...]
    label: Callable[[dict[str, Any]], str]
    check: Callable[[dict[str, Any]], list[str]]
    attempts: int  # default for how many workers may be lost before the run is interrupted
    module: str | None  # the worker's entry point; None: the job itself is a command
    inputs: tuple[str, ...] = ()  # keys that name files which must be there; `table.key` inside a table
    folders: tuple[str, ...] = ()  # and folders
    words: Words | None = None  # of its command; None: a job file, or a command of its own
    stages: tuple[str, ...] | None = (
        None  # workloads that it runs, each with a table of its own; None: itself alone
    )
    optional: tuple[str, ...] = ()  # stages that run only where the job has their table
    epochs: str | None = None  # the setting with their number; the time of such a run is known by the epoch
    reads_model: bool = False  # of a run that trained one
    triples: str | None = None  # the setting that takes a file of triples, such as the answers of another run
    retrainings: Callable[[Mapping[str, Any]], int] = lambda settings: 0  # at most, to check what it found
    time_kind: Callable[[Mapping[str, Any]], str] = lambda settings: ""  # runs of one kind take times alike
    timed_on_cpu: bool = False  # the model of time holds on a CPU before any run
    outputs: Callable[[Mapping[str, Any]], dict[str, str]] = (
        lambda settings: {}
    )  # result files and their copies
    has_graph: bool = True  # works on triples
    has_flags: bool = True  # flags express it; otherwise a job file does
    shares_devices: bool = False  # `devices` may be more than one
    on_clusters: bool = False  # Ray runs it, and Slurm in more than one task
    has_configuration: bool = False  # a configuration file gives what the person does not
    with_profile: bool = True  # takes options of other workloads from a profile, to report them
    keeps_budget: bool = False  # its worker holds no more of a GPU than it has reserved
    smaller: tuple[str, ...] = ()  # how the work itself can be made smaller

    @property
    def leaves(self) -> frozenset[Result]:
        """Results that a run leaves for others to read."""
        return LEAVES.get(self.name, frozenset())

    @property
    def trains(self) -> bool:
        """Has optimizer steps; its curves count epochs."""
        return trains(self.name)

    @property
    def is_command(self) -> bool:
        """The job is a person's own command: kgops neither plans it nor knows its options."""
        return self.module is None

    def stage_settings(self, settings: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Settings by stage, as the job has them; none of a command."""
        if self.is_command:
            return {}
        if self.stages is None:
            return {self.name: settings}
        asked = (name for name in self.stages if settings.get(name) is not None or name not in self.optional)
        return {name: settings.get(name) or {} for name in asked}

    @property
    def settings(self) -> tuple[Option, ...]:
        """Options that stand in the job's table of this workload."""
        return tuple(option for option in self.options if option.effect is None)

    @property
    def optimizations(self) -> dict[str, Option]:
        """Options that profiles, plans and OOM fallbacks may choose too; they stand in the job's table `options`."""
        return {option.name: option for option in self.options if option.effect is not None}

    def default(self, name: str) -> Any:
        return next(option.default for option in self.options if option.name == name)


@dataclass(frozen=True, slots=True)
class Words:
    """`kgops run NAME` and `kgops suggest NAME` are made from these and from the options."""

    help: str  # the first line says what the command does
    example: str  # flags of `kgops run`
    plan_example: str  # flags of `kgops suggest`
    shown: tuple[str, ...]  # settings and options that `--help` lists; `--help-all` lists all
    paths: tuple[str, ...]  # settings that become absolute paths
    triple: tuple[str, str] | None = (
        None  # a setting that takes one triple as three words, or a file for the other
    )
    starts_from: str | None = (
        None  # a module with named jobs to start from: FLAG, METAVAR, HELP, with_changes
    )
    notes: Callable[[Mapping[str, Any]], list[str]] = (
        lambda settings: []
    )  # what the job lacks, told at its start
    implied: Callable[[Mapping[str, Any]], dict[str, Any]] = (
        lambda settings: {}  # options and settings that settings turn on
    )
