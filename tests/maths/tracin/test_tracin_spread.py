"""A TracIn run of several processes writes, byte for byte, what one process writes, whichever process dies."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from driving import wait_for
from recording import events
from small_graph import write_graph

from kgops.maths.tracin.parallel import plan_shards
from kgops.maths.tracin.scan import Share, TopTriples
from kgops.maths.tracin.shards import Shards, ShardScores, ShardWorker, StrongestSoFar, Tile, merge_into
from kgops.maths.tracin.test_triples import TestTriple as Asked
from kgops.maths.tracin.work import Work, load_graph
from kgops.maths.worker.entry import Stopped, StopRequest
from kgops.maths.worker.report import Reporter
from kgops.workloads.job_files import read_job

ENTITIES, RELATIONS, TRAIN, TEST = 400, 9, 12_500, 40


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of its own, large enough to be cut, and a training on it in two checkpoints."""
    folder = tmp_path_factory.mktemp("trained")
    write_graph(folder, 3, ENTITIES, RELATIONS, train=TRAIN, test=TEST)
    table = {
        "train": str(folder / "train.txt"),
        "embedding_dim": 16,
        "output_channels": 2,
        "num_epochs": 2,
        "checkpoint_frequency": 1,
        "validate_every": 0,
        "device": "cpu",
    }
    job = read_job({"workload": "train", "train": table}, "the test")
    (folder / "job.toml").write_text(job.as_toml())
    subprocess.run(worker("train.worker", "job.toml"), cwd=folder, capture_output=True, check=True)
    return folder


def worker(name: str, *given: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"kgops.maths.{name}", *given]


WAYS: dict[str, dict[str, Any]] = {
    "the strongest of every test": {"test": "test.txt", "top_k": 20},
    "every score of one test": {"test_triple": "e1,r1,e2"},
    "a filtered batch": {"test_triples": "test.txt", "n_hops": 1, "max_triples": 6, "top_k": 30},
}
STRONGEST = next(iter(WAYS))


def begin(folder: Path, trained: Path, devices: int, way: str = STRONGEST) -> subprocess.Popen[bytes]:
    """The worker of a TracIn run."""
    folder.mkdir(exist_ok=True)
    own = {name: str(trained / value) if value == "test.txt" else value for name, value in WAYS[way].items()}
    table = {
        "checkpoint_dir": str(trained / "results" / "checkpoints"),
        "train": str(trained / "train.txt"),
        "loss": "one-to-n",
        "device": "cpu",
        "csv_output": str(folder / "found.csv"),  # without it the strongest are kept alone
        **own,
    }
    job = read_job({"workload": "tracin", "tracin": table, "options": {"devices": devices}}, "the test")
    (folder / "job.toml").write_text(job.as_toml())
    variables = {"KGOPS_RUN_FOLDER": str(folder), "KGOPS_EVENTS": str(folder / "events.jsonl")}
    variables["OMP_NUM_THREADS"] = "1"  # each, so that one process rounds as two do
    command = worker("tracin.worker", str(folder / "job.toml"))
    return subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL)


def found_in(folder: Path) -> dict[str, bytes]:
    kept = ("*.csv", "*_tracin.json", "tracin.json")
    return {p.name: p.read_bytes() for pattern in kept for p in (folder / "results").glob(pattern)}


def option(folder: Path, name: str) -> dict[str, Any]:
    return next(event for event in events(folder, "option") if event["name"] == name)


