"""`kgops suggest … --hosts`: each GPU of each host, as kgops there plans for it now, first what would end first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from driving import wait_for
from nvml_standin import Machine, a100, t4
from ssh_server import Lab, needs_ssh

pytestmark = needs_ssh

UMLS = ("suggest", "train", "--dataset", "umls", "--num-epochs", "40")
TRIPLES = "".join(f"e{i}\tr{i % 3}\te{(i * 7) % 50}\n" for i in range(200))


def says(text: str, code: int = 0) -> str:
    """A host that prints this, whatever it is asked."""
    return f"#!/bin/sh\ncat > /dev/null\ncat <<'END'\n{text}\nEND\nexit {code}\n"


def offers_of(lab: Lab, *words: str | Path) -> dict[tuple[str, str | None], dict[str, Any]]:
    """By host and GPU, in their order."""
    done = lab.kgops(*words, "--hosts", "all", "--json")
    assert done.code in (0, 3), done.err
    return {(one["host"], one["gpu"]): one for one in done.json()}


def test_what_would_end_first_is_first_and_what_is_too_small_is_last(lab: Lab) -> None:
    lab.add("slow", Machine((t4("GPU-a"), t4("GPU-b", used_mib=14_500))), has_cuda=True)
    lab.add("fast", Machine((a100(),)), has_cuda=True)
    lab.add("bare")
    found = offers_of(lab, *UMLS)
    assert list(found) == [("fast", "0"), ("slow", "0"), ("bare", None), ("slow", "1")]
    fast, slow, bare, taken = found.values()
    assert 0 < fast["ends_in_s"] == fast["takes_s"] < slow["ends_in_s"]
    assert not fast["is_measured"]
    assert (fast["state"], slow["state"], taken["state"]) == ("now", "now", "later")
    assert "that another user holds" in taken["verdict"]
    assert taken["ends_in_s"] is None and taken["takes_s"] == slow["takes_s"]
    assert (bare["on"], bare["takes_s"], bare["state"]) == ("the CPU", None, "now")
    page = lab.kgops(*UMLS, "--hosts", "all").out.splitlines()
    assert page[0].split() == ["HOST", "GPU", "NAME", "NEEDS", "ENDS", "IN", "TIME", "IS", "NOW"]
    assert page[1].startswith("fast  0    A100") and "predicted, never measured" in page[1]
    assert "once it starts, predicted, never measured" in page[4]
    small = offers_of(lab, *UMLS, "--embedding-dim", "20000", "--checkpoint-frequency", "0")
    assert {(host, one["state"]) for (host, _), one in small.items()} >= {("slow", "never")}
    assert [one["starts"] for one in small.values()] == sorted(
        (one["starts"] for one in small.values()), reverse=True
    )


def test_a_gpu_that_a_run_has_is_offered_after_that_run(lab: Lab) -> None:
    lab.add("lab1", Machine((t4(),)), has_cuda=True)
    there = lab.there("lab1")
    shown = lab.driver("lab1")
    counts = "i=0; while :; do i=$((i+1)); echo step $i of 100000; sleep 0.1; done"
    regex = r"step (?P<done>\d+) of (?P<total>\d+)"
    number = there.detach(
        "sh", "-c", counts, flags=("--gpu", "0", "--exclusive", "--progress-regex", regex), env=shown
    )
    wait_for(lambda: (run := there.run(number)) and run.state == "running" and (run.done or 0) > 3, "steps")
    (offer,) = offers_of(lab, *UMLS).values()
    assert offer["state"] == "later"
    assert f"run {number}, which has it to itself" in offer["verdict"]
    assert 1_000 < offer["begins_in_s"] < 1e6
    assert offer["ends_in_s"] == offer["begins_in_s"] + offer["takes_s"]


def test_data_that_lie_here_alone_are_planned_there_by_their_counts(lab: Lab) -> None:
    (lab.console.cwd / "mine.tsv").write_text(TRIPLES)
    lab.add("lab1", Machine((t4(),)), has_cuda=True)
    (offer,) = offers_of(lab, "suggest", "train", "--train", "mine.tsv").values()
    assert (offer["state"], offer["refused"]) == ("now", None)
    (mine,) = lab.kgops("suggest", "train", "--train", "mine.tsv", "--gpu", "t4", "--json").json()
    assert offer["need_mib"] == pytest.approx(mine["need_mib"], rel=0.2)
    assert offer["takes_s"] > 0


def test_hosts_that_cannot_answer_are_named_with_the_reason(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("old", program="#!/bin/sh\necho 'Error: No such option: --each' >&2\nexit 2\n")
    lab.add("odd", program=says("Welcome"))
    done = lab.kgops(*UMLS, "--hosts", "all")
    assert done.code == 1
    assert done.out.splitlines()[1].startswith("lab1")
    assert "old: no plan: kgops there is too old for this" in done.out
    assert "odd: no plan: what it printed is not a list of plans" in done.out
    assert lab.kgops(*UMLS, "--hosts", "lab7").code == 2


def test_a_plan_from_outside_is_bounded_and_harmless(lab: Lab) -> None:
    liar = {
        "host": "lab1",
        "gpu": "\x1b[2J0",
        "on": "\u202eT4" + "x" * 1_000,
        "now": "now",
        "verdict": "fits\x07\n now",
        "need_mib": -5,
        "begins_in_s": 0,
        "takes_s": 1e300,
        "is_measured": "yes",
    }
    lab.add("liar", program=says(json.dumps([liar, {"now": "soon"}, 7] + [liar] * 400)))
    done = lab.kgops(*UMLS, "--hosts", "all")
    assert done.code == 0
    assert done.out.isprintable() or all(line.isprintable() for line in done.out.splitlines())
    assert len(done.out.splitlines()) < 300
    assert {line.split()[0] for line in done.out.splitlines()[1:]} == {"liar"}
    found = lab.kgops(*UMLS, "--hosts", "all", "--json").json()
    assert {(one["host"], one["need_mib"], one["takes_s"], one["is_measured"]) for one in found} == {
        ("liar", None, None, False)
    }
