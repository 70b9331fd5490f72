"""Convert a job to the `kgops run` command that starts it, for `kgops suggest` and the dashboard."""

from __future__ import annotations

from typing import Any

from kgops.jobs.job import LONGEST_LABEL, Job, Limits
from kgops.jobs.workloads import WORKLOADS
from kgops.planning import profiles

__all__ = ["as_command"]

_ON = object()  # flag for the option's value true
_OFF = object()  # flag for the option's value false
_COMMON = {"entity_chunk": ("--entity-chunk", None), "precision": ("--precision", None)}
_BOTH = object()  # --flag/--no-flag
_OPTIONS: dict[str, dict[str, tuple[str, object]]] = {
    "train": {
        **_COMMON,
        "batch_size": ("--batch-size", None),
        "compile": ("--compile", None),
        "devices": ("--devices", None),
        "num_workers": ("--num-workers", None),
        "gradient_checkpointing": ("--use-gradient-checkpointing", _ON),
        "cuda_graphs": ("--cuda-graphs", _ON),
        "memory_cleanup": ("--disable-memory-cleanup", _OFF),
    },
    "tracin": {
        **_COMMON,
        "block": ("--batch-size", None),
        "tests_at_once": ("--tests-at-once", None),
        "gram_precision": ("--gram-precision", None),
        "last_layers": ("--num-last-layers", None),
        "devices": ("--devices", None),
        "filtering": ("--skip-filtering", _OFF),
        "memory_cleanup": ("--disable-memory-cleanup", _OFF),
    },
    "regress": {
        **{
            name: (f"--{name}", None)
            for name in ("precision", "batch_size", "microbatch", "temporal_frames", "compile", "num_workers")
        },
        **{
            name: (f"--{name}", _BOTH)
            for name in ("memory_optimized", "gradient_checkpointing", "memory_cleanup")
        },
    },
}


_OMITTED = (
    "left_out",
    "image_size",
)  # no flags: what kgops left out of a configuration, and the size that the data have


def as_command(job: Job) -> list[str] | None:
    """Return the command, or None if flags cannot express the job: it needs a job file."""
    known = _OPTIONS.get(job.workload)
    if known is None:
        return None
    by_profile = profiles.find(job.profile).options if job.profile is not None else {}
    words = ["kgops", "run", job.workload]
    filters = job.workload == "tracin" and job.options.get("filtering") is True
    if job.workload == "regress" and not job.settings["data_directory"]:
        words += ["--data_directory", "DIR"]  # planned without data: DIR stands for it
    for key in WORKLOADS[job.workload].keys:
        value = job.settings[key.name]
        is_said = key.name == "n_hops" and filters
        if value is not None and value != key.default and not is_said and key.name not in _OMITTED:
            words += _setting(key.name if job.workload == "regress" else key.name.replace("_", "-"), value)
    if filters:
        words += ["--n-hops", str(job.settings["n_hops"])]  # this flag turns filtering on
    for option, value in job.options.items():
        flag, when = known.get(option, (None, None))
        if flag is None:
            return None
        if when is None:
            words += [flag, str(value)]
        elif when is _BOTH:
            words.append(flag if value else f"--no-{flag[2:]}")
        elif (when is _ON) == (value is True):
            words.append(flag)
        elif by_profile.get(option, value) != value:
            return None  # no flag can undo what the profile sets
    for flag, given in (
        ("--label", job.label if job.label != _default_label(job) else None),
        ("--profile", job.profile),
        ("--gpu", job.gpu.wanted),
        ("--gpu-memory", job.gpu.memory_mib),
        ("--on", job.on.where),
        ("--partition", job.on.partition),
        ("--time", job.on.time),
        ("--gres", job.on.gres),
        ("--cpus", job.on.cpus),
        ("--mem", job.on.memory),
        ("--account", job.on.account),
        ("--tasks", job.on.tasks if job.on.tasks > 1 else None),
        ("--address", job.on.address),
        *(("--sbatch", option) for option in job.on.options),
        *_limits(job),
    ):
        if given is not None:
            words += [flag, str(given)]
    if job.gpu.exclusive:
        words.append("--exclusive")
    if job.limits.allow_approximate:
        words.append("--allow-approximate")
    return words


def _default_label(job: Job) -> str:
    """Return the label of a job that was given none."""
    return WORKLOADS[job.workload].label(job.settings)[:LONGEST_LABEL]


def _limits(job: Job) -> list[tuple[str, Any]]:
    """Return the limits that differ from the workload's defaults."""
    defaults, limits = Limits(attempts=WORKLOADS[job.workload].attempts), job.limits
    return [
        (flag, getattr(limits, name))
        for flag, name in (
            ("--attempts", "attempts"),
            ("--grace", "grace_s"),
            ("--log-limit", "log_mib"),
            ("--memory-limit", "memory_mib"),
        )
        if getattr(limits, name) != getattr(defaults, name)
    ]


def _setting(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, list):
        return [word for one in value for word in (f"--{flag}", str(one))]
    return [f"--{flag}", str(value)]
