"""What a document says is promised: each sentence is one that a test holds, or is known to promise nothing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click
import pytest
from documented import commands, page
from driving import Console

from screens.actions import ACTIONS

TESTS = Path(__file__).parents[1]
PROMISES: dict[str, dict[str, list[str]]] = tomllib.loads((TESTS / "fixtures/promises.toml").read_text())


def sentences(text: str) -> list[str]:
    """Of paragraphs and lists; of tables the rows. What is typed, drawn or written by `make bench` is left out."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"(?s)<!-- rows of.*<!-- end of these rows -->", "", text)
    text = re.sub(r"^\|.*\n\|[-|]+\|$", "", text, flags=re.M)  # the heads of tables
    found: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?=- |\d+\. |\| |#)", text):
        one = " ".join(block.split())
        if one and not one.startswith(("#", "![")):
            found += [one] if one.startswith("|") else re.split(r"(?<=[.!?]) (?=[A-Z`*])", one)
    return found


@pytest.mark.parametrize("name", PROMISES)
def test_every_sentence_is_held_or_known_to_promise_nothing(name: str) -> None:
    words = [" ".join(one.split()) for one in PROMISES[name]]
    told = sentences(page(name))
    assert len(told) > 30
    without = [one for one in told if not any(promise in one for promise in words)]
    assert not without, "sentences of which nobody has said which test holds them"
    gone = [promise for promise in words if not any(promise in one for one in told)]
    assert not gone, f"{name} does not say this any more"


@pytest.mark.parametrize("name", PROMISES)
def test_every_test_that_holds_a_promise_exists_and_is_run(name: str) -> None:
    for held_by in PROMISES[name].values():
        for one in held_by:
            file, _, test = one.partition("::")
            text = next(TESTS.rglob(file)).read_text()
            found = re.search(rf"((?:^@.*\n|^[ )\]].*\n)*)^(?:async )?def {test}\(", text, re.M)
            assert found, f"{file} has no {test}"
            assert "mark.skip(" not in found[1], f"{one} is never run"


def test_what_always_holds_names_the_tests_that_hold_it() -> None:
    part = page("ARCHITECTURE.md").partition("## What always holds")[2].partition("\n## ")[0]
    items = re.split(r"^\d+\. ", part, flags=re.M)[1:]
    assert len(items) >= 9
    for item in items:
        named = re.findall(r"\b(test_\w+\.py)", item)
        assert named, item
        for file in named:
            assert list(TESTS.rglob(file)), file


def test_the_keys_that_readme_names_are_those_of_the_screens() -> None:
    (row,) = re.findall(r"^\| `kgops` \| (.*) \|$", page("README.md"), re.M)
    there = {action.sign: f"{action.name} {action.help}".lower() for action in ACTIONS}
    told = re.findall(r"`(.)` ([a-z]+)", row)
    assert len(told) >= 7
    for sign, word in told:
        assert sign in there, sign
        assert word in ("names", "plans") or word.rstrip("s") in there[sign], (sign, word, there[sign])


def test_a_plan_for_a_gpu_says_that_nothing_was_measured_on_one_yet(run_cli: Console) -> None:
    done = run_cli("suggest", "train", "--dataset", "nations", "--gpu", "t4", "--explain")
    parts = re.findall(r"^(?:weights|optimizer|activations) +[\d.,]+ +(\S+ \S+) ", done.out, re.M)
    assert parts == ["not yet"] * 3


def test_whatever_help_calls_run_may_be_a_number_or_last() -> None:
    for words, command in commands():
        for one in command.params:
            if one.metavar and "RUN" in re.split(r"\W", one.metavar):
                assert one.type is click.STRING, f"{words} {one.name} takes numbers alone"
