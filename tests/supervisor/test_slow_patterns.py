"""A person's pattern may take exponential time on a line: the run loses its curves from the log, and nothing else."""

from __future__ import annotations

import signal

import pytest
from driving import Console, end_all_of, wait_for

from kgops.supervisor import processes
from kgops.supervisor.log_patterns import LogPatterns, TooSlow, cpu_limit

_LINE = "1" * 60  # ([0-9]+)+\. tries 2**60 ways to cut it
_SLOW = r"([0-9]+)+\.$"
_GIVEN_UP = "log patterns are disabled"


@pytest.mark.parametrize(
    ("pattern", "line"),
    [(_SLOW, _LINE), (r"(a|a)*$", "a" * 60 + "b"), (r"(.*)*x", "y" * 500), (r".*.*.*.*.*.*.*x", "y" * 2000)],
)
def test_cpu_limit_ends_a_match_that_would_take_for_ever(pattern: str, line: str) -> None:
    with pytest.raises(TooSlow), cpu_limit(0.05):
        LogPatterns(None, pattern).metrics(line)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_punctuation_behind_a_number_is_no_part_of_it() -> None:
    found = LogPatterns(None, r"loss=(?P<loss>\S+)")
    assert found.metrics("(loss=0.5), acc=1") == [("loss", 0.5, None)]
    assert found.metrics("loss=0.25, acc=1") == [("loss", 0.25, None)]
    assert found.no_number is None
    assert found.metrics("loss=12ms") == []
    assert found.no_number == "12ms"


@pytest.mark.parametrize("flag", ["--metric-regex", "--progress-regex"])
def test_run_with_a_slow_pattern_can_be_looked_at_and_stopped(run_cli: Console, flag: str) -> None:
    script = f"echo loss {_LINE}; touch said; while :; do sleep 0.05; done"
    number = run_cli.detach("sh", "-c", script, flags=(flag, _SLOW))
    wait_for((run_cli.cwd / "said").exists, "the line")
    wait_for(lambda: _GIVEN_UP in run_cli("show", str(number)).out, "the record to say so")
    for args in (("runs",), ("logs", str(number)), ("run", "exec", "--", "true")):
        assert run_cli(*args).code == 0
    stopped = run_cli("stop", str(number), "--grace", "0")
    assert (stopped.code, run_cli.show(number)["state"]) == (0, "cancelled")


def test_slow_pattern_of_a_killed_run_hangs_no_command(run_cli: Console) -> None:
    script = "touch begun; while [ ! -e say ]; do sleep 0.05; done; echo " + _LINE + "; touch said; sleep 300"
    number = run_cli.detach("sh", "-c", script, flags=("--metric-regex", _SLOW, "--attempts", "1"))
    wait_for((run_cli.cwd / "begun").exists, "the worker")
    run_cli.running(number)
    for who in processes.supervisors(run_cli.home, number):
        if who.pid != run_cli_gate(run_cli, number):
            processes.send(who, signal.SIGSTOP)  # it reads nothing more
    (run_cli.cwd / "say").touch()
    wait_for((run_cli.cwd / "said").exists, "the line")
    end_all_of(run_cli.home)
    assert run_cli("runs").code == 0  # settles, and gives the log to a supervisor
    run = run_cli.ended(number)
    assert run.state == "interrupted"
    assert _GIVEN_UP in run_cli("show", str(number)).out


def test_metrics_before_a_slow_line_stay_and_are_taken_once(run_cli: Console) -> None:
    script = f"echo 'loss=1 '; echo 'loss=2 '; while [ ! -e go ]; do sleep 0.05; done; echo {_LINE}"
    pattern = r"loss=(?P<loss>[0-9.]+) |([0-9]+)+\.$"
    number = run_cli.detach("sh", "-c", script, flags=("--metric-regex", pattern))

    def losses() -> int:
        return next((int(s["n"]) for s in run_cli.show(number)["series"] if s["name"] == "loss"), 0)

    wait_for(lambda: losses() == 2, "two points")
    (run_cli.cwd / "go").touch()
    assert run_cli.ended(number).state == "succeeded"
    assert losses() == 2
    assert _GIVEN_UP in run_cli("show", str(number)).out


def run_cli_gate(console: Console, number: int) -> int:
    pid: int = console.show(number)["attempt"][-1]["worker_pid"]
    return pid
