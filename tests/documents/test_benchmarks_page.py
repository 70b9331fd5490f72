"""BENCHMARKS.md as a reader checks it: what it recommends stands in the tables below it, with their numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from documented import page

from kgops.experiments.advice import HEADS, OPTION_NAMES
from kgops.experiments.verdicts import NO_VERDICT, NOTHING

BENCHMARKS = page("BENCHMARKS.md")
PARTS = dict(re.findall(r"^#+ ([^\n]+)\n(.*?)(?=^#|\Z)", BENCHMARKS, re.M | re.S))
_TO_DO = PARTS["What to do"]
_EVERY_CLAIM = next(text for heading, text in PARTS.items() if heading.startswith("All "))
_ROUNDED = 0.006  # what two decimals may hide


class Row(NamedTuple):
    option: str
    claim: str
    document: str
    measured: str
    n: str
    speed: str
    memory: str
    result: str
    verdict: str


class Advised(NamedTuple):
    table: str
    head: str
    option: str
    text: str


def rows(heading: str) -> list[Row]:
    cells = re.findall(r"^\| (.*) \|$", PARTS[heading], re.M)[1:]
    return [Row(*line.split(" | ")) for line in cells]


def advised() -> list[Advised]:
    found, table, head = [], "", ""
    for line in _TO_DO.splitlines():
        if line.startswith("- **"):
            head = line.removeprefix("- **").removesuffix(".**")
        elif line.startswith("  - "):
            option, _, text = line.removeprefix("  - ").partition(": ")
            found.append(Advised(table, head, option, text))
        elif line.endswith(":"):
            table = line.removesuffix(":")
    return found


ADVISED = advised()
TABLES = [heading for heading in PARTS if re.match(r"[a-d](?: \(quick\))?: ", heading)]


def times(text: str) -> float | None:
    found = re.match(r"([\d.,]+)×", text)
    return float(found[1].replace(",", "")) if found else None


def row_of(one: Advised) -> Row:
    return next(row for row in rows(one.table) if OPTION_NAMES.get(row.option, row.option) == one.option)


def measured(one: Advised) -> tuple[float | None, float | None]:
    """Speed and less memory of the option, as its table has them."""
    row = row_of(one)
    return times(row.speed), times(row.memory)


def resident(one: Advised) -> float | None:
    found = re.search(r"resident ([\d.,]+)×", row_of(one).memory)
    return float(found[1].replace(",", "")) if found else None


def test_what_to_do_names_every_option_of_its_tables_under_a_heading_of_now() -> None:
    assert len(ADVISED) >= 20
    assert {one.head for one in ADVISED} <= set(HEADS.values())
    assert {one.table for one in ADVISED} <= set(TABLES)
    for table in {one.table for one in ADVISED}:
        there = {
            OPTION_NAMES.get(row.option, row.option) for row in rows(table) if " again" not in row.option
        }
        assert sorted(one.option for one in ADVISED if one.table == table) == sorted(there)


@pytest.mark.parametrize("one", ADVISED, ids=[f"{one.table[:2]} {one.option}" for one in ADVISED])
def test_an_option_is_recommended_as_its_table_measured_it(one: Advised) -> None:
    speed, memory = measured(one)
    verdict = row_of(one).verdict
    if one.head in (HEADS["unmeasured"], HEADS["untested"]) and speed is None:
        assert verdict.startswith("**not measured yet**") == (one.head == HEADS["unmeasured"])
        return
    assert speed is not None
    assert f"{speed:,.2f} times as fast" in one.text or f"no effect on speed ({speed:,.2f}×)" in one.text
    if verdict.startswith("**no effect**") and not row_of(one).claim:  # of the option, not of a claim on it
        assert "times as fast" not in one.text
    if memory is not None and f"{memory:.2f}" != "1.00":
        found = re.search(r"([\d.,]+) times (less|the) memory", one.text)
        assert found
        said = float(found[1].replace(",", ""))
        assert (said if found[2] == "less" else 1 / said) == pytest.approx(memory, rel=0.01, abs=_ROUNDED)
    ratios = [ratio for ratio in (speed, memory) if ratio is not None]
    whole = resident(one)
    if one.head == HEADS["use"]:  # nothing that costs more than the rule's "nothing"
        assert min(ratios) > 1 - NOTHING - _ROUNDED
        assert whole is None or whole > 1 - NOTHING - _ROUNDED
    if whole is not None and whole < 0.9 and (memory is None or memory > 1 - NOTHING):
        assert "times the resident memory, which counts" in one.text
    if one.head in (HEADS["use"], HEADS["trade"], HEADS["changes"]):
        assert max(ratios) > 1 + NOTHING - _ROUNDED
    if one.head == HEADS["trade"]:
        assert min([*ratios, whole or 1.0]) < 1 - NOTHING + _ROUNDED


@pytest.mark.parametrize("table", TABLES)
def test_a_table_judges_the_claims_of_the_register_alone(table: str) -> None:
    for row in rows(table):
        if row.claim:
            assert f"| {row.claim} ({row.document}, line " in _EVERY_CLAIM, row


def test_a_claim_has_one_verdict_in_its_table_and_in_the_list() -> None:
    """Of the tables that the recommendations are from, as the list is; what they cannot test it may judge otherwise."""
    for table in {one.table for one in ADVISED}:
        for row in rows(table):
            if row.claim and not any(word in row.verdict for word in NO_VERDICT):
                of = re.escape(f"| {row.claim} ({row.document}, line ")
                verdicts = re.findall(rf"{of}.*?\| (\*\*[a-z ]+\*\*) \|", _EVERY_CLAIM)
                assert any(row.verdict.startswith(verdict) for verdict in verdicts), row


def test_what_was_not_run_is_called_so_with_one_word() -> None:
    for line in BENCHMARKS.splitlines():
        if "**cannot be tested here**" in line:
            assert not re.search(r"--quick|kgops bench|\byet\b", line), line
        if line.startswith("| ") and "--quick leaves out" in line:
            assert "**not measured yet**" in line, line
    assert "pending" not in _EVERY_CLAIM


def test_a_verdict_by_prediction_names_what_it_assumes_of_what_its_document_leaves_open() -> None:
    lines = [line for line in _EVERY_CLAIM.splitlines() if "| prediction |" in line]
    assert len(lines) >= 10
    for line in lines:
        assert "; assumed: " in line, line
