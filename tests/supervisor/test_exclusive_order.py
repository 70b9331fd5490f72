"""A run that wants the CPUs to itself gets them: no small run passes it, and none waits for it in vain."""

from __future__ import annotations

from driving import Console

UNTIL_GATE = "while [ ! -e gate ]; do sleep 0.05; done"


def test_stream_of_small_runs_does_not_pass_an_exclusive_one(run_cli: Console) -> None:
    going = [run_cli.detach("sh", "-c", f"{UNTIL_GATE}; echo going >> order") for _ in range(2)]
    for number in going:
        run_cli.running(number)
    exclusive = run_cli.detach("sh", "-c", "echo exclusive >> order", flags=("--exclusive",))
    small = [run_cli.detach("sh", "-c", "echo small >> order") for _ in range(4)]
    listed = {run["id"]: run for run in run_cli("runs", "--json").json()}
    assert {listed[number]["state"] for number in (exclusive, *small)} == {"queued"}
    assert listed[exclusive]["reason"] == "this machine's CPUs to itself (in use by 1, 2)"
    assert all(listed[number]["reason"] for number in small)  # each says what it waits for
    (run_cli.cwd / "gate").touch()
    for number in (exclusive, *small):
        assert run_cli.ended(number).state == "succeeded"
    assert (run_cli.cwd / "order").read_text().split() == ["going"] * 2 + ["exclusive"] + ["small"] * 4


def test_stop_of_a_waiting_run_lets_those_behind_it_go_on(run_cli: Console) -> None:
    going = run_cli.detach("sh", "-c", UNTIL_GATE)
    run_cli.running(going)
    exclusive = run_cli.detach("true", flags=("--exclusive",))
    behind = run_cli.detach("true")
    stopped = run_cli("stop", str(exclusive))
    assert "cancelled" in stopped.out
    assert run_cli.ended(behind).state == "succeeded"  # with no console looking
    current = run_cli.row(going)
    assert current.state == "running"
