"""Commands over hosts: real SSH, and hosts with homes, databases and GPUs of their own."""

import os
from dataclasses import replace

import pytest
from driving import Console
from nvml_standin import Machine, t4
from ssh_server import Lab, needs_ssh

from kgops import __version__

pytestmark = needs_ssh

TWO = Machine(
    (
        replace(t4("GPU-a", used_mib=2_048, processes=((os.getpid(), 2_048),)), utilization=37),
        t4("GPU-b"),
    )
)
NO_KGOPS = '#!/bin/sh\necho "sh: kgops: not found" >&2\nexit 127\n'


def test_gpus_of_hosts_carry_the_name_of_their_host(lab: Lab) -> None:
    lab.add("lab1", TWO, group="ours")
    lab.add("lab2", Machine((t4("GPU-c"),)))
    done = lab.must("gpus", "--hosts", "all", "--json")
    one, two = done.json()
    assert (one["host"], two["host"]) == ("lab1", "lab2")
    assert [gpu["uuid"] for gpu in one["gpu"]] == ["GPU-a", "GPU-b"]
    assert one["gpu"][0]["utilization_percent"] == 37
    assert [process["pid"] for process in one["gpu"][0]["process"]] == [os.getpid()]
    page = lab.kgops("gpus", "--hosts", "ours").out
    first, second, third = page.splitlines()
    assert first.split() == ["HOST", "GPU", "NAME", "USED", "TOTAL", "UTIL", "TEMP", "USERS"]
    assert second.split()[:6] == ["lab1", "0", "Tesla", "T4", "2,048", "14,909"]
    assert third.split()[:2] == ["lab1", "1"]


def test_runs_of_hosts_are_filtered_there_and_named_here(lab: Lab) -> None:
    for name, label in (("lab1", "first"), ("lab2", "it's $HOME; `true`")):
        assert lab.add(name)("run", "exec", "--label", label, "--", "true").code == 0
    done = lab.must("runs", "--hosts", "all", "--json")
    found = [(one["host"], run["id"], run["label"]) for one in done.json() for run in one["run"]]
    assert found == [("lab1", 1, "first"), ("lab2", 1, "it's $HOME; `true`")]
    page = lab.kgops("runs", "--hosts", "lab1,lab2", 'label:"it\'s $HOME; `true`"').out
    assert [line.split()[:4] for line in page.splitlines()[1:]] == [["lab2", "1", "exec", "succeeded"]]


def test_a_host_that_does_not_answer_is_a_line_that_says_so(lab: Lab) -> None:
    lab.add("lab1", TWO)
    lab.add("bare", program=NO_KGOPS)
    lab.configure("away")
    lab.kgops("hosts", "add", "away", "nobody-of-this-name@away")
    for command in ("gpus", "runs"):
        done = lab.kgops(command, "--hosts", "all")
        assert done.code == 1
        assert "bare: does not answer: " in done.out
        assert "away: does not answer: " in done.out
        assert "Permission denied" in done.out
        assert "kgops hosts add bare bare --kgops PATH" in done.err
        assert "Traceback" not in done.out + done.err
    checked = lab.kgops("hosts", "check", "--json")
    assert checked.code == 1
    assert [(one["host"], one["answers"], one["gpus"]) for one in checked.json()] == [
        ("lab1", True, 2),
        ("bare", False, None),
        ("away", False, None),
    ]
    assert lab.kgops("hosts", "check", "lab1").code == 0
    none = lab.kgops("hosts", "check", "bare")
    assert (none.code, none.out.splitlines()[0]) == (
        1,
        f"bare: {str(lab.homes['bare'].parent / 'kgops command')!r} is not found there",
    )


def test_a_hint_of_a_host_is_said_to_be_meant_there(lab: Lab) -> None:
    assert lab.add("lab1")("run", "exec", "--", "true").code == 0
    done = lab.kgops("resume", "lab1:1")
    assert (done.code, done.err) == (
        2,
        "Error: lab1: run 1 succeeded\nHint: on lab1: `kgops run --again 1` repeats it\n",
    )
    several = ("stop", "pull")
    for command in ("show", "logs", "stop", "report", "pull"):
        absent = lab.kgops(command, "lab1:99")
        assert "lab1: there is no run 99" in absent.err, absent
        names = ", `last`, `all` or a filter such as state:failed" if command in several else " or `last`"
        assert f"Hint: on lab1: give a number, a label{names}; `kgops runs` lists runs" in absent.err, absent
    lab.add("odd", program="#!/bin/sh\necho 'Error: not today' >&2\nexit 1\n")
    assert lab.kgops("show", "odd:1").err == "Error: odd: not today\n"


@pytest.mark.parametrize(
    "words",
    [("delete", "--yes"), ("export", "--to", "json"), ("tag",), ("note",), ("influences",), ("compare", "1")],
)
def test_a_command_of_this_machine_says_how_to_have_a_run(run_cli: Console, words: tuple[str, ...]) -> None:
    run_cli("run", "exec", "--", "true")
    done = run_cli(*words, "lab1:1")
    assert (done.code, done.err) == (
        2,
        "Error: 'lab1:1' is a run of another host, and this command takes runs of this one\n"
        "Hint: `kgops pull lab1:1` brings it here, or type the command there\n",
    )
    assert "a run of another host" not in run_cli(*words, "lab1:x").err


def test_a_host_with_another_version_is_used_and_says_so(lab: Lab) -> None:
    said = (
        '{"type": "hello", "protocol": 1, "kgops": "9.9"}',
        '{"type": "picture", "gpu": {}, "host": {"host": {"runs": 3}}}',
    )
    lab.add("newer", program="#!/bin/sh\ncat <<'END'\n{}\n{}\nEND\nexec cat > /dev/null\n".format(*said))
    done = lab.must("hosts", "check", "newer")
    assert done.out == f"newer: kgops 9.9 there, {__version__} here, 0 GPUs, 3 runs\n"
