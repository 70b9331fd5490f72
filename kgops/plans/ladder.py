"""The ladder: which levers give way after each out-of-memory, in which order, and why.

First what gives the same numbers, then what changes their rounding, and only for a job that allows it what
changes what is found. A rung keeps what the ones before it changed; one that would change nothing is no rung.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from typing import Any

from kgops.gpus.facts import CardFacts
from kgops.jobs.job import Job
from kgops.jobs.levers import Kind, kind_of
from kgops.jobs.sizes import REGRESS_BATCH, REGRESS_FRAMES
from kgops.plans.rules import shown

__all__ = ["Change", "Rung", "ladder", "last_resort", "stepped_down", "told"]

TRAIN_BATCH = 256  # what workers take where nothing is said; a test holds the numbers together
TRACIN_BLOCK = 256
TRACIN_CHUNK = 2048
SMALLEST_CHUNK = 512  # below it a plane of scores is smaller than what lies around it
SMALLEST_BLOCK = 16
SMALLEST_BATCH = 16
FEWEST_FRAMES = 3  # of a window; with two, there is none between
_FEWER_TESTS = (64, 8, 1)
_GRAPH_MODES = ("reduce-overhead", "max-autotune")
_KINDS: tuple[Kind, ...] = ("exact", "numeric", "approximate")
_OFF = (False, "off")

_Step = tuple[dict[str, Any], str]  # levers to set, and why that needs less


@dataclass(frozen=True, slots=True)
class Change:
    lever: str
    before: Any
    after: Any
    kind: Kind

    def __str__(self) -> str:
        return f"{self.lever} {_word(self.before)} → {_word(self.after)}"


@dataclass(frozen=True, slots=True)
class Rung:
    """What one step down changes; `settings` is all that has been changed by then."""

    kind: Kind
    reason: str
    changes: tuple[Change, ...]
    settings: dict[str, Any]

    def as_table(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return told(self.as_table())


def ladder(job: Job, card: CardFacts | None, entities: int | None = None) -> tuple[Rung, ...]:
    """The rungs below the job's levers as they were resolved; `card` None: it runs on the CPU.

    With the number of entities known, a chunk larger than that counts as what it is.
    """
    stages = list(_stages(job, card))
    if not stages:
        return ()
    now = _merged([stage.start(entities) for stage in stages])
    settings: dict[str, Any] = {}
    rungs = []
    for kind in _KINDS:
        if kind == "approximate" and not job.limits.allow_approximate:
            break
        # Nobody knows which stage of a pipeline ran out: a rung lowers both.
        for together in zip_longest(*(stage.steps(kind, now) for stage in stages)):
            steps = [step for step in together if step is not None]
            changes = _changes(now, steps)
            if not changes:
                continue
            now |= {change.lever: change.after for change in changes}
            settings = settings | {change.lever: change.after for change in changes}
            reasons = dict.fromkeys(why for made, why in steps if any(c.lever in made for c in changes))
            rungs.append(Rung(kind, "; ".join(reasons), changes, settings))
    return tuple(rungs)


def told(rung: Mapping[str, Any]) -> str:
    """`entity_chunk 2048 → 512 (exact: fewer entities scored at a time)`, of a rung as a plan keeps it."""
    changes = [f"{c['lever']} {_word(c['before'])} → {_word(c['after'])}" for c in rung["changes"]]
    return f"{', '.join(changes)} ({rung['kind']}: {rung['reason']})"


def last_resort(job: Job) -> str:
    """What a person can still try when the last rung has run out too."""
    more = [] if job.limits.allow_approximate else ["--allow-approximate, which may change results"]
    if job.limits.memory_mib is not None:
        more.append(f"a --memory-limit above {job.limits.memory_mib} MiB")
    if job.workload == "regress":
        more.append("smaller frames in the flights' files")
    elif job.workload != "tracin":
        more.append("a smaller model (--embedding-dim, --output-channels)")
    return "try " + ", ".join([*more, "or a machine or card with more memory"])


def stepped_down(attempts: Sequence[Mapping[str, Any]], rungs: Sequence[Mapping[str, Any]]) -> str | None:
    """`stepped down twice: entity_chunk 2048 → 1024 → 512 (exact)`, from the settings of a run's attempts and
    the ladder of its plan; None where nothing was changed."""
    times = sum(after != before for before, after in pairwise(attempts))
    if not times:
        return None
    first = {c["lever"]: c["before"] for rung in reversed(rungs) for c in reversed(rung["changes"])}
    chains: dict[str, list[Any]] = {}
    for settings in attempts:
        for lever, value in settings.items():
            chain = chains.setdefault(lever, [first[lever]] if lever in first else [])
            if not chain or chain[-1] != value:
                chain.append(value)
    changes = [f"{name} {' → '.join(map(_word, chain))} ({kind_of(name)})" for name, chain in chains.items()]
    often = {1: "once", 2: "twice"}.get(times, f"{times} times")
    return f"stepped down {often}: {', '.join(changes)}"


@dataclass(frozen=True, slots=True)
class _Stage:
    job: Job
    settings: Mapping[str, Any]  # of this stage alone
    card: CardFacts | None

    def start(self, entities: int | None) -> dict[str, Any]:
        raise NotImplementedError

    def steps(self, kind: Kind, now: Mapping[str, Any]) -> Iterator[_Step]:
        raise NotImplementedError

    def _precision(self) -> str:
        asked: str = self.job.levers.get("precision", "fp32")
        return _half(self.card) or asked if asked == "auto" else asked

    def _lower_precision(self, now: Mapping[str, Any]) -> Iterator[_Step]:
        half = _half(self.card)
        if half is not None and now["precision"] in ("fp32", "tf32"):
            yield {"precision": half}, "half the bytes in the heavy products"


class _Train(_Stage):
    """ConvE by kgops' own engine."""

    def start(self, entities: int | None) -> dict[str, Any]:
        asked = self.job.levers
        batch = asked.get("batch_size", TRAIN_BATCH)
        return {
            "batch_size": batch,
            "entity_chunk": _chunk(asked, max(256, (1 << (24 if self.card else 19)) // batch), entities),
            "gradient_checkpointing": asked.get("gradient_checkpointing", False),
            "cuda_graphs": asked.get("cuda_graphs", False) if self.card else False,
            # A profile speaks of its card: on a CPU workers do not compile for it.
            "compile": asked.get("compile", "off") if self.card or self.job.profile is None else "off",
            "precision": self._precision(),
        }

    def steps(self, kind: Kind, now: Mapping[str, Any]) -> Iterator[_Step]:
        if kind == "exact":
            yield from _smaller_chunks(now)
            yield {"cuda_graphs": False}, "a captured step keeps its memory for itself"
            if now["compile"] not in _GRAPH_MODES:
                yield {"gradient_checkpointing": True}, "activations are computed again instead of kept"
        elif kind == "numeric":
            if now["compile"] in _GRAPH_MODES and self.card:
                yield {"compile": "default"}, "without the memory that captured graphs keep"
                yield {"gradient_checkpointing": True}, "activations are computed again instead of kept"
            elif not self.card:
                yield {"compile": "off"}, "compiling takes memory of its own"
            yield from self._lower_precision(now)
        else:
            yield from _halved("batch_size", now["batch_size"], SMALLEST_BATCH, "fewer examples in a step")


class _PyKEEN(_Stage):
    """PyKEEN's pipeline honours no lever of memory but the batch."""

    def start(self, entities: int | None) -> dict[str, Any]:
        return {"batch_size": self.job.levers.get("batch_size", TRAIN_BATCH)}

    def steps(self, kind: Kind, now: Mapping[str, Any]) -> Iterator[_Step]:
        if kind == "approximate":
            yield from _halved("batch_size", now["batch_size"], SMALLEST_BATCH, "fewer examples in a step")


class _Regress(_Stage):
    """In the order of the project it comes from; a batch in pieces finds the same as the batch in one."""

    def start(self, entities: int | None) -> dict[str, Any]:
        asked = self.job.levers
        batch = asked.get("batch_size", REGRESS_BATCH)
        pieces = asked.get("microbatch", "auto")
        return {
            "microbatch": batch if pieces == "auto" else min(pieces, batch),
            "temporal_frames": asked.get("temporal_frames", REGRESS_FRAMES),
            "memory_optimized": asked.get("memory_optimized", False),
            "gradient_checkpointing": asked.get("gradient_checkpointing", False),
            "compile": asked.get("compile", "off") if self.card or self.job.profile is None else "off",
            "precision": self._precision(),
        }

    def steps(self, kind: Kind, now: Mapping[str, Any]) -> Iterator[_Step]:
        again = {"gradient_checkpointing": True}, "activations of one frame at a time are kept"
        graphs = now["compile"] in _GRAPH_MODES
        if kind == "exact" and not graphs:
            yield again
        elif kind == "numeric":
            if graphs:
                yield {"compile": "default"}, "without the memory that captured graphs keep"
                yield again
            for windows in _sizes(now["microbatch"], 1):
                yield {"microbatch": windows}, "fewer windows at a time, for the same step"
            yield {"compile": "off"}, "compiling takes memory of its own"
            yield from self._lower_precision(now)
        elif kind == "approximate":
            for frames in range(now["temporal_frames"] - 1, FEWEST_FRAMES - 1, -1):
                yield {"temporal_frames": frames}, "fewer frames in a window"
            yield {"memory_optimized": True}, "half the channels"


class _Tracin(_Stage):
    def start(self, entities: int | None) -> dict[str, Any]:
        asked = self.job.levers
        return {
            "block": asked.get("block", TRACIN_BLOCK),
            "entity_chunk": _chunk(asked, TRACIN_CHUNK, entities),
            "tests_at_once": 1 if self._one_test else asked.get("tests_at_once", "auto"),
            "precision": self._precision(),
            "gram_precision": asked.get("gram_precision", "fp32"),
            "last_layers": True if self.settings["layers"] else asked.get("last_layers", False),
            "filtering": asked.get("filtering", bool(self.settings["test_triples"])),
        }

    @property
    def _one_test(self) -> bool:
        asked = self.settings
        return bool(asked["test_triple"] or asked["self_influence"] or asked["build_index"])

    def steps(self, kind: Kind, now: Mapping[str, Any]) -> Iterator[_Step]:
        if kind == "exact":
            for tests in _FEWER_TESTS:
                yield {"tests_at_once": tests}, "what is kept of fewer test triples at a time"
            for block in _sizes(now["block"], SMALLEST_BLOCK):
                yield {"block": block}, "fewer training triples at a time"
            yield from _smaller_chunks(now)
        elif kind == "numeric":
            yield from self._lower_precision(now)
            half = _half(self.card)
            if half is not None and now["gram_precision"] == "fp32":
                yield {"gram_precision": half}, "half the bytes in TracIn's two largest products"
        else:
            if not now["last_layers"]:
                yield {"last_layers": 1}, "gradients of the last layer alone"
            if not (self.settings["self_influence"] or self.settings["build_index"]):
                yield {"filtering": True}, "only the neighbourhood of each test triple is scored"


def _stages(job: Job, card: CardFacts | None) -> Iterator[_Stage]:
    tables = {job.workload: job.settings}
    if job.workload == "pipeline":
        from kgops.jobs.pipelining import tracin_settings, train_settings

        whole = tracin_settings(job.settings, "", "")
        tables = {"train": train_settings(job.settings), "tracin": whole}
    for name, settings in tables.items():
        used = None if settings.get("device") == "cpu" else card
        if name == "train":
            kind = _PyKEEN if settings["engine"] == "pykeen" else _Train
            yield kind(job, settings, used)
        elif name == "regress":
            yield _Regress(job, settings, used)
        elif name == "tracin" and not settings["skip_tracin"]:
            yield _Tracin(job, settings, used)


def _merged(starts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Of a lever that two stages share, the lower: stepping down must not mean more for either."""
    found: dict[str, Any] = {}
    for start in starts:
        for name, value in start.items():
            counts = name in found and isinstance(value, int) and not isinstance(value, bool)
            found[name] = min(value, found[name]) if counts else found.get(name, value)
    return found


def _changes(now: Mapping[str, Any], steps: Sequence[_Step]) -> tuple[Change, ...]:
    """What these steps make less; who has it already, or less than that, is left alone."""
    wanted = _merged(made for made, _ in steps)
    return tuple(
        Change(name, now[name], value, kind_of(name))
        for name, value in wanted.items()
        if now[name] != value and not (_counts(now[name]) and _counts(value) and now[name] < value)
    )


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _smaller_chunks(now: Mapping[str, Any]) -> Iterator[_Step]:
    for chunk in _sizes(now["entity_chunk"], SMALLEST_CHUNK):
        yield {"entity_chunk": chunk}, "fewer entities scored at a time"


def _sizes(start: int, smallest: int) -> Iterator[int]:
    """Powers of two from a quarter of `start` on: each attempt loads its libraries and its graph anew, so
    that few large steps find what fits sooner than many small ones."""
    while start > smallest:
        start = max(smallest, 1 << ((start // 4).bit_length() - 1) if start >= 4 else 1)
        yield start


def _halved(lever: str, start: int, smallest: int, why: str) -> Iterator[_Step]:
    """As little less as can be: what changes results should change them little."""
    while start // 2 >= smallest:
        start //= 2
        yield {lever: start}, why


def _chunk(asked: Mapping[str, Any], usual: int, entities: int | None) -> int:
    wanted = asked.get("entity_chunk", "auto")
    size: int = usual if wanted == "auto" else wanted
    return size if entities is None else min(size, entities)


def _half(card: CardFacts | None) -> str | None:
    """The half precision that this card has tensor cores for."""
    capability = None if card is None else card.compute_capability
    if capability is None or capability < (7, 0):
        return None
    return "bf16" if capability >= (8, 0) else "fp16"


def _word(value: Any) -> str:
    return "on" if value is True else "off" if value in _OFF and not _counts(value) else shown(value)
