"""`kgops gpus --hosts` and `kgops runs --hosts`: rows of several hosts, each with the host's name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kgops.cli.output import print_json, say, say_lines, tell
from kgops.hosts import registry
from kgops.hosts.ask import Answer, ask, bounded_json
from kgops.hosts.mirror import HostState
from kgops.hosts.protocol import Row, accepted
from kgops.hosts.rows import gpu_of, run_of, sorted_gpus
from kgops.hosts.watch import first_pictures
from kgops.present.columns import PRINTED, lines
from kgops.present.formats import table, whole
from kgops.present.gpu_cells import GpuRow, load, short_name, users_in_full
from kgops.settings import find_home

_GPU_HEADS = ("HOST", "GPU", "NAME", "USED", "TOTAL", "UTIL", "TEMP", "USERS")


def show_gpus(words: str, as_json: bool) -> int:
    """Returns the exit code: 1 if a host does not answer."""
    home = find_home()
    states = first_pictures(home, registry.pick(registry.read(home), words))
    if as_json:
        print_json([_gpus_table(state) for state in states])
    else:
        rows = [
            (state.name, *_gpu_cells(gpu_of(key, row, state.rows("process"))))
            for state in states
            for key, row in sorted_gpus(state)
        ]
        if rows:
            say_lines(table(_GPU_HEADS, rows, right=frozenset({"USED", "TOTAL", "UTIL", "TEMP"})))
        for state in states:
            _say_trouble(state)
    return 0 if all(state.has_picture for state in states) else 1


def _gpu_cells(gpu: GpuRow) -> tuple[str, ...]:
    """Number, name, memory used and usable, utilization, temperature, users."""
    if gpu.problem is not None:
        return gpu.label, short_name(gpu.name), "", "", "", "", f"does not answer: {gpu.problem}"
    used = whole(gpu.used_mib), whole(gpu.usable_mib)
    util, heat, _ = load(gpu, with_units=True)
    return gpu.label, short_name(gpu.name), *used, util.text, heat.text, users_in_full(gpu)


def _gpus_table(state: HostState) -> dict[str, Any]:
    processes = state.rows("process").values()
    return {
        "host": state.name,
        "answers": state.has_picture,
        "kgops": state.version,
        "problem": state.problem or state.rows("host").get("host", {}).get("problem"),
        "gpu": [
            {"index": key, **row, "process": [one for one in processes if one.get("gpu") == key]}
            for key, row in sorted_gpus(state)
        ],
    }


def _say_trouble(state: HostState) -> None:
    if not state.has_picture:
        say(f"{state.name}: does not answer: {state.problem or 'no line came in time'}")
        if state.hint:
            tell(f"Hint for {state.name}: {state.hint}")
    elif problem := state.rows("host").get("host", {}).get("problem"):
        say(f"{state.name}: {problem}")
    elif not state.rows("gpu"):
        say(f"{state.name}: the driver finds no GPU")


def show_runs(words: str, flags: Sequence[str], as_json: bool) -> int:
    """`flags`: of `kgops runs`, which lists and filters on each host. Exit code 1 if a host has no list."""
    home = find_home()
    hosts = registry.pick(registry.read(home), words)
    answers = ask(home, hosts, ("runs", "--json", *flags))
    found = [_runs_of(answer) for answer in answers]
    if as_json:
        print_json(
            [
                {
                    "host": answer.host.name,
                    "answers": answer.is_of_kgops,
                    "problem": problem,
                    "run": [{"id": number, **row} for number, row in listed.items()],
                }
                for answer, (listed, problem) in zip(answers, found, strict=True)
            ]
        )
    else:
        runs = [run_of(number, row) for listed, _ in found for number, row in listed.items()]
        names = [answer.host.name for answer, (listed, _) in zip(answers, found, strict=True) for _ in listed]
        if runs:
            say_lines(lines(PRINTED, runs, time.time(), hosts=names))
        elif any(problem is None for _, problem in found):
            tell("No run matches.")
        for answer, (_, problem) in zip(answers, found, strict=True):
            if problem is not None:
                say(f"{answer.host.name}: {'' if answer.is_of_kgops else 'does not answer: '}{problem}")
                if answer.hint:
                    tell(f"Hint for {answer.host.name}: {answer.hint}")
    return 1 if any(problem for _, problem in found) else 0


def _runs_of(answer: Answer) -> tuple[dict[int, Row], str | None]:
    """The runs in an answer by number, in its order, or why there are none. Numbers belong to that host."""
    if answer.problem is not None:
        return {}, answer.problem
    listed = bounded_json(answer.out)
    if not isinstance(listed, list):
        return {}, "what it printed is not a list of runs"
    found: dict[int, Row] = {}
    for one in listed:
        key = str(one.get("id")) if isinstance(one, dict) and isinstance(one.get("id"), int) else None
        row = accepted("run", key, one)
        if row is not None and key is not None:
            found[int(key)] = row
    return found, None
