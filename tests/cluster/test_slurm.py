"""On a real Slurm: submitted, preempted, lost with its node, stopped, and as an array; each ends as it would here."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from driving import Console, end_all_of, wait_for
from recording import events
from slurm_cluster import Cluster, cluster, missing
from small_graph import write_graph

from kgops.cluster.script import script
from kgops.jobs.run_options import ClusterRequest

WITHOUT = missing()
needs_slurm = pytest.mark.skipif(
    bool(WITHOUT), reason=f"needs Slurm (slurm-wlm, munge): no {', '.join(WITHOUT)}"
)
TRAIN, TEST, EPOCHS, MORE = 9_000, 12, 60, 200
ON = ("--on", "slurm", "--partition", "main", "--cpus", "1", "--time", "20")


@dataclass
class Site:
    console: Console
    cluster: Cluster
    train: tuple[str, ...]

    def begin(self, *command: str) -> int:
        done = self.console("run", *command, "--detach", env=self.environment)
        assert done.code == 0, done.err
        return int(done.out)

    @property
    def environment(self) -> dict[str, str]:
        return {**self.cluster.environment, "OMP_NUM_THREADS": "1"}

    def notes(self, number: int) -> str:
        return "\n".join(event["text"] for event in events(self.console.folder(number), "note"))

    def job_of(self, number: int) -> int:
        told = self.console.folder(number) / "attempts" / "1" / "slurm" / "job.json"
        return int(json.loads(told.read_text())["job"])

    def worker_of(self, number: int) -> int:
        return int(events(self.console.folder(number), "started")[0]["pid"])

    def wait_for_checkpoint(self, number: int, name: str = "checkpoint_epoch_*.pt") -> None:
        folder = self.console.folder(number) / "results" / "checkpoints"
        wait_for(lambda: list(folder.glob(name)), f"a checkpoint of run {number}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("slurm")
    files = write_graph(folder, 5, 300, 7, train=TRAIN, test=TEST)
    home = folder / "home"
    small = ("--embedding-dim", "16", "--output-channels", "2", "--validate-every", "0")
    with cluster(folder / "cluster", 5) as one:
        try:
            yield Site(Console(home, folder), one, ("train", *files, *small))
        finally:
            end_all_of(home)


@dataclass
class Runs:
    whole: int
    timed: int
    preempted: int
    lost: int
    stopped: int
    lost_worker: int = 0


@pytest.fixture(scope="module")
def begun(site: Site) -> Runs:
    """All at once, and what befalls them too, since most of what follows is waiting."""
    long = (*site.train, "--num-epochs", str(EPOCHS), "--checkpoint-frequency", "5")
    # Longer than Slurm takes to see that another has more right to the node.
    longer = (*site.train, "--num-epochs", str(MORE), "--checkpoint-frequency", "5")
    runs = Runs(
        whole=site.begin(*site.train, "--num-epochs", "2", "--checkpoint-frequency", "1", *ON),
        preempted=site.begin(*longer, *ON, "--sbatch=--nodelist=n5"),
        lost=site.begin(*longer, "--resume-every", "1", *ON, "--sbatch=--exclude=n[1-2],n5"),
        timed=site.begin(*long, *ON, "--sbatch=--nodelist=n2"),
        stopped=site.begin(*site.train, "--num-epochs", "900", *ON, "--sbatch=--nodelist=n1"),
    )
    site.wait_for_checkpoint(runs.preempted)
    urgent = ("--partition=urgent", "--nodelist=n5", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    site.cluster.ask("sbatch", *urgent)
    site.wait_for_checkpoint(runs.timed)
    # As Slurm does when the time of a job is nearly over.
    site.cluster.ask("scancel", "--batch", "--signal=USR2", str(site.job_of(runs.timed)))
    site.wait_for_checkpoint(runs.lost, "resume_*.pt")  # a crash leaves no time to write one
    site.cluster.lose_node(next(n for n in ("n3", "n4") if f"on {n}" in site.notes(runs.lost)))
    runs.lost_worker = site.worker_of(runs.lost)
    os.kill(runs.lost_worker, signal.SIGSTOP)
    return runs


@needs_slurm
def test_a_run_on_slurm_is_a_run_like_any_other(site: Site, begun: Runs) -> None:
    run = site.console.ended(begun.whole)
    assert run.state == "succeeded", run.reason
    shown = site.console.show(begun.whole)
    assert {option["name"] for option in shown["option"]} >= {"batch_size", "precision"}
    assert shown["metric"]["epochs"] == 2
    assert "Slurm job" in site.notes(begun.whole)
    assert "epochs 2" in (site.console.folder(begun.whole) / "worker.log").read_text()
    # Who followed it is not what was measured.
    assert shown["peak_host_mib"] is None
    assert any(curve["name"] == "host_peak_mib" for curve in shown["series"])


@needs_slurm
def test_a_stop_ends_the_job_on_its_node_and_in_the_queue(site: Site, begun: Runs) -> None:
    site.wait_for_checkpoint(begun.stopped)
    site.console("stop", str(begun.stopped), env=site.environment)
    assert site.console.ended(begun.stopped).state == "cancelled"
    names = site.cluster.ask("squeue", "-h", "-o", "%j %T")
    assert f"kgops-{begun.stopped} RUNNING" not in names


@needs_slurm
@pytest.mark.parametrize("how", ["preempted", "timed"])
def test_a_run_that_loses_its_node_to_others_or_to_time_goes_on_from_its_checkpoint(
    how: str, site: Site, begun: Runs
) -> None:
    number = getattr(begun, how)
    run = site.console.ended(number)
    assert run.state == "succeeded", run.reason
    assert ".1 on " in site.notes(number)  # started a second time by Slurm
    assert site.console.show(number)["attempts"] == 1
    epochs = MORE if how == "preempted" else EPOCHS
    metrics = events(site.console.folder(number), "metric")
    steps = [int(metric["step"]) for metric in metrics if metric["name"] == "loss"]
    assert set(steps) == set(range(1, epochs + 1))
    assert len(steps) <= epochs + 1  # none was done again but the one that was going on


@needs_slurm
def test_a_run_whose_node_is_lost_goes_on_elsewhere_and_the_lost_worker_publishes_nothing(
    site: Site, begun: Runs
) -> None:
    again = f"{site.job_of(begun.lost)}.1"
    wait_for(lambda: f"Slurm job {again} on" in site.notes(begun.lost), "the second start")
    # The node was not dead, only out of sight.
    os.kill(begun.lost_worker, signal.SIGCONT)
    run = site.console.ended(begun.lost)
    assert run.state == "succeeded", run.reason
    fence = site.console.folder(begun.lost) / "attempts" / "1" / "slurm" / "fence.all"
    assert fence.read_text() == again
    log = fence.with_name("log.all")
    wait_for(lambda: f"was succeeded by {again}" in log.read_text(), "the lost worker to end")
    assert log.read_text().count(f"epochs {MORE} ") == 1


@needs_slurm
def test_a_tracing_as_an_array_finds_byte_for_byte_what_one_process_finds_here(
    site: Site, begun: Runs
) -> None:
    site.console.ended(begun.whole)
    traced = ("tracin", "--run", str(begun.whole), "--top-k", "9", "--loss", "one-to-n")
    here = site.begin(*traced)
    array = site.begin(*traced, *ON, "--tasks", "2")
    for number in (here, array):
        run = site.console.ended(number)
        assert run.state == "succeeded", run.reason
    found = [(site.console.folder(n) / "results" / "tracin.csv").read_bytes() for n in (here, array)]
    assert found[0] == found[1]
    assert "shards are ready to merge." in site.notes(array)


def test_without_sbatch_nothing_is_started_and_the_person_is_told_where_to_start_it(
    run_cli: Console, tmp_path: Path
) -> None:
    done = run_cli("run", "train", "--dataset", "nations", "--on", "slurm", env={"PATH": str(tmp_path)})
    assert done.code == 2
    assert "login node" in done.err


# --- without Slurm --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--on", "slurm", "--time", "tomorrow"), "on.time"),
        (("--tasks", "3"), "on.tasks"),
        (("--on", "slurm", "--address", "auto"), "on.address"),
        (("--on", "slurm", "--sbatch", "constraint=a100"), "on.options"),
        (("--on", "ray"), "on.where"),
    ],
)
def test_what_does_not_go_together_is_named(run_cli: Console, flags: tuple[str, ...], says: str) -> None:
    done = run_cli("run", "train", "--dataset", "nations", "--dry-run", *flags)
    assert done.code == 2
    assert says in done.err


def test_a_dry_run_prints_what_slurm_would_be_asked(run_cli: Console) -> None:
    on = ("--on", "slurm", "--partition", "gpu", "--time", "04:00:00", "--gres", "gpu:1")
    train = run_cli("run", "train", "--dataset", "nations", "--dry-run", *on, "--sbatch=--qos=a b")
    asked = [line for line in train.out.splitlines() if line.startswith("# sbatch")]
    assert len(asked) == 1
    for option in ("--partition=gpu", "--time=04:00:00", "--gres=gpu:1", "--requeue", "'--qos=a b'"):
        assert f" {option} " in asked[0]
    assert asked[0].endswith("worker.sh: python -P -m kgops.maths.train.worker job.toml")
    traced = ("tracin", "--dataset", "nations", "--model-path", "model.pt", "--dry-run")
    shared = run_cli("run", *traced, *on, "--tasks", "3")
    array, merge = (line for line in shared.out.splitlines() if line.startswith("# sbatch"))
    assert " --array=0-2 shards.sh: " in array
    assert " --dependency=afterany:JOB worker.sh: " in merge
    # What is not cut into pieces is one job, however many tasks were asked for.
    whole = run_cli("run", *traced, *on, "--tasks", "3", "--self-influence")
    assert sum(line.startswith("# sbatch") for line in whole.out.splitlines()) == 1
    assert "sbatch" not in run_cli("run", *traced).out


def test_the_script_survives_any_path_and_any_value(tmp_path: Path) -> None:
    """Quotes, spaces, dollars and line feeds stay what they are."""
    folder = tmp_path / "it's a $HOME `pwd`"
    folder.mkdir()
    told = {"KGOPS_RUN_FOLDER": str(folder), "KGOPS_SETTINGS": '{"a": "it\'s $1 \\n"}'}
    command = ["printenv", "KGOPS_SETTINGS"]
    path = tmp_path / "script.sh"
    path.write_text(script("a name", ClusterRequest("slurm"), folder / "slurm", str(folder), command, told))
    own: dict[str, Any] = {**os.environ, "SLURM_JOB_ID": "7"}
    done = subprocess.run(["bash", str(path)], env=own, capture_output=True, text=True, check=True)
    assert done.stdout == told["KGOPS_SETTINGS"] + "\n"
    assert (folder / "slurm" / "exit.all").read_text() == "0"
    assert (folder / "slurm" / "fence.all").read_text() == "7.0"
