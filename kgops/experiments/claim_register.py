"""The register of claims: every number that the five documents state, with its condition and its check.

Each file in claim_register/ covers one document. A claim has `lines` of the document, `says` and `when` (its
condition) in our words, `kind`, and `low`, `high` and `unit` if it states a number. `against` names contradicting
claims. Its verdict comes from one of

    on          table / variant / quantity of `kgops bench claims`; `over`: a variant used instead of the baseline;
                `expects`: the claimed effect if no number is claimed
    check       a value that `kgops bench claims --only e` stores under this name
    reckon      a function of calculated_claims.py or predicted_claims.py, and its arguments
    documented  a verdict from documentation, named in `source`
    reason      why it cannot be tested here: a key of REASONS; also shown if `on` could not run

One rule for what needs a GPU: a ratio of memory, and a batch that fits, are predicted for kgops' own code, over the
range of what the document does not state (predicted_claims.py). Amounts, times and limits of their own code are not
judged without the sizes they depend on, nor is what kgops has no prediction for: speed, quality, emptying the cache.

`bound` is our criterion for a claim without a number; `about` marks a claim that says “about”: a tenth up or down.
`near` is the condition under which the claim can be judged: a value that the runs report, and what it must be near.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from storage.measurements import Claim

DOCUMENTS = ("tracin", "train", "analysis", "loss", "regress")
REASONS = {
    "cuda": "needs a CUDA GPU; these benchmarks run on the CPU",
    "cache": "empties CUDA's cache; these benchmarks run on the CPU",
    "gpus": "needs four GPUs",
    "gpu": "needs old GPUs",
    "room": "about what their own code could not hold, on a GPU not stated",
    "checkpointing": "needs a CUDA GPU; not predicted: kgops' TracIn keeps no graph that could be checkpointed",
    "sizes": "GPU, graph or model not stated: nothing to compare with",
    "resolution": "resolution not stated, and memory depends on it",
    "data": "data not public",
    "setting": "a setting; no result claimed",
    "reference": "names only the baseline",
    "tbd": "the document has no value",
}
Sense = Literal["gain", "cost", "most", "least", "amount"]


@dataclass(frozen=True)
class Documented:
    """A claim as its document states it. `table` is empty unless a benchmark measures it."""

    name: str
    document: str
    title: str
    lines: str
    says: str
    condition: str
    kind: str
    low: float | None
    high: float | None
    unit: str
    about: bool
    against: tuple[str, ...]
    bound: Mapping[str, float]
    table: str = ""
    variant: str = ""
    quantity: str = ""
    over: str | None = None
    expects: str | None = None
    check: str | None = None
    reckon: tuple[Any, ...] = ()
    documented: str | None = None
    source: str | None = None
    reason: str | None = None
    near: Mapping[str, float] = field(default_factory=dict)

    @property
    def claim(self) -> Claim:
        """The claim as the database stores it."""
        source = f"{self.title}, line {self.lines}"
        return Claim(self.name, self.title, source, self.says, self.low, self.high, self.unit)

    @property
    def range(self) -> str:
        """`2 to 3 ×`, `at most 0.01 of the largest score`, `no number`."""
        low, high = (None if one is None else f"{one:,.10g}" for one in (self.low, self.high))
        if low is None and high is None:
            return "no number"
        about = "about " if self.about else ""
        if low is None:
            text = f"at most {about}{high}"
        elif high is None:
            text = f"{about}{low}"
        else:
            text = f"{about}{low}" if low == high else f"{about}{low} to {high}"
        return f"{text} {self.unit}".rstrip()

    @property
    def sense(self) -> Sense:
        """Gains and bounds may be better than claimed; costs and other amounts must be met."""
        if self.low is None:
            return "most"
        if self.unit == "×":
            return "gain"
        if self.high is None:
            return "least"
        return "cost" if self.unit == "× speed" and self.high < 1 else "amount"


@cache
def register() -> dict[str, Documented]:
    """All claims by name, in the order of the documents."""
    claims: dict[str, Documented] = {}
    for document in DOCUMENTS:
        table = _read(document)
        for name, one in table["claim"].items():
            claims[f"{document}.{name}"] = _claim(f"{document}.{name}", document, table["document"], one)
    return claims


def titles() -> dict[str, str]:
    """Title of each document."""
    return {document: _read(document)["document"]["title"] for document in DOCUMENTS}


@cache
def _read(document: str) -> dict[str, Any]:
    path = Path(__file__).parent / "claim_register" / f"{document}.toml"
    return tomllib.loads(path.read_text("utf-8"))


def _claim(name: str, document: str, about: Mapping[str, str], one: Mapping[str, Any]) -> Documented:
    table, variant, quantity = one["on"].split(" / ") if "on" in one else ("", "", "")
    reason = one.get("reason")
    return Documented(
        *(name, document, about["title"], one["lines"], one["says"], one["when"], one["kind"]),
        *(one.get("low"), one.get("high"), one.get("unit", "")),
        about=one.get("about", False),
        against=tuple(one.get("against", ())),
        bound=one.get("bound", {}),
        table=table,
        variant=variant,
        quantity=quantity,
        over=one.get("over"),
        expects=one.get("expects"),
        check=one.get("check"),
        reckon=tuple(one.get("reckon", ())),
        documented=one.get("documented"),
        source=one.get("source"),
        reason=None if reason is None else REASONS[reason],
        near=one.get("near", {}),
    )
