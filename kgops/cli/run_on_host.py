"""`kgops run … --host`: start a job on another host, where its files are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kgops.cli.output import print_json, say, tell
from kgops.errors import Usage
from kgops.hosts import registry
from kgops.hosts.starting import plan_there, start_there
from kgops.interchange.data_files import with_absolute_paths
from kgops.jobs.job import Job
from kgops.jobs.text import one_line
from kgops.settings import find_home


def start_on_host(job: Job, name: str, given: dict[str, Any]) -> int:
    """Prints the run's name, as in `lab2:17`. Paths and runs in the job belong to that host."""
    home = find_home()
    chosen = registry.pick(registry.read(home), name)
    if len(chosen) != 1:
        raise Usage(f"{name!r} names {len(chosen)} hosts", "a run starts on one: kgops run … --host NAME")
    (host,) = chosen
    job = with_absolute_paths(job, Path.cwd())
    flags = [*(["--force"] if given["force"] else []), *(f"--tag={tag}" for tag in given["tags"])]
    if given["dry_run"]:
        shown = plan_there(home, host, job, [*flags, *(["--json"] if given["as_json"] else [])])
        for line in shown.decode("utf-8", "replace").splitlines():
            say(one_line(line, 4_000))
        return 0
    number = start_there(home, host, job, flags, note=lambda text: tell(f"Note: {text}"))
    if given["as_json"]:
        print_json({"host": host.name, "id": number})
    else:
        say(f"{host.name}:{number}")
        tell(
            f"It goes on there. `kgops runs --hosts {host.name}` lists it, `kgops pull {host.name}:{number}` brings it."
        )
    return 0
