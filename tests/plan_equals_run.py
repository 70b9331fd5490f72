"""What a plan shows is what the same command runs: random command lines, planned twice and really started.

`make plan-equals-run N=200` plans and starts that many, prints every difference and ends with their number. About five
seconds each on two cores.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from command_lines import Bed, Line, lines
from driving import Console, Done, wait_for

from kgops.cli import main
from kgops.jobs.text import on_or_off

_AT_ONCE = 3  # runs that go on beside each other
_SHOWN = ("option", "requested", "applied", "chosen_by")


def ask(*words: str) -> Done:
    """What the command says, called in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(words))
    return Done(code, out.getvalue(), err.getvalue())


def made_bed(console: Console, folder: Path) -> Bed:
    """With two runs to trace: 1 of kgops' own ConvE, 2 of a model of PyKEEN's."""
    bed = Bed(folder)
    train = "run train --dataset nations --num-epochs 2 --embedding-dim 16 --output-channels 4 --checkpoint-frequency 1"
    for more in ("", " --engine pykeen --model TransE"):
        console(*f"{train}{more}".split())
    assert [run["state"] for run in console("runs", "--json").json()] == ["succeeded"] * 2
    return bed


# --- plans ------------------------------------------------------------------------------------------------


def compare_plans(line: Line) -> Iterator[str]:
    """Differences between what is suggested and what a run would be, and between it and the command it prints."""
    dry = ask("run", *_in_front(line.planned, ("--dry-run", "--json")))
    if not line.can_be_suggested:
        if dry.code:
            yield f"the dry run ended with {dry.code}: {dry.err}"
        return
    shown = ask("suggest", *line.planned, "--json")
    if shown.code == 2 or dry.code:
        if not (shown.code == 2 and (dry.code == 2 or dry.json()["refused"])):
            yield f"suggest ended with {shown.code}, the dry run with {dry.code}: {shown.err}{dry.err}"
        return
    (plan,), run = shown.json(), dry.json()
    yield from _differences("job", plan["job"], run["job"])
    yield from _differences("options", _options(plan["options"]), _options(run["options"]))
    yield from _differences("refused", plan["refused"], run["refused"])
    yield from _differences("unknown", plan["unknown"], run["unknown"])
    if run["predicted_mib"] is not None and abs(plan["estimate"]["total_mib"] - run["predicted_mib"]) > 1e-6:
        yield f"memory: {plan['estimate']['total_mib']} MiB suggested, {run['predicted_mib']} MiB by the dry run"
    yield from _compare_pasted(plan, run)


def _compare_pasted(plan: dict[str, Any], run: dict[str, Any]) -> Iterator[str]:
    """The command at the end of a plan, pasted."""
    if plan["command"] is None or not plan.get("fits", True):
        return
    pasted = ask(*plan["command"][1:], "--dry-run", "--json")
    if pasted.code:
        yield f"pasted, {' '.join(plan['command'])} ended with {pasted.code}: {pasted.err}"
        return
    left_out = {run["job"]["workload"]: {"left_out"}}  # notes on a configuration, which is not named any more
    yield from _differences(
        "pasted job", _without(pasted.json()["job"], left_out), _without(run["job"], left_out)
    )
    values = ({one["option"]: one["applied"] for one in table["options"]} for table in (pasted.json(), run))
    yield from _differences("pasted options", *values)


def _without(job: dict[str, Any], names: dict[str, set[str]]) -> dict[str, Any]:
    return {
        part: {k: v for k, v in table.items() if k not in names[part]} if part in names else table
        for part, table in job.items()
    }