def hands_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture(scope="module")
def alone(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """What one process finds, in each way."""
    folder = tmp_path_factory.mktemp("alone")
    runs = [begin(folder / way, trained, 1, way) for way in WAYS]
    assert [run.wait(120) for run in runs] == [0] * len(runs)
    return {way: found_in(folder / way) for way in WAYS}


@contextmanager
def a_piece_nobody_can_have(folder: Path) -> Iterator[int]:
    """Claims the last piece before anybody else does; how many there are."""
    wait_for(lambda: list((folder / "shards").glob("*/plan.json")), "the plan of a TracIn run in pieces")
    pieces = Shards.open(next((folder / "shards").iterdir()))
    with pieces.claimed(list(pieces)[-1]) as ours:
        assert ours
        yield len(list(pieces))


# The strongest are found by two processes below, though one is killed or all are stopped.
@pytest.mark.parametrize("way", [way for way in WAYS if way != STRONGEST])
def test_two_processes_find_byte_for_byte_what_one_finds(
    way: str, trained: Path, alone: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    assert begin(tmp_path, trained, 2, way).wait(120) == 0
    assert alone[way]
    assert found_in(tmp_path) == alone[way]
    assert option(tmp_path, "devices")["applied"] == min(2, len(os.sched_getaffinity(0)))
    assert not (tmp_path / "shards").exists()


def test_a_process_that_is_killed_is_replaced_and_the_result_is_the_same(
    trained: Path, alone: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    run = begin(tmp_path, trained, 2)
    with a_piece_nobody_can_have(tmp_path):
        wait_for(lambda: len(hands_of(run.pid)) == 2, "two hands")
        before = hands_of(run.pid)
        os.kill(before[0], signal.SIGKILL)
        wait_for(lambda: len({*hands_of(run.pid)} - {*before}) == 1, "another hand")
    assert run.wait(120) == 0
    assert found_in(tmp_path) == alone[STRONGEST]


def test_a_stopped_run_goes_on_with_the_pieces_that_were_published(
    trained: Path, alone: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    run = begin(tmp_path, trained, 2)
    with a_piece_nobody_can_have(tmp_path) as many:
        wait_for(lambda: len(list((tmp_path / "shards").glob("*/*.pt"))) == many - 1, "all pieces but one")
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == -signal.SIGTERM
    assert begin(tmp_path, trained, 2).wait(120) == 0
    assert f"{many - 1} already done" in (tmp_path / "events.jsonl").read_text()
    assert found_in(tmp_path) == alone[STRONGEST]


# --- pieces ---------------------------------------------------------------------------------------


@pytest.fixture
def pieces(tmp_path: Path) -> Shards:
    asked = [Asked(1, ("a", "b", "c"), (0, 0, 1)), Asked(2, ("a", "b", "d"), (0, 0, 2))]
    return Shards.plan(tmp_path / "pieces", [Tile.of(0, asked)], 3, 2)


def test_a_claimed_piece_is_not_claimed_again_until_its_holder_is_gone(pieces: Shards) -> None:
    piece = next(iter(pieces))
    claim = (
        "import sys, time; from pathlib import Path; from kgops.maths.tracin.shards import Shards\n"
        "shards = Shards.open(Path(sys.argv[1]))\n"
        "with shards.claimed(next(iter(shards))) as ours: print(ours, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", claim, str(pieces.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with pieces.claimed(piece) as ours:
            assert not ours
        holder.kill()
    with pieces.claimed(piece) as ours:
        assert ours


@pytest.mark.parametrize("k", [1, 5, 40, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_shards_of_processes_that_leave_out_the_weak_merge_to_all(seed: int, k: int) -> None:
    """Ties, infinities and many shards; each process leaves out what its own earlier shards beat."""
    torch.manual_seed(seed)
    shards = torch.split(torch.randperm(300), 29)
    scores = torch.randint(-4, 5, (7, 300)).double() / torch.randint(0, 3, (7, 300))
    scores = scores.nan_to_num(nan=0.5, posinf=torch.inf, neginf=-torch.inf)
    processes = [StrongestSoFar(k) for _ in range(3)]
    published: list[list[ShardScores]] = []
    for which in torch.randint(3, (len(shards),)).tolist():
        ids, process = shards[len(published)], processes[which]
        process.add(0, ids, scores[:, ids])
        process.finish()
        published.append(process.scores_of(ids))
    merged, at_once = TopTriples(k), TopTriples(k)
    order = torch.split(torch.randperm(len(published)), 4)
    for some in order:
        merge_into(merged, [published[i] for i in some], k)
    at_once.add(0, torch.arange(300), scores)
    at_once.finish()
    for ours, theirs in ((merged.proponents, at_once.proponents), (merged.opponents, at_once.opponents)):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    real = sum(int((ids < 300).sum()) for scored in published for _, (_, ids, _, _) in scored)
    assert real < 7 * min(k, 29) * len(published) or k == 1000


def shard_worker(trained: Path, folder: Path) -> ShardWorker:
    """As a process of a spread run has it."""
    folder.mkdir(exist_ok=True)
    table = {
        "model_path": str(sorted((trained / "results" / "checkpoints").glob("*.pt"))[-1]),
        "train": str(trained / "train.txt"),
        "test": str(trained / "test.txt"),
        "loss": "one-to-n",
        "top_k": 5,
    }
    job = read_job({"workload": "tracin", "tracin": table}, "the test")
    work = Work(job, load_graph(job.settings), folder, Reporter(folder), StopRequest())
    cpu = torch.device("cpu")
    shards = plan_shards(work, work.tests, work.finished_tests())
    return ShardWorker(work, work.scoring(work.load(cpu), cpu), shards)


def test_a_shard_scored_again_after_a_failure_counts_once(trained: Path, tmp_path: Path) -> None:
    """A Ray worker lives on after a shard failed half-way, and may be given it again."""
    worker = shard_worker(trained, tmp_path)
    first, second, *_ = worker.shards
    stops: Any = partial(next, iter([False, True]))
    working = worker.work
    worker.work = replace(working, stop=stops)
    with pytest.raises(Stopped):
        worker.do(first)
    worker.work = working
    worker.do(first)
    worker.do(second)
    fresh = shard_worker(trained, tmp_path / "fresh")
    fresh.do(first)
    torch.testing.assert_close(worker.shards.read(first), fresh.shards.read(first), rtol=0, atol=0)
    for _, (_, ids, _, _) in worker.shards.read(second):
        assert all(len(set(row)) == len(row) for row in ids.tolist() if max(row) < 2**62)


@pytest.mark.parametrize("triples", [1, 255, 256, 257, 10_000])
@pytest.mark.parametrize("of", [1, 2, 7, 64])
def test_shares_hold_every_block_once_and_in_order(triples: int, of: int) -> None:
    shares = [Share(which, of) for which in range(of)]
    blocks = [block for share in shares for block in range(*share.of_blocks(triples, 256))]
    assert blocks == list(range(-(-triples // 256)))
    assert sum(share.triples(triples, 256) for share in shares) == triples
