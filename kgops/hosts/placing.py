"""What commands and screens that place a job on another host say and send alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgops.hosts.offers import Offer
from kgops.jobs.job import Job
from kgops.jobs.text import one_line

__all__ = ["copied", "flags_of", "on_gpu_of"]


def on_gpu_of(offer: Offer, job: Job) -> Job:
    return replace(job, gpu=replace(job.gpu, wanted=offer.gpu)) if offer.gpu else job


def flags_of(*, force: bool, tags: Sequence[str] = ()) -> list[str]:
    """Of `kgops run` there."""
    return [*(["--force"] if force else []), *(f"--tag={tag}" for tag in tags)]


def copied(host: str, name: str, sent: int, size: int) -> str:
    """How much of a file is there; never 100 % before it is kept."""
    share = 100 if sent >= size else min(100 * sent // size, 99)
    return f"copying {one_line(name, 80)} to {host}: {share} % of {size / 2**20:,.1f} MiB"
