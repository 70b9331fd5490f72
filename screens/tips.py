"""What a heading or an option means, for a mouse over it."""

from __future__ import annotations

_OF_HEADINGS = {
    "memory": "free GPU memory; the bar shows what runs, others and reservations take",
    "profile": "the optimization profile that fits this GPU",
    "util": "share of time in which a kernel ran",
    "who": "the runs and the users whose processes are on this GPU",
    "W of cap": "power now, and the limit that the driver keeps",
    "progress": "what is done, of what there is to do",
    "ETA": "time until the run ends, at its present rate",
    "metric": "the main metric of the run; of a training, the best validation",
    "took": "from the start to the end of the run",
    "peak or reason": "highest memory, measured, beside what was predicted; or why the run ended",
    "waits for": "what must end before the run can start",
    "GPU MiB": "highest GPU memory of the run, measured by the driver",
    "host MiB": "highest memory of its processes, measured",
    "SM %": "share of time in which this process ran a kernel",
    "CPU %": "of one core",
    "by": "who chose the value: you, the profile, the planner or the default",
    "than before": "time of the newest measurement, against the one before",
}


def tip_of(text: str) -> str | None:
    from kgops.workloads.catalog import OPTIONS

    option = OPTIONS.get(text)
    return _OF_HEADINGS.get(text) if option is None else option.help
