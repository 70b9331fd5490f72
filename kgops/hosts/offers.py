"""Where a job fits: its plans for the GPUs of several hosts, as kgops there makes them, first what would end first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kgops.hosts.ask import Answer, ask, bounded_json
from kgops.hosts.registry import Host
from kgops.jobs import toml
from kgops.jobs.job import Job
from kgops.jobs.text import one_line
from kgops.planning.graph_counts import counts_of
from kgops.settings import Home
from kgops.supervisor.plan_job import remembered_in
from kgops.views.formats import UNKNOWN, duration

__all__ = ["Offer", "Offers", "ask_offers", "joined", "when"]

_STATES = ("now", "later", "unknown", "empty", "never")
_MOST_OFFERS = 256  # of a host
_PATIENCE_S = 120.0  # a first plan counts the triples
_NO_FIT = 3  # exit code: planned, and one does not fit
_LONGEST_S = 1e10


class Offer(NamedTuple):
    """The plan for one GPU of one host, or for its CPU. Texts and numbers are that host's; None is unknown."""

    host: str
    gpu: str | None  # as `--gpu` calls it there
    on: str
    state: str  # of `kgops.planning.targets.State`
    verdict: str
    need_mib: float | None
    begins_in_s: float | None
    takes_s: float | None
    is_measured: bool
    refused: str | None  # why it would not start there

    @property
    def ends_in_s(self) -> float | None:
        known = self.begins_in_s is not None and self.takes_s is not None
        return (self.begins_in_s or 0.0) + (self.takes_s or 0.0) if known else None

    @property
    def starts(self) -> bool:
        """At once or after others: neither too small nor refused."""
        return self.refused is None and self.state in ("now", "later", "unknown")

    @property
    def name(self) -> str:
        """Of the GPU, or the CPU, without its maker."""
        return self.on.removeprefix("NVIDIA ")

    @property
    def place(self) -> str:
        return f"{self.host} (GPU {self.gpu}, {self.on})" if self.gpu else f"{self.host} ({self.on})"

    @property
    def now(self) -> str:
        """Whether it would start there now, or why not."""
        refused = self.refused if self.state != "never" else None
        return self.verdict if refused is None else f"would not start: {refused}"

    @property
    def needs(self) -> str:
        return UNKNOWN if self.need_mib is None else f"{self.need_mib:,.0f} MiB"

    def __str__(self) -> str:
        ends, basis = when(self)
        return f"{self.place}: {self.now}; ends in {ends} ({basis})"

    def as_table(self) -> dict[str, Any]:
        return {**self._asdict(), "ends_in_s": self.ends_in_s, "starts": self.starts}


class Offers(NamedTuple):
    """`ordered`: best first. `silent`: hosts without an offer, each with its reason."""

    ordered: list[Offer]
    silent: list[Answer]

    @property
    def best(self) -> Offer | None:
        return next((one for one in self.ordered if one.starts), None)


def ask_offers(home: Home, hosts: Sequence[Host], job: Job) -> Offers:
    """Asks all hosts at once. A job that names no GPU is planned for each of a host's. Its paths are absolute."""
    words = ("suggest", "-", "--json", *([] if job.gpu.wanted else ["--each"]))
    said = _request(job, home)
    answers = ask(home, hosts, words, _PATIENCE_S, said=said, answers=frozenset({0, _NO_FIT}))
    found = [_offers_of(answer) for answer in answers]
    offers = [offer for one in found if isinstance(one, list) for offer in one]
    return Offers(sorted(offers, key=_place), [one for one in found if isinstance(one, Answer)])


def joined(parts: Iterable[Offers]) -> Offers:
    """Those of several hosts, in one order."""
    known = list(parts)
    return Offers(
        sorted((offer for one in known for offer in one.ordered), key=_place),
        [answer for one in known for answer in one.silent],
    )


def when(offer: Offer) -> tuple[str, str]:
    """When it would end, and what says so."""
    if offer.takes_s is None:
        return UNKNOWN, "never measured there"
    basis = "measured there" if offer.is_measured else "predicted, never measured"
    if offer.ends_in_s is None:
        return UNKNOWN, f"{duration(offer.takes_s)} once it starts, {basis}"
    return duration(offer.ends_in_s), basis


def _request(job: Job, home: Home) -> bytes:
    """The job, and the sizes of its triples, which may lie here alone."""
    data = job.settings["train"] if job.workload == "pipeline" else job.settings
    has_files = bool(data.get("train")) and not data.get("dataset")
    counted = counts_of(data, remembered_in(home, "counts.json")) if has_files else None
    counts = {"counts": counted.as_table()} if counted is not None else {}
    return toml.dumps({**job.as_table(), **counts}).encode()


def _place(offer: Offer) -> tuple[bool, float, int, float, float]:
    """What would end first; then, of those whose end is unknown, what starts now, and begins first."""
    ends, begins = offer.ends_in_s, offer.begins_in_s
    return (
        not offer.starts,
        math.inf if ends is None else ends,
        _STATES.index(offer.state),
        math.inf if begins is None else begins,
        math.inf if offer.need_mib is None else offer.need_mib,
    )


def _offers_of(answer: Answer) -> list[Offer] | Answer:
    if answer.problem is not None:
        return answer
    listed = bounded_json(answer.out)
    tables = listed[:_MOST_OFFERS] if isinstance(listed, list) else []
    offers = [offer for one in tables if (offer := _offer(answer.host.name, one)) is not None]
    return offers or answer._replace(
        problem="what it printed is not a list of plans", hint="install the same kgops on both machines"
    )


def _offer(host: str, table: Any) -> Offer | None:
    """What a stranger said, each value of its kind and bounded; None if it is no plan."""
    if not isinstance(table, dict) or table.get("now") not in _STATES:
        return None
    gpu = _text(table.get("gpu"), 64)
    return Offer(
        host=host,
        gpu=gpu,
        on=_text(table.get("on"), 60) or "n/a",
        state=table["now"],
        verdict=_text(table.get("verdict"), 200) or "",
        need_mib=_number(table.get("need_mib")),
        begins_in_s=_number(table.get("begins_in_s")),
        takes_s=_number(table.get("takes_s")),
        is_measured=table.get("is_measured") is True,
        refused=_text(table.get("refused"), 200),
    )


def _text(value: Any, longest: int) -> str | None:
    return one_line(value, longest) if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LONGEST_S:
        return None
    return float(value)
