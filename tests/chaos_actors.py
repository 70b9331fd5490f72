"""Which processes of a home are alive, found by the variables they carry: the kill tests' own look at what there is."""

from __future__ import annotations

from pathlib import Path

from kgops.jobs.files import read_json
from kgops.settings import Home
from kgops.supervisor import processes
from kgops.supervisor.process_tree import Tree
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder


def actors(home: Home, folder: RunFolder, number: int) -> dict[str, list[Identity]]:
    """Who is at work for a run, by the part each plays."""
    of_run = supervisors(home, number)
    last = folder.last_attempt()
    if not last:
        return {"supervisor": of_run}
    door = processes.identity_from(read_json(folder.attempt(last).identity))
    tree = processes.tagged(Tree(folder, last).tag)
    workers = [who for who in tree if _parent(who.pid) == (door.pid if door else -1)]
    return {
        "supervisor": of_run,
        "gate": [door] if door and door.is_alive() else [],
        "worker": workers,
        "grandchild": [who for who in tree if who not in workers],
    }


def supervisors(home: Home, number: int) -> list[Identity]:
    of_run = [
        who
        for who in with_variable(f"{processes.SUPERVISOR}={number}")
        if f"KGOPS_HOME={home.path}".encode() in processes._environment(who.pid)
    ]
    # A gate is a copy of its supervisor, variables and all.
    return [who for who in of_run if not any(_parent(who.pid) == other.pid for other in of_run)]


def with_variable(variable: str) -> list[Identity]:
    """`variable` is a name and its value."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and variable.encode() in processes._environment(int(entry.name)):
            who = processes.identify(int(entry.name))
            found += [who] if who else []
    return found


def variables_of_all(name: str) -> set[str]:
    """The values this variable has in any process."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for variable in processes._environment(int(entry.name)):
                if variable.startswith(name.encode() + b"="):
                    found.add(variable.partition(b"=")[2].decode("utf-8", "replace"))
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return -1
