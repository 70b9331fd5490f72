"""The OOM fallbacks: which options give way after each out-of-memory, in which order, and why.

First what gives the same numbers, then what changes their rounding, and only for a job that allows it what
changes what is found. A fallback keeps what the ones before it changed; one that would change nothing is no fallback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from typing import Any

from kgops.gpus.facts import GpuFacts
from kgops.jobs.job import Job
from kgops.jobs.options import Effect, effect_of
from kgops.planning.fallback_options import Step, stages_of
from kgops.planning.rules import shown

__all__ = ["Change", "Fallback", "last_resort", "oom_fallbacks", "passed_over", "stepped_down", "told"]

_EFFECTS: tuple[Effect, ...] = ("exact", "rounding", "changes results")
_OFF = (False, "off")


@dataclass(frozen=True, slots=True)
class Change:
    option: str
    before: Any
    after: Any
    effect: Effect

    def __str__(self) -> str:
        return f"{self.option} {_word(self.before)} → {_word(self.after)}"


@dataclass(frozen=True, slots=True)
class Fallback:
    """What one step down changes; `settings` is all that has been changed by then."""

    effect: Effect
    reason: str
    changes: tuple[Change, ...]
    settings: dict[str, Any]

    @property
    def options(self) -> frozenset[str]:
        return frozenset(change.option for change in self.changes)

    def as_table(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return told(self.as_table())


def oom_fallbacks(job: Job, gpu: GpuFacts | None, entities: int | None = None) -> tuple[Fallback, ...]:
    """The fallbacks below the job's options as they were resolved; `gpu` None: it runs on the CPU.

    With the number of entities known, a chunk larger than that counts as what it is.
    """
    stages = list(stages_of(job, gpu))
    if not stages:
        return ()
    now = _merged([stage.start(entities) for stage in stages])
    settings: dict[str, Any] = {}
    fallbacks = []
    for effect in _EFFECTS:
        if effect == "changes results" and not job.limits.allow_approximate:
            break
        # Nobody knows which stage of a pipeline ran out: a fallback lowers both.
        for together in zip_longest(*(stage.steps(effect, now) for stage in stages)):
            steps = [step for step in together if step is not None]
            changes = _changes(now, steps)
            if not changes:
                continue
            now |= {change.option: change.after for change in changes}
            settings = settings | {change.option: change.after for change in changes}
            reasons = dict.fromkeys(why for made, why in steps if any(c.option in made for c in changes))
            fallbacks.append(Fallback(effect, "; ".join(reasons), changes, settings))
    return tuple(fallbacks)


def told(fallback: Mapping[str, Any]) -> str:
    """`entity_chunk 2048 → 512 (exact: fewer entities scored at a time)`, of a fallback as a plan keeps it."""
    changes = [f"{c['option']} {_word(c['before'])} → {_word(c['after'])}" for c in fallback["changes"]]
    return f"{', '.join(changes)} ({fallback['effect']}: {fallback['reason']})"


def passed_over(fallbacks: Sequence[Mapping[str, Any]]) -> list[str]:
    """`batch_size 64 → 32 → 16 (113 MiB predicted with it, as much as without)`, of fallbacks that a plan keeps as
    not tried: one line for those that are passed over for the same reason."""
    chains: dict[tuple[str, str], str] = {}
    for fallback in fallbacks:
        for change in fallback["changes"]:
            key, before = (change["option"], fallback["skipped"]), _word(change["before"])
            so_far = chains.get(key, before)
            so_far += "" if so_far.endswith(before) else f", {before}"
            chains[key] = f"{so_far} → {_word(change['after'])}"
    return [f"{option} {chain} ({why})" for (option, why), chain in chains.items()]


def last_resort(job: Job) -> str:
    """What a person can still try when the last fallback has run out too."""
    more = [] if job.limits.allow_approximate else ["--allow-approximate, which may change results"]
    if job.limits.memory_mib is not None:
        more.append(f"a --memory-limit above {job.limits.memory_mib} MiB")
    if job.workload == "regress":
        more.append("smaller frames in the flights' files")
    elif job.workload != "tracin":
        more.append("a smaller model (--embedding-dim, --output-channels)")
    return "try " + ", ".join([*more, "or a machine or GPU with more memory"])


def stepped_down(attempts: Sequence[Mapping[str, Any]], fallbacks: Sequence[Mapping[str, Any]]) -> str | None:
    """`stepped down twice: entity_chunk 2048 → 1024 → 512 (exact)`, from the settings of a run's attempts and
    the OOM fallbacks of its plan; None where nothing was changed."""
    times = sum(after != before for before, after in pairwise(attempts))
    if not times:
        return None
    first = {
        c["option"]: c["before"] for fallback in reversed(fallbacks) for c in reversed(fallback["changes"])
    }
    chains: dict[str, list[Any]] = {}
    for settings in attempts:
        for option, value in settings.items():
            chain = chains.setdefault(option, [first[option]] if option in first else [])
            if not chain or chain[-1] != value:
                chain.append(value)
    changes = [
        f"{name} {' → '.join(map(_word, chain))} ({effect_of(name)})" for name, chain in chains.items()
    ]
    often = {1: "once", 2: "twice"}.get(times, f"{times} times")
    return f"stepped down {often}: {', '.join(changes)}"


def _merged(starts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Of an option that two stages share, the lower: stepping down must not mean more for either."""
    found: dict[str, Any] = {}
    for start in starts:
        for name, value in start.items():
            counts = name in found and isinstance(value, int) and not isinstance(value, bool)
            found[name] = min(value, found[name]) if counts else found.get(name, value)
    return found


def _changes(now: Mapping[str, Any], steps: Sequence[Step]) -> tuple[Change, ...]:
    """What these steps make less; who has it already, or less than that, is left alone."""
    wanted = _merged(made for made, _ in steps)
    return tuple(
        Change(name, now[name], value, effect_of(name))
        for name, value in wanted.items()
        if now[name] != value and not (_counts(now[name]) and _counts(value) and now[name] < value)
    )


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _word(value: Any) -> str:
    return "on" if value is True else "off" if value in _OFF and not _counts(value) else shown(value)
