"""The command that starts or plans a draft, and the job file that it needs where flags cannot say the job."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kgops.cli.command_line import as_command
from kgops.jobs.files import write_durably
from kgops.jobs.job import Job
from kgops.present.drafts import is_what_if
from kgops.present.what_if import Answer
from kgops.settings import Home, make_home
from kgops.workloads.registry import workload_of


class Command(NamedTuple):
    """`file` does not exist before `write`."""

    text: str
    file: Path | None = None
    content: str = ""

    def write(self, home: Home) -> None:
        if self.file is not None:
            make_home(home)
            self.file.parent.mkdir(mode=0o700, exist_ok=True)
            write_durably(self.file, self.content.encode())


def command_of(answer: Answer, home: Home) -> Command | None:
    """The command that starts the draft; of a what-if, the one that plans it. None where there is no job."""
    if answer.requested is None:
        return None
    job = _planned(answer.requested, answer)
    there = ["--host", answer.draft.where] if answer.draft.where else []
    verb: list[str] = []
    if is_what_if(answer.draft):
        verb, there = ["suggest"], ["--gpu", str(answer.draft.gpu)]
    if workload_of(job).is_command and verb:
        return None  # nothing is planned of a person's own command
    if workload_of(job).is_command:
        return Command(shlex.join(_exec_words(job, answer, there)))
    words = as_command(job)
    if words is not None:
        return Command(shlex.join(["kgops", *verb, *words[1:], *there]))
    content = job.as_toml()
    # Named after its content: a file that an earlier command names is never changed.
    mark = hashlib.sha256(content.encode()).hexdigest()[:8]
    file = home.path / "jobs" / f"{job.workload}-{mark}.toml"
    return Command(shlex.join(["kgops", *(verb or ["run"]), str(file), *there]), file, content)


def _planned(job: Job, answer: Answer) -> Job:
    """With the profile and the changes of the planner."""
    planned, placed = answer.planned, answer.placed
    if planned is not None and placed is not None and not placed.mixed:
        job = replace(job, profile=planned.job.profile)
    changes = planned.best.changes if planned is not None and planned.best is not None else {}
    return replace(job, options={**job.options, **changes})


def _exec_words(job: Job, answer: Answer, there: list[str]) -> list[str]:
    gpu = ["--gpu", job.gpu.wanted] if job.gpu.wanted else []
    label = ["--label", job.label] if answer.draft.text("label").strip() else []
    where = ["--cwd", job.settings["cwd"]]
    return ["kgops", "exec", *where, *label, *gpu, *there, "--", *job.settings["command"]]
