"""OOM fallbacks: option changes to try after each out-of-memory, in order, with reasons.

Exact changes come first, then changes of rounding, then, only where the job allows it, changes of results. A fallback
keeps the changes of those before it; a step that changes nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any

from kgops.jobs.job import Job
from kgops.jobs.option import Effect, word_of
from kgops.workloads.catalog import effect_of

if TYPE_CHECKING:
    from kgops.gpus.facts import GpuFacts
    from kgops.workloads.plan import Step

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
    """One OOM fallback; `settings` are all changes so far."""

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
        return fallback_line(self.as_table())


def oom_fallbacks(job: Job, gpu: GpuFacts | None, entities: int | None = None) -> tuple[Fallback, ...]:
    """The fallbacks of a job with resolved options; `gpu` None: it runs on the CPU. `entities` limits chunks."""
    from kgops.workloads.plan import (
        plan_of,
    )  # imported here: a page of a run shows fallbacks and plans nothing
    from kgops.workloads.registry import workload_of

    stages = [] if workload_of(job).is_command else plan_of(job.workload).fallbacks(job, gpu)
    if not stages:
        return ()
    now = _merged([stage.start(entities) for stage in stages])
    settings: dict[str, Any] = {}
    fallbacks = []
    for effect in _EFFECTS:
        if effect == "changes results" and not job.limits.allow_approximate:
            break
        # It is not known which stage of a pipeline ran out of memory: a fallback changes both.
        for side_by_side in zip_longest(*(stage.steps(effect, now) for stage in stages)):
            steps = [step for step in side_by_side if step is not None]
            changes = _changes(now, steps)
            if not changes:
                continue
            now |= {change.option: change.after for change in changes}
            settings = settings | {change.option: change.after for change in changes}
            reasons = dict.fromkeys(why for values, why in steps if any(c.option in values for c in changes))
            fallbacks.append(Fallback(effect, "; ".join(reasons), changes, settings))
    return tuple(fallbacks)


def fallback_line(fallback: Mapping[str, Any]) -> str:
    """`entity_chunk 2048 → 512 (exact: fewer entities scored at once)`, of a fallback in a recorded plan."""
    changes = [f"{c['option']} {_word(c['before'])} → {_word(c['after'])}" for c in fallback["changes"]]
    return f"{', '.join(changes)} ({fallback['effect']}: {fallback['reason']})"


def skipped_lines(fallbacks: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fallbacks that a plan skips, one line for each reason. An example is `batch_size 64 → 32 → 16 (113 MiB
    predicted with it, as much as without)`."""
    chains: dict[tuple[str, str], str] = {}
    for fallback in fallbacks:
        for change in fallback["changes"]:
            key, before = (change["option"], fallback["skipped"]), _word(change["before"])
            so_far = chains.get(key, before)
            so_far += "" if so_far.endswith(before) else f", {before}"
            chains[key] = f"{so_far} → {_word(change['after'])}"
    return [f"{option} {chain} ({why})" for (option, why), chain in chains.items()]


def oom_advice(job: Job) -> str:
    """Advice after the last fallback has run out of memory."""
    more = [] if job.limits.allow_approximate else ["--allow-approximate, which may change results"]
    if job.limits.memory_mib is not None:
        more.append(f"a --memory-limit above {job.limits.memory_mib} MiB")
    return "try " + ", ".join([*more, *smaller_work(job), "or a GPU or machine with more memory"])


def smaller_work(job: Job) -> list[str]:
    """What of the work itself can be made smaller; nothing where the model is trained already."""
    from kgops.workloads.registry import workload_of

    return [*workload_of(job).smaller]


def fallbacks_taken(
    attempts: Sequence[Mapping[str, Any]], fallbacks: Sequence[Mapping[str, Any]]
) -> str | None:
    """`2 OOM fallbacks: entity_chunk 2048 → 1024 → 512 (exact)`, or None where nothing was changed. It uses the
    settings of a run's attempts and the OOM fallbacks of its plan."""
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
    return f"{times} OOM fallback{'s' * (times > 1)}: {', '.join(changes)}"


def _merged(starts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The options of all stages; of a shared number the lower, so that no fallback raises it."""
    merged: dict[str, Any] = {}
    for start in starts:
        for name, value in start.items():
            counts = name in merged and isinstance(value, int) and not isinstance(value, bool)
            merged[name] = min(value, merged[name]) if counts else merged.get(name, value)
    return merged


def _changes(now: Mapping[str, Any], steps: Sequence[Step]) -> tuple[Change, ...]:
    """Changes of these steps, without options that already have the value or a lower one."""
    wanted = _merged(made for made, _ in steps)
    return tuple(
        Change(name, now[name], value, effect_of(name))
        for name, value in wanted.items()
        if now[name] != value and not (_counts(now[name]) and _counts(value) and now[name] < value)
    )


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _word(value: Any) -> str:
    return "on" if value is True else "off" if value in _OFF and not _counts(value) else word_of(value)
