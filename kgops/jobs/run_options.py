"""Options of every run: its name, its GPU, its limits, and the cluster it runs on."""

from __future__ import annotations

import re

from kgops.jobs.option import Flag, Option, at_least, gpu_request, one_of

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