def _options(options: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return {one["option"]: tuple(on_or_off(one[name]) for name in _SHOWN) for one in options}


def _differences(what: str, one: Any, other: Any) -> Iterator[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted({*one, *other}, key=str):
            yield from _differences(f"{what}.{name}", one.get(name), other.get(name))
        return
    yield f"{what}: {one!r} and {other!r}"


# --- runs -------------------------------------------------------------------------------------------------


def compare_started(console: Console, chosen: Sequence[Line]) -> Iterator[tuple[Line, str]]:
    """Starts each, and yields where its plan and its worker say otherwise than the dry run."""
    going: list[tuple[Line, Done, int]] = []
    for line in chosen:
        dry = ask("run", *_in_front(line.planned, ("--dry-run", "--json")))
        flags = ("--detach", "--json") if line.words[0] == "sweep" else ("--detach",)
        started = console("run", *_in_front(line.words, flags))
        if started.code:
            if not (dry.code or dry.json()["refused"]):
                yield line, f"was refused where the dry run was not: {started.err}"
            continue
        if dry.code or dry.json()["refused"]:
            yield line, f"started where the dry run said {dry.err or dry.json()['refused']}"
        number = started.json()[0]["run"] if "--json" in flags else int(started.out)
        going.append((line, dry, number))
        while len(going) >= _AT_ONCE:
            yield from _ended(console, going)
    while going:
        yield from _ended(console, going)


def _in_front(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """A command's own words come last."""
    if words[0] == "exec":
        return ["exec", *flags, *words[1:]]
    return [*words, *flags]


def _ended(console: Console, going: list[tuple[Line, Done, int]]) -> Iterator[tuple[Line, str]]:
    def one_has_ended() -> tuple[Line, Done, int] | None:
        return next((each for each in going if (run := console.run(each[2])) and run.ended), None)

    found = wait_for(one_has_ended, f"the end of one of runs {[number for *_, number in going]}")
    going.remove(found)
    line, dry, number = found
    for difference in _compare_run(dry.json(), ask("show", str(number), "--json").json()):
        yield line, f"run {number}: {difference}"


def _compare_run(dry: dict[str, Any], run: dict[str, Any]) -> Iterator[str]:
    if run["state"] != "succeeded" or run["attempts"] != 1:
        yield f"{run['state']} after {run['attempts']} attempts: {run['reason']}"
        return
    yield from _differences("job", dry["job"], run["job"])
    yield from _differences("options of the plan", _options(dry["options"]), _options(run["plan"]["choices"]))
    if run["workload"] == "exec":
        return
    planned = {
        one["option"]: str(on_or_off(one["applied"])) for one in dry["options"] if one["applied"] is not None
    }
    unknown = {one["option"] for one in dry["options"] if one["applied"] is None}
    said = {one["name"]: one["applied"] for one in run["option"] if one["name"] not in unknown}
    yield from _differences("what the worker says", planned, said)
    yield from _differences(
        "what kgops show says", said, {n: v for n, v in _shown(run["id"]).items() if n in said}
    )
    written = _written(Path(run["path"]) / "results" / "config.json", run["workload"])
    if written is not None:
        yield from _differences("what config.json says", planned, written)


def _shown(number: int) -> dict[str, str]:
    """The table of options on the page of `kgops show`."""
    page = ask("show", str(number)).out.splitlines()
    start = next(n for n, text in enumerate(page) if text.startswith("OPTION "))
    column, until = page[start].index("APPLIED"), page[start].index("EFFECT")
    rows = page[start + 1 : next(n for n in range(start, len(page)) if not page[n])]
    return {row.split()[0]: row[column:until].strip() for row in rows}


def _written(path: Path, workload: str) -> dict[str, str] | None:
    if workload not in ("train", "regress") or not path.exists():
        return None
    told = json.loads(path.read_text())["optimizations"]
    return {name: str(on_or_off(one["applied"])) for name, one in told.items() if isinstance(one, dict)}


def covering(found: Sequence[Line], at_most: int) -> list[Line]:
    """Lines that together try every option, the richest first, one of each workload before all; so many at the most."""
    left = [line for line in found if line.is_startable]
    missing = frozenset[str]().union(*(line.tokens for line in left))
    richest = sorted(left, key=lambda line: len(line.tokens))
    chosen = list({line.workload: line for line in richest}.values())
    for line in chosen:
        missing -= line.tokens
        left.remove(line)
    while left and len(chosen) < at_most:
        best = max(left, key=lambda line: len(line.tokens & missing))
        if not best.tokens & missing:
            break
        chosen.append(best)
        missing -= best.tokens
        left.remove(best)
    return chosen


# --- simulated GPUs ---------------------------------------------------------------------------------------


def planned_gpus(folder: str, many: int, seed: int) -> list[str]:
    """In a process that sees simulated GPUs and a CUDA build of torch."""
    bed = Bed(Path(folder))
    gpus = ("0", "0,1", "all", "auto", "GPU-t4", "cpu", "t4", "a100-40")
    return [
        f"{line}\n    {difference}" for line in lines(bed, many, seed, gpus) for difference in of_gpus(line)
    ]


def of_gpus(line: Line) -> Iterator[str]:
    """A GPU that is only known by name has no run here: its plan is held against the command that it prints."""
    at = line.planned.index("--gpu") + 1 if "--gpu" in line.planned else None
    asked = line.planned[at] if at is not None else None
    if line.can_be_suggested and at is not None and asked == "all":  # a plan for each GPU
        for gpu in ("0", "1"):
            yield from compare_plans(
                replace(line, planned=(*line.planned[:at], gpu, *line.planned[at + 1 :]))
            )
        return
    is_here = asked is None or asked == "auto" or asked[0].isdigit() or asked[:3] == "GPU"
    if is_here or not line.can_be_suggested:
        yield from compare_plans(line)
        return
    assert asked is not None
    shown = ask("suggest", *line.planned, "--json")
    if "--device cpu leaves unused" in shown.err:
        yield from compare_plans(line)
        return
    if shown.code not in (0, 3):
        yield f"suggest ended with {shown.code}: {shown.err}"
        return
    (plan,) = shown.json()
    if plan["command"] is None or not plan.get("fits", True):
        return
    more = ("--gpu", asked) if asked != "cpu" else ()
    again = ask("suggest", *plan["command"][1:], *more, "--json")
    if again.code not in (0, 3):
        yield f"its command ended with {again.code}: {again.err}"
        return
    values = (
        {one["option"]: one["applied"] for one in table["options"]} for table in (again.json()[0], plan)
    )
    yield from _differences("suggested again", *values)


def main_of_tests(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--start", type=int, help="how many of them are really started; default: all that can be"
    )
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="plan-equals-run-") as folder:
        console = Console(Path(folder) / "home", Path(folder))
        os.environ["KGOPS_HOME"] = str(console.home)
        os.environ["OMP_NUM_THREADS"] = "1"
        os.chdir(folder)
        try:
            return _all_of(console, made_bed(console, Path(folder)), asked)
        finally:
            console.close()


def _all_of(console: Console, bed: Bed, asked: argparse.Namespace) -> int:
    found = list(lines(bed, asked.lines, asked.seed))
    startable = [line for line in found if line.is_startable][: asked.start]
    planned = ((line, difference) for line in found for difference in compare_plans(line))
    differences = 0
    for line, difference in chain(planned, compare_started(console, startable)):
        differences += 1
        print(f"kgops {line}\n    {difference}", flush=True)
    print(f"{len(found)} command lines planned, {len(startable)} started: {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main_of_tests())
