"""One rule and one set of words say what an option does; the baseline beside itself says how steady the machine was."""

import sqlite3

import pytest

from kgops.experiments.summary import (
    Noise,
    effect_of,
    noise_of,
    of_both,
    rows,
    steadiness,
)
from kgops.experiments.trial_result import Spread, spread_of
from storage import benches
from storage.benches import Bench, Pair

QUIET: Noise = {"speed": 0.05, "memory": 0.05}


TOLD = {"seconds_of": "an epoch", "memory_of": "resident set", "trouble": None, "memory_mib": 100.0}
# Seconds of a baseline beside one that took a second.
NOISY = tuple(1 / ratio for ratio in (1.08, 1.08, 1.19, 1.27, 1.27))


def held(conn: sqlite3.Connection, seconds: dict[str, tuple[float, ...]]) -> Bench:
    """A table of claims in which each variant took so long beside a baseline of a second."""
    plan = {"variants": [{"name": name} for name in ("fp32", *seconds)], "rounds": 5, "warm_all": True}
    number = benches.begin(conn, "claims a (quick): x", plan, "kgops bench claims", {"machine": {}}, 1.0)
    for name, values in seconds.items():
        for i, value in enumerate(values):
            one, other = ({**TOLD, "seconds": s} for s in (1.0, value))
            benches.add_pair(conn, number, Pair(i, name, None, None, one, other, 0.0, (), float(i)))
    benches.end(conn, number, 2.0)
    bench = benches.get(conn, number)
    assert bench is not None
    return bench


def test_the_baseline_beside_itself_has_no_effect_to_speak_of_but_says_how_steady_the_machine_was(
    conn: sqlite3.Connection,
) -> None:
    bench = held(conn, {"fp32 again": NOISY, "+ bf16": (0.8,) * 5, "+ cleanup": (0.5,) * 5})
    found = {row.variant: row for row in rows(conn, bench)}
    assert (found["fp32 again"].verdict, found["fp32 again"].why) == ("unsteady", "differs by up to 27%")
    # What is no further from 1 than that is no effect of an option.
    assert (found["+ bf16"].verdict, found["+ bf16"].why) == ("no effect", "the control differs by up to 27%")
    assert found["+ cleanup"].verdict == "effective"


@pytest.mark.parametrize(
    ("ratios", "memory", "said"),
    [
        ([0.99, 1.0, 1.02], [1.0, 1.0, 1.0], ("steady", "")),
        ([1.0, 1.2, 1.4], [1.0, 1.0, 1.0], ("unsteady", "differs by up to 30%")),
        ([0.7, 0.8, 0.9], None, ("unsteady", "differs by up to 33%")),
        ([1.0, 1.0, 1.0], [1.2, 1.2, 1.2], ("unsteady", "memory differs by up to 20%")),
        ([0.4, 1.0, 2.5], [1.2, 1.2, 1.2], ("unsteady", "differs by up to 75%; memory differs by up to 20%")),
        ([1.0, 1.0], [1.0, 1.0], ("not measured yet", "2 of at least 3 pairs")),
        ([], [], ("not measured yet", "no pair has this value")),
    ],
)
def test_steady_is_within_a_twentieth_and_else_it_is_told_how_far_off(
    ratios: list[float], memory: list[float] | None, said: tuple[str, str]
) -> None:
    assert steadiness(spread_of(ratios), spread_of(memory or [])) == said


def test_a_variant_whose_name_ends_like_a_control_is_judged_like_any_other(conn: sqlite3.Connection) -> None:
    bench = held(conn, {"once again": (0.5,) * 5})
    assert rows(conn, bench)[1].verdict == "effective"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.9, 2.0, 2.1], "effective"),
        ([1.02, 1.03, 1.04], "no effect"),
        ([0.7, 0.8, 0.9], "harmful"),
        ([0.9, 1.0, 1.1], "no effect"),
        ([0.5, 1.0, 2.5], "cannot be tested here"),
        ([2.0, 2.0], "not measured yet"),
        ([], "not measured yet"),
    ],
)
def test_the_rule_looks_at_the_whole_interquartile_range(values: list[float], verdict: str) -> None:
    assert effect_of(spread_of(values))[0] == verdict


def test_an_effect_must_lie_beyond_what_the_baseline_beside_itself_has_shown() -> None:
    noise = noise_of(Spread(0.9, 0.86, 0.92, 3))
    assert noise == pytest.approx(1 / 0.86 - 1)
    assert noise_of(Spread(1.0, 1.0, 1.0, 3)) == noise_of(None) == 0.05
    assert effect_of(spread_of([1.1, 1.1, 1.1]), noise)[0] == "no effect"
    assert effect_of(spread_of([1.1, 1.1, 1.1]))[0] == "effective"
    assert effect_of(spread_of([0.87, 0.88, 0.9]), noise)[0] == "no effect"
    assert effect_of(spread_of([0.5, 0.5, 0.6]), noise)[0] == "harmful"


def test_a_option_that_buys_memory_with_time_says_both() -> None:
    slower, smaller = spread_of([0.6, 0.6, 0.6]), spread_of([2.0, 2.0, 2.0])
    assert of_both(slower, smaller, QUIET) == ("harmful", "memory: effective")
    assert of_both(smaller, smaller, QUIET) == ("effective", "")
    assert of_both(slower, None, QUIET) == ("harmful", "")
