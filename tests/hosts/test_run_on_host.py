"""`kgops run … --host`: the job and its data go there once, and the run no longer needs this machine."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from driving import wait_for
from ssh_server import Lab, needs_ssh

from kgops.errors import CutOff
from kgops.hosts.archive import unpack_rest, write_files
from kgops.interchange.data_files import read_data_files
from kgops.interchange.kept_data import bytes_of_part, find_kept, keep
from kgops.settings import Home

pytestmark = needs_ssh

TRIPLES = "".join(f"e{i}\tr{i % 3}\te{(i * 7) % 50}\n" for i in range(200))
SMALL = ("--num-epochs", "1", "--embedding-dim", "8", "--output-channels", "4", "--embedding-height", "2")
# All hosts of a test share one file system. This path leads a console to a file that no host finds under it.
HERE = "/proc/self/cwd/my data.tsv"
TRAIN = ("run", "train", "--train", HERE, *SMALL, "--embedding-width", "4")


def test_a_run_is_named_by_its_host_and_goes_on_without_any_connection(lab: Lab) -> None:
    lab.add("lab1")
    go = lab.folder / "go"
    waits = f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.05; done; echo went on"
    started = lab.kgops("run", "exec", "--host", "lab1", "--tag", "mine;$(id)", "--", "sh", "-c", waits)
    assert started.code == 0, started.err
    assert started.out == "lab1:1\n"
    there = lab.there("lab1")
    there.running(1)
    listed = lab.kgops("runs")
    assert "lab1:1" in listed.out
    assert listed.err == "No runs on this machine; those started on other hosts from here:\n"
    lab.server.kill_logins()  # the connection that ssh keeps for the next command
    wait_for(lambda: not lab.server.own_processes(), "all logins to end")
    assert there.running(1)
    go.touch()
    assert there.ended(1).state == "succeeded"
    assert "went on" in (there.folder(1) / "worker.log").read_text()
    assert there("tag", "1").out.split("\n")[0] == "mine;$(id)"
    assert not (lab.console.home / "runs").exists() or not list((lab.console.home / "runs").iterdir())


def test_data_are_copied_once_by_what_is_in_them(lab: Lab) -> None:
    lab.add("lab1")
    data = lab.console.cwd / "my data.tsv"
    data.write_text(TRIPLES)
    first = lab.kgops(*TRAIN, "--host", "lab1", "--json")
    assert first.code == 0, first.err
    assert first.json() == {"host": "lab1", "id": 1}
    assert "copying my data.tsv to lab1: 100 % of 0.0 MiB" in first.err
    there = lab.there("lab1")
    assert there.ended(1).state == "succeeded"
    (kept,) = (lab.homes["lab1"] / "data").iterdir()
    job = json.loads((there("show", "1", "--json")).out)
    assert str(kept / "my data.tsv") in json.dumps(job)
    assert (kept / "my data.tsv").read_text() == TRIPLES
    again = lab.kgops(*TRAIN, "--host", "lab1")
    assert (again.code, again.out) == (0, "lab1:2\n")
    assert "copying" not in again.err
    assert there.ended(2).state == "succeeded"  # it reads the data to its end
    (kept / "my data.tsv").write_text("damaged")
    third = lab.kgops(*TRAIN, "--host", "lab1")
    assert (third.code, third.out) == (0, "lab1:3\n")
    assert "copying my data.tsv" in third.err
    assert (kept / "my data.tsv").read_text() == TRIPLES
    assert [path.name for path in (lab.homes["lab1"] / "data").iterdir()] == [kept.name]
    assert there.ended(3).state == "succeeded"


def test_data_that_lie_there_under_the_same_path_are_not_copied(lab: Lab) -> None:
    lab.add("lab1")
    (lab.console.cwd / "same.tsv").write_text(TRIPLES)
    done = lab.kgops(
        "run", "train", "--train", "same.tsv", *SMALL, "--embedding-width", "4", "--host", "lab1"
    )
    assert (done.code, done.out) == (0, "lab1:1\n"), done.err
    assert "copying" not in done.err
    assert not (lab.homes["lab1"] / "data").exists()
    assert lab.there("lab1").ended(1).state == "succeeded"


def test_a_model_trained_here_answers_there_with_all_that_it_needs(lab: Lab) -> None:
    trained = lab.kgops("run", "train", "--dataset", "nations", *SMALL, "--embedding-width", "4")
    assert trained.code == 0, trained.err
    results = lab.console.folder(1) / "results"
    lab.add("lab1")
    (lab.console.cwd / "results").symlink_to(results)
    asked = (
        "--model-path",
        "/proc/self/cwd/results/best_model.pt",
        "--dataset",
        "nations",
        "--device",
        "cpu",
    )
    done = lab.kgops("run", "predict", *asked, "--head", "usa", "--relation", "embassy", "--host", "lab1")
    assert (done.code, done.out) == (0, "lab1:1\n"), done.err
    there = lab.there("lab1")
    ended = there.ended(1)
    assert ended.state == "succeeded", (there.folder(1) / "worker.log").read_text()
    (kept,) = (lab.homes["lab1"] / "data").iterdir()
    assert {path.name for path in kept.iterdir()} >= {"best_model.pt", "config.json"}
    by_run = lab.kgops(
        "run", "predict", "--run", "1", "--head", "usa", "--relation", "embassy", "--host", "lab1"
    )
    assert (by_run.code, by_run.out) == (0, "lab1:2\n"), by_run.err
    assert there.ended(2).state == "succeeded"


def test_any_host_is_the_one_where_it_would_end_first(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("lab2", group="ours")
    lab.add("away", program="#!/bin/sh\nexit 127\n")
    nations = ("run", "train", "--dataset", "nations", *SMALL, "--embedding-width", "4")
    first = lab.kgops(*nations, "--host", "any:ours")
    assert (first.code, first.out) == (0, "lab2:1\n"), first.err
    assert lab.there("lab2").ended(1).state == "succeeded"
    best = lab.kgops(*nations, "--host", "any")
    assert (best.code, best.out) == (0, "lab2:2\n"), best.err
    assert "Warning: away: no plan: " in best.err
    assert "lab2 (the CPU): fits now" in best.err
    assert "measured there" in best.err
    large = lab.kgops(
        "run", "train", "--dataset", "nations", "--embedding-dim", "100000", "--host", "any:ours"
    )
    assert large.code == 3, large.out + large.err
    assert "it would start on no host; on lab2: nations needs about " in large.err
    assert lab.there("lab2").ended(2).state == "succeeded"


def test_a_job_for_a_group_goes_where_it_would_end_first_in_it(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("lab2", group="ours")
    lab.add("away", program="#!/bin/sh\nexit 127\n", group="ours")
    done = lab.kgops("run", "exec", "--cwd", "/", "--host", "ours", "--", "true")
    assert (done.code, done.out) == (0, "lab2:1\n"), done.err
    assert "Warning: away: no plan: " in done.err
    assert lab.there("lab1")("runs", "--json").json() == []


def test_what_is_wrong_is_said_with_the_host_and_nothing_is_started(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("bare", program="#!/bin/sh\nexit 127\n")
    old = "#!/bin/sh\necho \"Error: no such workload or job file: '-'\" >&2\nexit 2\n"
    lab.add("old", program=old)
    run = ("run", "exec", "--cwd", "/", "--host")
    for host, words, code in (
        ("lab7", "is no host and no group", 2),
        ("bare", "is not found there", 1),
        ("old", "old: kgops there is too old for this", 2),
        ("any:nobody", "is no host and no group", 2),
        ("all", "names 3 hosts", 2),
    ):
        done = lab.kgops(*run, host, "--", "true")
        assert done.code == code, (host, done)
        assert words in done.err
        assert "Traceback" not in done.err
    gone = lab.kgops("run", "exec", "--cwd", "/not/there", "--host", "lab1", "--", "true")
    assert gone.code == 2
    assert "lab1: the working folder /not/there does not exist" in gone.err
    absent = lab.kgops("run", "train", "--train", "absent.tsv", "--host", "lab1")
    assert absent.code == 2
    assert "there is no file or folder" in absent.err
    (lab.console.cwd / "x.toml").write_text('workload = "train"\n[train]\ndataset = "nations"\n')
    series = lab.kgops("run", "sweep", "x.toml", "--vary", "batch_size=1,2", "--host", "lab1")
    assert series.code == 2
    assert "--host starts one run" in series.err
    assert not (lab.homes["lab1"] / "kgops.db").exists() or lab.there("lab1")("runs", "--json").json() == []


def test_a_dry_run_shows_the_plan_of_that_host(lab: Lab) -> None:
    lab.add("lab1")
    done = lab.kgops("run", "train", "--dataset", "nations", "--host", "lab1", "--dry-run")
    assert done.code == 0, done.err
    assert 'workload = "train"' in done.out
    assert not (lab.homes["lab1"] / "kgops.db").exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_copy_whose_connection_breaks_goes_on_where_it_broke(lab: Lab, damaged: bool) -> None:
    lab.add("lab1")
    data = lab.console.cwd / "my data.tsv"
    with data.open("w") as file:
        for i in range(400_000):
            file.write(f"entity{i % 5000}\tr{i % 3}\tentity{(i * 7) % 5000}\n")
    command, sent = lab.homes["lab1"].parent / "kgops command", lab.folder / "sent"
    real = command.read_text().splitlines()[1].removeprefix("exec ")
    feeds = f"{{ head -c 4000000; exec sleep 1000; }} | {real}"
    command.write_text(f'#!/bin/sh\ncase "$*" in *keep*) {feeds} ;; *) exec {real} ;; esac\n')
    console = lab.console.start(*TRAIN, "--host", "lab1", env={"PATH": lab.path})
    part = (
        lab.homes["lab1"] / "data" / f".part-{read_data_files(data, is_model=False).digest}/files/my data.tsv"
    )
    came = 3 << 20  # in whole blocks
    wait_for(lambda: part.exists() and part.stat().st_size == came, "a part of the copy")
    lab.server.kill_logins()
    _, err = console.communicate(timeout=300)
    assert console.returncode == 1, err
    assert b"lab1: my data.tsv was not copied" in err
    assert b"Hint: the same command goes on with the copy where it broke off" in err
    assert part.read_bytes() == data.read_bytes()[:came]
    assert not (lab.homes["lab1"] / "kgops.db").exists()
    if damaged:
        part.write_bytes(bytes(came))
    counts = f"tee -a {shlex.quote(str(sent))} | {real}"
    command.write_text(f'#!/bin/sh\ncase "$*" in *keep*) {counts} ;; *) exec {real} ;; esac\n')
    again = lab.kgops(*TRAIN, "--host", "lab1")
    assert (again.code, again.out) == (0, "lab1:1\n"), again.err
    (kept,) = (lab.homes["lab1"] / "data").iterdir()
    assert (kept / "my data.tsv").read_bytes() == data.read_bytes()
    rest, size = data.stat().st_size - came, data.stat().st_size
    headers = 1 << 14  # of the archive, at most
    assert 0 <= sent.stat().st_size - rest - (size if damaged else 0) < 2 * headers
    lab.there("lab1")("stop", "1")


def test_a_copy_cut_at_any_place_goes_on_to_be_whole(home: Path) -> None:
    """Also between files, and beside empty ones."""
    source = home / "source"
    for name, size in {"a": 0, "b/x": 700, "b/y": 0, "b/z": 512, "c": 1, "d": 0}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(os.urandom(size))
    data, there = read_data_files(source, is_model=False), Home(home)
    files = [(name, data.root / name) for name in data.files]
    whole = io.BytesIO()
    write_files(files, cast(BinaryIO, whole))
    for cut in range(0, len(whole.getvalue()), 128):
        stream = whole.getvalue()[:cut]
        for last in (False, True):
            begun = bytes_of_part(there, data.digest)
            if last:
                out = io.BytesIO()
                write_files(files, cast(BinaryIO, out), begun)
                stream = out.getvalue()
            try:
                keep(there, data.digest, "source", begun, partial(unpack_rest, io.BytesIO(stream)))
            except CutOff:
                assert not last, cut
        kept = find_kept(there, data.digest, "source")
        assert kept is not None
        assert read_data_files(kept, is_model=False).digest == data.digest
        shutil.rmtree(home / "data")


def test_a_stop_with_a_wrong_name_says_what_was_stopped(lab: Lab) -> None:
    lab.add("lab1")
    here = lab.console.detach("sleep", "1000")
    lab.console.running(here)
    unknown = lab.kgops("stop", str(here), "lab9:3")
    assert (unknown.code, unknown.err.splitlines()[0]) == (2, "Error: there is no host 'lab9'")
    assert lab.console.running(here), "nothing was stopped"
    absent = lab.kgops("stop", str(here), "lab1:999", "--grace", "5")
    assert absent.code == 2
    assert absent.err.splitlines()[0] == f"run {here}: cancelled"
    assert absent.err.splitlines()[1].startswith("Error: lab1: there is no run 999"), absent.err


def test_a_run_is_stopped_resumed_and_repeated_where_it_is(lab: Lab) -> None:
    for name in ("lab1", "lab2"):
        lab.add(name)
        started = lab.kgops("run", "exec", "--cwd", "/", "--host", name, "--", "sleep", "1000")
        assert started.out == f"{name}:1\n", started.err
        lab.there(name).running(1)
    here = lab.console.detach("sleep", "1000")
    stopped = lab.kgops("stop", "lab1:1", str(here), "lab2:last", "--grace", "5", "--json")
    assert stopped.code == 0, stopped.err
    assert [(one.get("host"), one["id"], one["state"]) for one in stopped.json()] == [
        (None, here, "cancelled"),
        ("lab1", 1, "cancelled"),
        ("lab2", 1, "cancelled"),
    ]
    resumed = lab.kgops("resume", "lab1:1")
    assert (resumed.code, resumed.out) == (0, "lab1:1\n"), resumed.err
    lab.there("lab1").running(1)
    repeated = lab.kgops("run", "--again", "lab2:1", "--tag", "twice")
    assert (repeated.code, repeated.out) == (0, "lab2:2\n"), repeated.err
    lab.there("lab2").running(2)
    again = lab.kgops("stop", "lab1:1", "lab2:2", "--no-wait")
    assert again.out == "run lab1:1: asked to stop\nrun lab2:2: asked to stop\n", again
    for words, code in (
        (("stop", "lab1:9"), 2),
        (("stop", "lab9:1"), 2),
        (("stop", "lab1:-1"), 2),
        (("resume", "lab2:1;id"), 2),
        (("run", "--again", "lab2:1", "--gpu", "0"), 2),
        (("run", "--again", "lab2:7"), 2),
    ):
        wrong = lab.kgops(*words)
        assert wrong.code == code, (words, wrong)
        assert "Traceback" not in wrong.err
