"""Places a job on another host, for commands and screens: on the GPU of an offer, with the files that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgops.hosts.offers import Offer
from kgops.hosts.registry import Host
from kgops.hosts.starting import Progress, send_data, start_there
from kgops.jobs.job import Job
from kgops.jobs.text import one_line
from kgops.settings import Home

__all__ = ["copied", "flags_of", "on_gpu_of", "place"]


def on_gpu_of(offer: Offer, job: Job) -> Job:
    return replace(job, gpu=replace(job.gpu, wanted=offer.gpu)) if offer.gpu else job


def flags_of(*, force: bool, tags: Sequence[str] = ()) -> list[str]:
    """Of `kgops run` there."""
    return [*(["--force"] if force else []), *(f"--tag={tag}" for tag in tags)]


def place(home: Home, host: Host, job: Job, flags: Sequence[str], progress: Progress) -> int:
    """The number of the run there, which no longer needs this machine."""
    return start_there(home, host, send_data(home, host, job, progress), flags)


def copied(host: Host, name: str, sent: int, size: int) -> str:
    """How much of a file is there; never 100 % before it is kept."""
    share = 100 if sent >= size else min(100 * sent // size, 99)
    return f"copying {one_line(name, 80)} to {host.name}: {share} % of {size / 2**20:,.1f} MiB"
