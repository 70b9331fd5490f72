"""Any command as a run: what it reports and prints, what follows when memory runs out, and when its supervisor dies."""

import signal

from driving import Console, patience, wait_for

from kgops.supervisor import processes


def test_out_of_memory_steps_down_and_says_so(run_cli: Console) -> None:
    script = '[ "$1" = 16 ] && exit 0; echo "torch.OutOfMemoryError: CUDA out of memory at $1"; exit 1'
    done = run_cli.must(
        *("run", "exec", "--on-oom", "batch_size=64,32,16", "--", "sh", "-c", script, "sh", "{batch_size}")
    )
    assert "3 attempts" in done.out
    assert "after out of memory batch_size=16" in done.out
    shown = run_cli.show(1)
    assert [(a["outcome"], a["settings"]) for a in shown["attempt"]] == [
        ("out_of_memory", {"batch_size": 64}),
        ("out_of_memory", {"batch_size": 32}),
        ("succeeded", {"batch_size": 16}),
    ]
    assert [e["kind"] for e in shown["event"]] == ["step_down", "step_down"]
    assert shown["exit_code"] == 0


def test_what_an_earlier_attempt_wrote_is_not_held_against_a_later_one(run_cli: Console) -> None:
    script = """[ $1 = 1 ] && exit 3
    echo 'CUDA out of memory'; echo '{"event": "out_of_memory", "detail": "tried 2 GiB"}' >> $KGOPS_EVENTS; exit 1"""
    done = run_cli("run", "exec", "--on-oom", "n=2,1", "--", "sh", "-c", script, "sh", "{n}")
    assert [(a["outcome"], a["exit_code"]) for a in run_cli.show(1)["attempt"]] == [
        ("out_of_memory", 1),
        ("failed", 3),
    ]
    assert done.code == 1


def test_values_for_out_of_memory_reach_the_command_as_they_were_typed(run_cli: Console) -> None:
    values = ("1e-3", "007", "1.50")
    for value in values:
        shown = run_cli("run", "exec", "--dry-run", "--on-oom", f"v={value},1", "--", "echo", "{v}")
        assert shown.out.splitlines()[-1] == f"# echo {value}"


def test_metrics_and_progress_are_read_from_the_log(run_cli: Console) -> None:
    script = "for i in 1 2 3; do echo \"step $i/3 loss=0.$i acc=9$i\"; done; echo 'loss=nan'"
    progress = ("--progress-regex", r"step (?P<done>\d+)/(?P<total>\d+)")
    metrics = ("--metric-regex", r"step (?P<step>\d+).*loss=(?P<loss>\S+) acc=(?P<acc>\S+)")
    run_cli.must("run", "exec", *progress, *metrics, "--", "sh", "-c", script)
    shown = run_cli.show(1)
    assert (shown["done"], shown["total"]) == (3, 3)
    assert {(s["name"], s["n"], s["last_step"], s["last_value"]) for s in shown["series"]} >= {
        ("loss", 3, 3, 0.3),
        ("acc", 3, 3, 93),
    }


def test_command_that_reports_events_itself_is_understood(run_cli: Console) -> None:
    script = """echo '{"event": "failed", "reason": "the data has no relation 7"}' >> $KGOPS_EVENTS; exit 1"""
    done = run_cli("run", "exec", "--", "sh", "-c", script)
    assert done.code == 1
    assert "the data has no relation 7" in done.out


# --- after a supervisor is killed -----------------------------------------------------------------


def kill_supervisor(run_cli: Console) -> None:
    who = run_cli.supervisor(1)
    processes.send(who, signal.SIGKILL)
    wait_for(lambda: not who.is_alive(), "the supervisor to die")


def test_out_of_memory_that_was_taken_in_survives_the_death_of_its_supervisor(run_cli: Console) -> None:
    script = """echo '{"event": "out_of_memory", "detail": "tried 2 GiB"}' >> $KGOPS_EVENTS
    while [ ! -e gate ]; do sleep 0.05; done; exit 1"""
    number = run_cli.detach("sh", "-c", script)
    wait_for(lambda: run_cli.show(number)["event"] or None, "the event in the database")
    kill_supervisor(run_cli)
    (run_cli.cwd / "gate").touch()
    run_cli("runs")
    run = run_cli.ended(number)
    assert (run.state, run.reason) == ("out_of_memory", "tried 2 GiB")


def test_following_a_log_ends_with_its_run_even_if_the_supervisor_was_killed(run_cli: Console) -> None:
    number = run_cli.going("sh", "-c", "echo one; while [ ! -e gate ]; do sleep 0.05; done; echo two")
    kill_supervisor(run_cli)
    follower = run_cli.start("logs", "-f", str(number))
    (run_cli.cwd / "gate").touch()
    out, _ = follower.communicate(timeout=patience())
    assert (out, follower.returncode) == (b"one\ntwo\n", 0)
    assert run_cli.ended(number).state == "succeeded"


def test_follower_says_what_was_noted_of_a_command_and_every_attempt(run_cli: Console) -> None:
    script = """echo '{"event": "note", "text": "took the small set"}' >> $KGOPS_EVENTS
    [ -e again ] || { touch again; kill -9 $$; }"""
    ran = run_cli(
        "run", "exec", "--attempts", "2", "--metric-regex", r"mrr (?P<mrr>\S+)", "--", "sh", "-c", script
    )
    notes = [line for line in ran.err.splitlines() if line.startswith("kgops: ")]
    assert notes == [
        "kgops: attempt 2 again after interrupted",
        "kgops: took the small set",
        "kgops: nothing in the log is what --metric-regex asks for",
        "kgops: took the small set",
    ]
    assert ran.code == 0
