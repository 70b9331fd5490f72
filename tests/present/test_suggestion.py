"""The sentence that leads a plan has the values of the options below it, on every page."""

import re
from typing import Any

import pytest
from driving import Console

NATIONS = ("train", "--dataset", "nations")
WORDS = {"cleanup": "memory_cleanup", "checkpointing": "gradient_checkpointing"}


def suggested(console: Console, *words: str) -> tuple[str, dict[str, Any]]:
    """The sentence of a plan, and its options with the values that are applied."""
    (plan,) = console("suggest", *words, "--json").json()
    return plan["suggested"], {one["option"]: one["applied"] for one in plan["options"]}


@pytest.mark.parametrize("gpu", ["t4", "a100-40", "cpu"])
def test_the_sentence_has_the_values_of_the_options(run_cli: Console, gpu: str) -> None:
    sentence, options = suggested(run_cli, *NATIONS, "--gpu", gpu)
    parts = sentence.partition(": ")[2].split(" · ")
    assert [part.split()[0] for part in parts[1:]] == ["cleanup", "checkpointing"]
    precision, value = parts[0].split()[:2]
    assert options["precision"] == (precision if value == "on" else "fp32")
    for part in parts[1:]:
        word, value = part.split()[:2]
        assert options[WORDS[word]] is (value == "on")


def test_what_a_person_asked_for_is_said(run_cli: Console) -> None:
    sentence, _ = suggested(
        run_cli, *NATIONS, "--gpu", "t4", "--precision", "fp32", "--use-gradient-checkpointing"
    )
    assert sentence == "Suggested for Tesla T4: fp16 off (asked) · cleanup on · checkpointing on (asked)"
    on_cpu, _ = suggested(run_cli, *NATIONS, "--gpu", "cpu", "--precision", "fp16")
    assert on_cpu.startswith("Suggested for this CPU: fp16 off (needs a GPU) · cleanup off (needs a GPU) · ")


def test_a_dry_run_begins_with_it_and_remains_a_job_file(run_cli: Console) -> None:
    page = run_cli("suggest", *NATIONS, "--gpu", "cpu").out.splitlines()[0]
    dry = run_cli("run", *NATIONS, "--device", "cpu", "--dry-run")
    assert dry.out.splitlines()[0] == f"# {page}"
    assert run_cli("run", *NATIONS, "--device", "cpu", "--dry-run", "--json").json()["suggested"] == page
    assert re.match(r"Suggested for this CPU: fp16 off", page)
