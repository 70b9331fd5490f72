"""What a worker does to its own run's files is that run's trouble: every other command and run goes on."""

from pathlib import Path

from driving import Console, all_of, end_all_of, wait_for

from kgops.supervisor import processes

_FILES = (
    *("supervisor.lock", "worker.lock", "outcome.slot", "stop.slot", "events.jsonl", "worker.log"),
    *("plan.json", "attempts/1/identity.json", "attempts/1/exit.slot"),
)
_KINDS = {
    "a directory": "rm -rf {0}; mkdir {0}; touch {0}/inside",
    "a link": "rm -rf {0}; ln -s somewhere {0}",
    "a pipe": "rm -rf {0}; mkfifo {0}",
    "nonsense": "rm -rf {0}; echo '[5' > {0}",
}
_WHOLE = {
    "no attempts": "rm -rf attempts; touch attempts",
    "nothing": "rm -rf * .[a-z]*",
    "closed folder": "chmod 000 .",
}


def _harms(first: int) -> dict[str, str]:
    """Of each file two kinds, in turns: `_harms(0)` and `_harms(2)` have all kinds of all files."""
    kinds = [*_KINDS.items()]
    turns = (
        (name, *kinds[(number + first + more) % len(kinds)])
        for number, name in enumerate(_FILES)
        for more in (0, 1)
    )
    return _WHOLE | {f"{name} is {kind}": how.format(name) for name, kind, how in turns}


def _in_folder(harm: str, then: str) -> list[str]:
    harms = f'here=$PWD; cd "$KGOPS_RUN_FOLDER"; {harm}; cd "$here"; touch harmed-$KGOPS_RUN; {then}'
    return ["sh", "-c", harms]


def _harmed(console: Console, harms: dict[str, str], then: str) -> dict[int, str]:
    """A run for each harm, which it has done to its own folder; by number."""
    runs = {
        console.detach(*_in_folder(harm, then), flags=("--attempts", "1", "--label", name)): name
        for name, harm in harms.items()
    }
    for number, name in runs.items():
        wait_for((console.cwd / f"harmed-{number}").exists, f"the harm of run {number}: {name}")
    return runs


def _must_hinder_nobody(console: Console, harmed: dict[int, str]) -> None:
    """Every command works, every run has one true end, a new run succeeds, and all of them can be deleted."""

    def unfinished() -> dict[str, str]:
        listed = console("runs", "--json")
        assert (listed.code, "Traceback" in listed.err) == (0, False), listed.err
        states = {run["id"]: run["state"] for run in listed.json()}
        return {harmed[n]: states[n] for n in harmed if states[n] not in ("failed", "interrupted")}

    wait_for(lambda: not unfinished(), "the end of all that were harmed")
    new = console("run", "exec", "--json", "--", "true")
    assert new.json()["state"] == "succeeded", new.err
    for number in harmed:
        for args in (("show", str(number)), ("logs", str(number))):
            done = console(*args)
            assert "Traceback" not in done.err, (harmed[number], args, done.err)
    console.must("delete", *map(str, harmed), "--yes")
    assert [path.name[:4] for path in (console.home / "runs").iterdir()] == [f"{new.json()['id']:04d}"]
    assert not list((console.home / "pending").iterdir())


def test_runs_that_replaced_their_own_files_end_and_hinder_nobody(run_cli: Console) -> None:
    harmed = _harmed(run_cli, _harms(0), "exit 3")
    wait_for(lambda: not all_of(run_cli.home), "everybody to leave")
    states = {run["label"]: run["state"] for run in run_cli("runs", "--json").json()}
    # Where the supervisor could still write it, the end is the true one.
    assert {name for name, state in states.items() if state != "failed"} <= set(_WHOLE)
    assert _tracebacks(run_cli.home) == []
    _must_hinder_nobody(run_cli, harmed)


def test_replaced_files_of_killed_runs_are_settled_by_the_next_command(run_cli: Console) -> None:
    harmed = _harmed(run_cli, _harms(2), "sleep 300")
    end_all_of(run_cli.home)
    _must_hinder_nobody(run_cli, harmed)
    assert _tracebacks(run_cli.home) == []


def test_replaced_lock_gives_a_living_run_no_second_supervisor(run_cli: Console) -> None:
    for harm in ("rm supervisor.lock; mkdir supervisor.lock", "rm supervisor.lock; touch supervisor.lock"):
        number = run_cli.detach(*_in_folder(harm, "while [ ! -e go ]; do sleep 0.05; done"))
        wait_for((run_cli.cwd / f"harmed-{number}").exists, "the harm")
        run_cli.running(number)
        for _ in range(2):
            assert "still runs, without a lock" in run_cli("runs").err
        gates_and_supervisors = processes.supervisors(run_cli.home, number)
        assert len(gates_and_supervisors) == 2
        (run_cli.cwd / "go").touch()
        assert run_cli.ended(number).state == "succeeded"
        (run_cli.cwd / "go").unlink()


def test_events_that_were_cut_are_told_and_not_taken_twice(run_cli: Console) -> None:
    point = 'echo "{\\"event\\": \\"metric\\", \\"name\\": \\"x\\", \\"value\\": $n, \\"step\\": $n}" >> $KGOPS_EVENTS'
    script = f"""
        for n in 1 2 3; do {point}; done; while [ ! -e cut ]; do sleep 0.05; done
        : > $KGOPS_EVENTS; touch was-cut; while [ ! -e go ]; do sleep 0.05; done; n=4; {point}
    """
    number = run_cli.detach("sh", "-c", script)

    def points() -> int:
        return next((int(s["n"]) for s in run_cli.show(number)["series"] if s["name"] == "x"), 0)

    wait_for(lambda: points() == 3, "three points")
    (run_cli.cwd / "cut").touch()
    wait_for(lambda: "shrank" in run_cli("show", str(number)).out, "the record to say so")
    (run_cli.cwd / "go").touch()
    assert run_cli.ended(number).state == "succeeded"
    assert points() == 4


def _tracebacks(home: Path) -> list[str]:
    return [
        str(log)
        for log in home.glob("runs/*/supervisor.log")
        if log.is_file() and "Traceback" in log.read_text(errors="replace")
    ]
