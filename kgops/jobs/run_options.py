"""Options of every run: its name, its GPUs, its limits, the folder it runs in, and the cluster it runs on."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kgops.errors import Usage
from kgops.jobs.option import Flag, Option, at_least, defaults_of, gpu_request, one_of

CLUSTERS = ("slurm", "ray")
LONGEST_LABEL = 100


def _label(value: str) -> str | None:
    if not value.strip():
        return "must not be empty"
    return None if len(value) <= LONGEST_LABEL else f"longer than {LONGEST_LABEL} characters"


def _time(value: str) -> str | None:
    """As sbatch takes it: minutes, minutes:seconds, hours:minutes:seconds, days-hours and so on."""
    good = re.fullmatch(r"\d+|\d+:\d+|\d+:\d+:\d+|\d+-\d+(:\d+){0,2}", value, re.ASCII)
    return None if good else f"not a time as Slurm writes it, such as 04:00:00 or 1-12; found {value!r:.40}"


NAMES = (
    Option(
        "profile",
        help="Named set of option values: auto, cpu, t4, …, or a file; see `kgops profiles`.",
        shown_default="the detected GPU's, otherwise auto; none for exec",
    ),
    Option("label", check=_label, help="Name of the run in lists and in the dashboard."),
)
GPU_OPTIONS = (
    Option(
        "wanted",
        check=gpu_request,
        help="GPUs to run on: auto, all, or indexes or UUIDs as in 0,1.",
        flags=(Flag("--gpu"),),
    ),
    Option(
        "memory_mib",
        "int",
        check=at_least(1),
        help="GPU memory to reserve, in MiB.",
        flags=(Flag("--gpu-memory"),),
    ),
    Option(
        "exclusive",
        "bool",
        False,
        help="Let no other run use the GPU (or the CPUs) during this one. Without a GPU the run's idle "
        "threads busy-wait, which is faster.",
        flags=(Flag("--exclusive", True),),
    ),
)
LIMITS = (
    Option(
        "attempts",
        "int",
        check=at_least(1),
        help="Give up after the process has died this many times.",
        shown_default="3; 1 for exec",
    ),
    Option(
        "grace_s",
        "float",
        30.0,
        check=at_least(0),
        help="Seconds between SIGTERM and SIGKILL when the run is stopped.",
        flags=(Flag("--grace"),),
    ),
    Option(
        "log_mib",
        "float",
        256.0,
        check=at_least(1, 1 << 30),
        help="Size of the log to keep in MiB, newest lines.",
        flags=(Flag("--log-limit"),),
    ),
    Option(
        "memory_mib",
        "int",
        check=at_least(1, 1 << 30),
        help="Limit of each process's writable memory in MiB (RLIMIT_DATA; mapped library files do not count). CPU "
        "runs only.",
        flags=(Flag("--memory-limit"),),
    ),
    Option(
        "allow_approximate",
        "bool",
        False,
        help="Allow OOM fallbacks that change results.",
        flags=(Flag("--allow-approximate", True),),
    ),
)
CLUSTER_OPTIONS = tuple(
    option.adapted(group="cluster")
    for option in (
        Option(
            "where",
            check=one_of(*CLUSTERS),
            help="Run on a cluster instead of this machine: slurm, or ray (TracIn only).",
            flags=(Flag("--on"),),
        ),
        Option("partition", help="Slurm partition."),
        Option("time", check=_time, help="Slurm time limit, such as 04:00:00."),
        Option("gres", help="GPUs to request from Slurm, such as gpu:1."),
        Option("cpus", "int", check=at_least(1), help="CPUs per task to request from Slurm."),
        Option("memory", help="Host memory to request from Slurm, such as 16G.", flags=(Flag("--mem"),)),
        Option("account", help="Slurm account to charge."),
        Option("tasks", "int", 1, check=at_least(1), help="Cluster tasks to split a run into."),
        Option(
            "options",
            "strings",
            help="Any other sbatch option, such as --sbatch --qos=long; may be repeated.",
            flags=(Flag("--sbatch"),),
        ),
        Option(
            "address",
            help="Address of the Ray cluster; default: a local one, started for the run.",
        ),
    )
)


GPU = "KGOPS_GPU"  # in a worker's environment: the GPUs its run was given, by UUID
GPU_BUDGET = "KGOPS_GPU_BUDGET_MIB"  # and what torch may hold there; empty: no limit


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """`where` None is this machine. `address` is for Ray; the rest is passed to Slurm unchanged."""

    where: str | None = None
    partition: str | None = None
    time: str | None = None
    gres: str | None = None
    cpus: int | None = None
    memory: str | None = None
    account: str | None = None
    tasks: int = 1  # of a TracIn run, as one job array
    options: tuple[str, ...] = ()  # further ones of sbatch
    address: str | None = None


THIS_MACHINE = ClusterRequest()


def problems_of(table: dict[str, Any], workload: str, *, is_split: bool) -> list[str]:
    """Problems of the `on` table."""
    cluster, problems = table["where"], []
    defaults = defaults_of(CLUSTER_OPTIONS)
    others = [name for name, value in table.items() if name != "where" and value not in (defaults[name], [])]
    if cluster is None and others:
        problems.append(f"on.{others[0]}: needs on.where")
    if cluster == "slurm" and table["address"]:
        problems.append("on.address: is for Ray")
    if cluster == "ray":
        problems += [f"on.{name}: is for Slurm" for name in others if name not in ("address", "tasks")]
        if not is_split:
            problems.append(f"on.where: Ray runs tracin only; {workload} runs here or on Slurm")
    if table["tasks"] != 1 and not is_split:
        problems.append(f"on.tasks: only tracin is split into tasks; {workload} is one task")
    for name, value in table.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isprintable():  # a line feed would end the line of #SBATCH
                problems.append(f"on.{name}: has a control character; found {text!r:.40}")
    for option in table["options"] or ():
        if not option.startswith("--"):
            problems.append(f"on.options: each begins with --, as sbatch takes it; found {option!r:.40}")
    return problems


def must_be_free(path: Path, *, force: bool) -> None:
    if path.exists() and not force:
        raise Usage(f"{path} already exists", "--force overwrites it")


def make_folder_of(path: Path) -> None:
    """Makes the folder of a file that is to be written. OSError names `path`, as a person gave it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name once it is whole, also where the name is a link's; its folder is made. What is no
    file, as a pipe or /dev/stdout, has to stay what it is. OSError names `path`, not the file's name until then."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve()
    half = target.with_name(f".{target.name}.{os.urandom(6).hex()}.part")
    try:
        make_folder_of(target)
        with half.open("xb") as file:  # in a shared folder a link may have this name
            yield file
        half.replace(target)
    except OSError as error:
        if error.filename not in (str(half), str(target)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        half.unlink(missing_ok=True)


_NUMBERED = re.compile(r"(\d+|(GPU|MIG)-[^,]*)(,(\d+|(GPU|MIG)-[^,]*))*")  # indexes and UUIDs


@dataclass(frozen=True, slots=True)
class WantedGpus:
    """`named` None is any GPU, `count` None every one of them; with `model` any one of that model."""

    named: frozenset[str] | None
    count: int | None
    model: str | None = None

    @classmethod
    def read(cls, text: str | None) -> WantedGpus:
        """No request, like `auto`, is any one GPU."""
        kind, _, count = (text or "auto").partition(":")
        if kind == "auto":
            return cls(None, int(count) if count.isdecimal() else 1)
        if kind == "all":
            return cls(None, None)
        if not _NUMBERED.fullmatch(kind):
            return cls(None, 1, plain_model(kind))
        return cls(frozenset(kind.split(",")), None)

    def includes(self, *names: str | None, model: str | None = None) -> bool:
        """Whether the request includes a GPU with these names and this model."""
        if self.model is not None:
            return model is not None and plain_model(model) == self.model
        return self.named is None or not self.named.isdisjoint(names)


def plain_model(model: str) -> str:
    return re.sub(r"[\s_-]", "", model.lower())


def gpus_for_devices(gpu_request: str | None, devices: Any) -> str:
    """The GPU request of a run with this `devices` option. Named GPUs take precedence."""
    if gpu_request not in (None, "auto") or devices == 1:
        return gpu_request or "auto"
    return f"auto:{devices}" if isinstance(devices, int) else str(devices)
