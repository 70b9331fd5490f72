"""Out of memory for real, without a GPU: a limit on the worker's memory, the OOM fallbacks, and the record of both."""

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import Console, Done, wait_for
from recording import events
from small_graph import write_wide_graph

from kgops.maths.tracin.finished_tests import FinishedTest, open_finished_tests

ENTITIES = 60_000  # times a batch of 1024, the scores of all at once take 234 MiB
ALL_AT_ONCE = ("--entity-chunk", str(ENTITIES))
SMALL = (
    *("--embedding-dim", "16", "--output-channels", "2", "--batch-size", "1024", "--device", "cpu"),
    *("--num-epochs", "1", "--validate-every", "1", "--seed", "3", "--resume-every", "0"),
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Its plane of scores is what takes memory."""
    return write_wide_graph(tmp_path_factory.mktemp("graph"), ENTITIES, train=1200, valid=30)


@pytest.fixture(scope="module")
def libraries_mib() -> int:
    """What a worker's libraries take here, of which a limit counts what was touched."""
    code = (
        "import kgops.maths.train.worker, re\n"
        "status = open('/proc/self/status').read()\n"
        "print(min(int(re.search(rf'{name}:\\s+(\\d+)', status)[1]) for name in ('VmData', 'VmRSS')))"
    )
    told = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(told.stdout) // 1024


def no_traceback(run_cli: Console, done: Done, number: int = 1) -> None:
    log = (Path(run_cli.show(number)["path"]) / "worker.log").read_text()
    for text in (done.out, done.err, log):
        assert "Traceback" not in text
        assert "MemoryError" not in text and "RuntimeError" not in text


def metrics(run: dict[str, Any]) -> dict[str, float]:
    return {name: run["metric"][name] for name in ("best_valid_mrr", "best_epoch", "epochs")}


def history(run: dict[str, Any]) -> list[float]:
    entries = json.loads((Path(run["path"]) / "results" / "training_history.json").read_text())
    return [entry["loss"] for entry in entries]


def test_a_training_that_does_not_fit_steps_down_finishes_and_says_what_it_changed(
    run_cli: Console, files: list[str], libraries_mib: int
) -> None:
    limit = str(libraries_mib + 300)
    limited = ("run", "train", *files, *SMALL, *ALL_AT_ONCE, "--memory-limit", limit, "--force")
    done = run_cli.must(*limited, env=ONE_THREAD)
    no_traceback(run_cli, done)
    assert re.search(r"after out of memory: entity_chunk 60000 → 8192 \(exact: fewer", done.err)
    assert re.search(
        rf"MiB more were requested, .* MiB were in use, the limit is {int(limit):,} MiB", done.err
    )
    assert "2 attempts · 1 OOM fallback: entity_chunk 60000 → 8192 (exact)" in done.out
    run = run_cli.show(1)
    assert [(a["outcome"], a["settings"]) for a in run["attempt"]] == [
        ("out_of_memory", {}),
        ("succeeded", {"entity_chunk": 8192}),
    ]
    assert f"the limit is {int(limit):,} MiB" in run["attempt"][0]["reason"]
    assert [fallback["changes"][0]["after"] for fallback in run["plan"]["fallbacks"]][:3] == [8192, 2048, 512]
    page = run_cli("show", "1").out
    assert re.search(
        r"entity_chunk +60000 +8192 +exact +OOM fallback +an earlier attempt ran out of memory", page
    )
    assert re.search(r"2 +succeeded .* entity_chunk=8192", page)


def test_a_training_that_ran_out_in_the_middle_goes_on_from_its_checkpoint_to_the_same_numbers(
    run_cli: Console, files: list[str]
) -> None:
    """The limit falls on the running worker, from outside: its next allocation fails, wherever that is."""
    small = ("--dataset", "nations", *SMALL, "--num-epochs", "60", "--entity-chunk", "8192")
    run_cli.must("run", "train", *small, env=ONE_THREAD)
    started = run_cli("run", "train", *small, "--detach", env=ONE_THREAD)
    assert started.out.strip() == "2"
    folder = Path(run_cli.show(2)["path"])
    wait_for(
        lambda: list((folder / "results" / "checkpoints").glob("resume_000000[3-9]_*.pt")), "a checkpoint"
    )
    resource.prlimit(
        events(folder, "started")[0]["pid"], resource.RLIMIT_DATA, (64 << 20, resource.RLIM_INFINITY)
    )
    wait_for(lambda: run_cli.show(2)["ended_at"], "the end of the run")
    run, never_failed = run_cli.show(2), run_cli.show(1)
    assert [(a["outcome"], a["settings"]) for a in run["attempt"]] == [
        ("out_of_memory", {}),
        ("succeeded", {"gradient_checkpointing": True}),  # no chunk is larger than fourteen entities
    ]
    log = (folder / "worker.log").read_text()
    assert "Traceback" not in log
    notes = [e["body"]["text"] for e in run["event"] if e["kind"] == "note"]
    resumed = [int(found[1]) for note in notes if (found := re.match(r"resumed after epoch (\d+)", note))]
    assert len(resumed) == 1 and resumed[0] >= 3
    assert metrics(run) == pytest.approx(metrics(never_failed), rel=1e-3)
    assert history(run) == pytest.approx(history(never_failed), rel=1e-5)


def test_after_the_last_fallback_a_run_ends_with_the_numbers_and_what_to_try(
    run_cli: Console, files: list[str], libraries_mib: int
) -> None:
    # More than loading libraries takes, and less than the graph and the weights need beside them.
    limit = libraries_mib + 25
    chunk = ("--entity-chunk", "1024")
    limited = ("run", "train", *files, *SMALL, *chunk, "--memory-limit", str(limit), "--force")
    done = run_cli(*limited, env=ONE_THREAD)
    assert done.code == 4, done.out + done.err
    no_traceback(run_cli, done)
    run = run_cli.show(1)
    assert run["state"] == "out_of_memory"
    assert [a["outcome"] for a in run["attempt"]] == ["out_of_memory"] * (len(run["plan"]["fallbacks"]) + 1)
    assert run["attempt"][-1]["settings"] == {"entity_chunk": 512}
    left = "gradient_checkpointing off → on"
    assert re.search(
        rf"not tried: {left} \(\d+ MiB predicted with it, as much as without\)", run_cli("show", "1").out
    )
    assert f"the limit is {limit:,} MiB; try --allow-approximate" in run["reason"]
    assert f"a --memory-limit above {limit:,} MiB" in done.out


def test_a_worker_without_memory_for_its_libraries_ends_at_once_in_one_sentence(
    run_cli: Console, files: list[str]
) -> None:
    for number, limit in enumerate(("60", "120"), 1):
        limited = ("run", "train", *files, *SMALL, *ALL_AT_ONCE, "--memory-limit", limit, "--force")
        done = run_cli(*limited, env=ONE_THREAD)
        assert done.code == 4, done.out + done.err
        no_traceback(run_cli, done, number)
        run = run_cli.show(number)
        assert len(run["attempt"]) == 1  # no fallback would help
        assert run["reason"].startswith("too little memory to load the worker's libraries")


def test_a_limit_of_memory_holds_for_commands_and_is_not_for_runs_on_a_gpu(run_cli: Console) -> None:
    script = "import sys; x = bytearray(int(sys.argv[1]) << 20); print(len(x))"
    args = ("--memory-limit", "100", "--on-oom", "mib=300,10", "--", "python3", "-c", script, "{mib}")
    run_cli.must("run", "exec", *args)
    assert [a["outcome"] for a in run_cli.show(1)["attempt"]] == ["out_of_memory", "succeeded"]
    refused = run_cli("run", "exec", "--memory-limit", "100", "--gpu-memory", "10", "--", "true")
    assert refused.code == 2


def test_a_dry_run_shows_the_fallbacks_and_only_with_leave_what_changes_results(run_cli: Console) -> None:
    asked = ("run", "train", "--dataset", "nations", "--device", "cpu", "--dry-run")
    plain, allowed = run_cli(*asked).out, run_cli(*asked, "--allow-approximate").out
    assert (
        "# after an out-of-memory: gradient_checkpointing off → on (exact:"
        in run_cli(*asked, "--batch-size", "2048").out
    )
    assert "# not tried after an out-of-memory: gradient_checkpointing off → on (81 MiB predicted" in plain
    assert (
        "entity_chunk 2048" not in plain
    )  # Nations has fourteen entities, and fewer at a time would save nothing
    assert "batch_size 256 →" not in plain
    assert "# after an out-of-memory: batch_size 256 → 128 (changes results:" in allowed
    assert "allow_approximate = true" in allowed


def test_scores_of_a_tracing_whose_meaning_the_fallbacks_changed_are_not_mixed_with_others(
    tmp_path: Path,
) -> None:
    exact, cheaper = {"last_layers": False, "filtering": False}, {"last_layers": 1, "filtering": False}
    parts, dropped = open_finished_tests(exact, tmp_path / "parts")
    parts.add([FinishedTest(0, torch.tensor([3, 1]), torch.tensor([0.5, 0.25]), 4)])
    assert not dropped
    again, dropped = open_finished_tests(exact, tmp_path / "parts")
    assert (len(again), dropped) == (1, set())
    other, dropped = open_finished_tests(cheaper, tmp_path / "parts")
    assert (len(other), dropped) == (0, {"last_layers"})
