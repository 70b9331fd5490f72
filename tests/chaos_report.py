"""What the kill tests did and what they found, for a person and for BENCHMARKS.md."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from benchmarks.measure import Line


@dataclass
class Report:
    kills: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    adoptions: int = 0
    attempts: int = 0
    wrong: list[str] = field(default_factory=list)
    slowest_settling_s: float = 0.0

    @property
    def killed(self) -> int:
        return self.kills.total()

    def lines(self) -> list[str]:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(self.kills.items()))
        states = ", ".join(f"{n} {state}" for state, n in sorted(self.runs.items()))
        return [
            f"{self.killed} kills: {kinds}",
            f"{self.runs.total()} runs: {states}; {self.attempts} attempts, {self.adoptions} adoptions",
            f"slowest settling {self.slowest_settling_s:.1f} s",
            *(["nothing wrong"] if not self.wrong else ["WRONG: " + line for line in self.wrong]),
        ]


def metrics(report: Report, took_s: float) -> list[Line]:
    """What BENCHMARKS.md shows of it."""
    counted = (
        ("kills at random moments", report.killed, None),
        ("runs they fell upon", report.runs.total(), None),
        ("attempts of them", report.attempts, None),
        ("supervisors that took over from a dead one", report.adoptions, None),
        ("states, results, points or processes that were wrong afterwards", len(report.wrong), 0.0),
    )
    return [
        *(Line(f"chaos_{i}", subject, "", (float(n),), most) for i, (subject, n, most) in enumerate(counted)),
        Line("chaos_settling", "longest from a kill until all was told truly", "s", (report.slowest_settling_s,)),
        Line("chaos_took", "all of it took", "s", (took_s,)),
    ]  # fmt: skip
