"""What a person types and what comes of it: help, every exit code, and how runs start."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from driving import Console, wait_for

from kgops.cli.session import Session
from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.settings import Home
from screens import run_calls
from storage import runs
from storage.database import open_writer

TORCH = ("torch", "numpy", "pykeen")
HEAVY = (*TORCH, "pandas", "sqlite_utils", "textual", "scipy")
SCREENS = """
from screen_driving import look
async def story(seen):
    await seen.until_shows('1 run in all')
    await seen.press('enter')
    await seen.until_shows('Record')
    await seen.press('question_mark')
    await seen.until_shows('KEYS HERE')
look(Path(os.environ['KGOPS_HOME']), story)
"""
PLANNING = """
from kgops.workloads.job_files import read_job
from kgops.planning.memory_estimate import job_size_of
from kgops.planning.targets import find_targets
from kgops.planning.planner import suggest
job = read_job({'workload': 'train', 'train': {'dataset': 'nations'}}, 'x')
assert suggest(job_size_of(job), find_targets('t4')[0]).fits
from kgops.workloads.graphs.counts import counts_of
assert counts_of({'dataset': 'nations'}).entities == 14
from kgops.workloads.regress.sizes import flights_in
assert not isinstance(flights_in(Path('.')), str)
"""


def typing(*lines: str) -> str:
    return f"from kgops.cli import main\nfor line in {lines!r}: assert main(line.split()) == 0, line"


# --- what is loaded -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        (typing("--help", "runs", "runs --json", "show 1", "logs 1", "tag 1 x", "feed --json"), HEAVY),
        (
            typing("runs --json"),
            ("kgops.jobs.job", "kgops.planning", "kgops.gpus", "importlib.metadata", "importlib.resources"),
        ),
        # It idles for days: each of these is a half to three megabytes.
        (
            "from kgops.supervisor import supervise",
            (
                *("difflib", "threading", "hashlib", "ctypes", "subprocess", "shutil", "storage.transfer"),
                *("kgops.workloads.registry", "kgops.jobs.option_reading", *HEAVY),
            ),
        ),
        # The feed's thread and the hosts' thread import these behind the first frame.
        (
            "import kgops.cli.tui, screens.app, screens.dashboard, screens.hosts",
            (
                *("kgops.supervisor.process_tree", "kgops.present.overview", "kgops.present.gpus"),
                *("kgops.gpus.nvml", "kgops.hosts.connection", "screens.feed_reader", "storage.runs"),
                *("sqlite3", "textual.drivers.web_driver"),
            ),
        ),
        # What a dashboard and a run's page have no use for is read by those who wait for them.
        (
            SCREENS,
            (
                *(*TORCH, "pandas", "scipy", "sqlite_utils", "kgops.experiments", "kgops.gpus.facts"),
                *("kgops.gpus.known", "kgops.planning.targets", "kgops.workloads.registry"),
            ),
        ),
        (PLANNING, TORCH),
    ],
    ids=("commands", "listing", "supervisor", "first frame", "screens", "planning"),
)
def test_nothing_heavy_is_loaded(run_cli: Console, code: str, unwanted: tuple[str, ...]) -> None:
    run_cli("run", "exec", "--", "true")
    make_flights(run_cli.cwd, 1, Sky(frames=10, size=8))
    is_bare = "supervise" in code  # as it runs: without site-packages
    paths = [str(folder) for folder in Path(__file__).parents[1:3]]
    before = f"import sys; sys.path[:0] = {paths!r}\n"
    before += "" if is_bare else "import os; from pathlib import Path\n"
    after = f"print('LOADED', [name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, *(("-I", "-S") if is_bare else ()), "-c", f"{before}{code}\n{after}"],
        env=run_cli.environment(),
        cwd=run_cli.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.stdout.endswith("LOADED []\n"), done.stdout + done.stderr


# --- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "state", "reason"),
    [
        ("exit 0", 0, "succeeded", None),
        ("exit 3", 1, "failed", "exit code 3"),
        ("kill -SEGV $$", 1, "failed", "crashed: SIGSEGV"),
        ("echo 'RuntimeError: CUDA out of memory.'; exit 1", 4, "out_of_memory", "CUDA out of memory"),
        ("kill -KILL $$", 5, "interrupted", "SIGKILL, which kgops did not send"),
        ("echo 'cp: No space left on device' >&2; exit 1", 1, "failed", "no space left on the disk"),
    ],
)
def test_exit_code_says_how_the_run_ended(
    run_cli: Console, script: str, code: int, state: str, reason: str | None
) -> None:
    done = run_cli("run", "exec", "--", "sh", "-c", script)
    assert done.code == code, done.err
    assert f"run 1 {state}" in done.out
    run = run_cli.row(1)
    assert run.state == state
    assert reason is None or reason in (run.reason or "")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["rnu"], "did you mean 'run'?"),
        (["run", "exce", "--", "true"], "did you mean 'exec'?"),
        (["run", "missing.toml"], "cannot read the job file missing.toml"),
        (["run", "exec", "--", "no-such-program-here"], "program 'no-such-program-here' not found"),
        (["run", "exec", "--cwd", "/no/such/folder", "--", "true"], "does not exist"),
        (["run", "exec", "--gpu", "7", "--", "true"], "gpu"),
        (["run", "exec", "--on-oom", "batch=64", "--", "true"], "the command has no {batch} to replace"),
        (["run", "exec", "--metric-regex", "(", "--", "true"], "exec.metric_regex: not a regular expression"),
        (["run", "exec", "--progress-regex", "step", "--", "true"], "exec.progress_regex: no group for the"),
        (["run", "exec", "--grace", "-1", "--", "true"], "grace"),
        (["run", "train", "--dataset", "umsl"], "PyKEEN has no dataset 'umsl'; did you mean UMLS?"),
        (
            ["run", "train", "--dataset", "umls", "--engine", "pykeen", "--model", "RotateE"],
            "PyKEEN has no model 'RotateE'; did you mean RotatE?",
        ),
        (["run", "exec", "--label", " ", "--", "true"], "label: must not be empty"),
        (["run", "exec", "--label", "x" * 101, "--", "true"], "label: longer than 100 characters"),
        (["run", "exec"], "Missing argument"),
        (["runs", "--sort", "lable"], "did you mean 'label'?"),
        (["runs", "--since", "yesterday"], "write 30m, 12h, 7d or 2w"),
        (["show", "1"], "there is no run 1"),
        (["show", "../../etc"], "there is no run"),
        (["logs", "last"], "there is no run last"),
        (["stop", "99"], "there is no run 99"),
        (["tag", "1", "two words"], "a tag is one word"),
        (["note", "1", "  "], "the note is empty"),
        # Values that no record could hold.
        (["runs", "--after", "9" * 30], ""),
        (["runs", "--since", "9" * 400 + "w"], ""),
        (["runs", "--search", "\udcff"], ""),
        (["runs", "--tag", "\udcff"], ""),
        (["run", "exec", "--tag", "\udcff", "--", "true"], ""),
        (["run", "exec", "--tag", "two words", "--", "true"], ""),
        (["run", "exec", "--label", "\udcff", "--", "true"], ""),
        (["run", "exec", "--", "echo", "\udcff"], ""),
        (["run", "exec", "--grace", "inf", "--", "true"], ""),
        (["run", "exec", "--log-limit", "1e308", "--", "true"], ""),
    ],
    ids=lambda value: ascii(" ".join(value)[:40]) if isinstance(value, list) else "",
)
def test_mistakes_exit_2_with_a_message_and_record_nothing(
    run_cli: Console, args: list[str], said: str
) -> None:
    done = run_cli(*args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert list((run_cli.home / "runs").iterdir()) == []


# --- starting -------------------------------------------------------------------------------------


def test_followed_run_shows_its_log_on_stderr_and_its_end_on_stdout(run_cli: Console) -> None:
    done = run_cli("run", "exec", "--", "sh", "-c", "echo first; sleep 0.3; echo last")
    assert done.err == "first\nlast\n"
    assert done.out.startswith("run 1 succeeded")


def test_run_gets_null_stdin_its_folder_and_its_number(run_cli: Console) -> None:
    script = 'cat; echo "$KGOPS_RUN $KGOPS_ATTEMPT"; echo "$KGOPS_RUN_FOLDER"; pwd'
    done = run_cli("run", "exec", "--", "sh", "-c", script, input=b"never read")
    assert done.err == f"1 1\n{run_cli.folder(1)}\n{run_cli.cwd}\n"


def test_dry_run_prints_a_job_that_can_be_run_and_records_nothing(run_cli: Console) -> None:
    args = ("run", "exec", "--label", 'odd "label" \\', "--on-oom", "n=4,2", "--grace", "2.5")
    shown = run_cli.must(*args, "--dry-run", "--", "echo", "{n}", "a b")
    assert shown.out.endswith("# echo 4 'a b'\n")
    assert not list((run_cli.home / "runs").iterdir())
    table = tomllib.loads(shown.out)
    assert table["label"] == 'odd "label" \\'
    assert table["exec"]["on_oom"] == {"n": [4, 2]}
    (run_cli.cwd / "job.toml").write_text(shown.out)
    done = run_cli("run", "job.toml")
    assert (done.code, done.err) == (0, "4 a b\n")
    assert run_cli.show(1)["job"] == table


def test_job_file_of_this_folder_is_the_default_and_any_other_can_be_named(run_cli: Console) -> None:
    (run_cli.cwd / "kgops.toml").write_text('workload = "exec"\n[exec]\ncommand = ["echo", "default"]\n')
    (run_cli.cwd / "other.toml").write_text('workload = "exec"\n[exec]\ncommand = ["echo", "other"]\n')
    assert run_cli("run").err == "default\n"
    assert run_cli("run", "other.toml", "--label", "mine").err == "other\n"
    assert [run["label"] for run in run_cli("runs", "--json").json()] == ["mine", "echo default"]


def test_without_a_job_file_the_demo_is_the_default_job(run_cli: Console) -> None:
    shown = run_cli.must("run", "--dry-run")
    assert "starting the demo job" in shown.err
    assert tomllib.loads(shown.out)["label"] == "demo"


def test_without_a_job_file_the_triples_of_this_folder_are_used(run_cli: Console) -> None:
    for name in ("train", "valid", "test"):
        shown = run_cli("run", "--dry-run")
        assert (shown.code, "starting the demo job" in shown.err) == (
            (0, True) if name == "train" else (2, False)
        )
        (run_cli.cwd / f"{name}.txt").write_text("a\tr\tb\nb\tr\ta\n")
    assert "no test.txt" in shown.err  # as long as one is missing
    job = tomllib.loads(run_cli("run", "--profile", "t4", "--dry-run").out)
    assert job["pipeline"]["train"]["train"] == str(run_cli.cwd / "train.txt")
    assert job["pipeline"]["tracin"]["max_triples"] == 10
    assert job["label"] != "demo"


def test_again_repeats_the_job_where_it_ran_before(run_cli: Console, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run_cli.cwd / "job.toml").write_text(
        'workload = "exec"\n[exec]\ncommand = ["sh", "-c", "pwd; exit 7"]\n'
    )
    first = run_cli("run", "job.toml", "--label", "probe")
    again = run_cli("run", "--again", "last", cwd=elsewhere)
    assert (again.code, again.err) == (first.code, first.err) == (1, f"{run_cli.cwd}\n")
    one, two = run_cli.show(1), run_cli.show(2)
    assert one["job"] == two["job"]
    assert two["label"] == "probe"


def test_again_and_a_sweep_repeat_a_run_on_its_own_data_from_any_folder(
    run_cli: Console, tmp_path: Path
) -> None:
    """A job file names its data as seen from where it was started; elsewhere files of the same names may lie."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run_cli.cwd / "t.txt").write_text("a\tr\tb\nb\tr\tc\nc\tr\ta\n")
    (elsewhere / "t.txt").write_text("x\tr\ty\n")
    (run_cli.cwd / "job.toml").write_text(
        'workload = "train"\n[train]\ntrain = "t.txt"\nembedding_dim = 16\noutput_channels = 2\nnum_epochs = 1\n'
        'device = "cpu"\n'
    )
    run_cli.must("run", "job.toml")
    for words in (("run", "--again", "1"), ("run", "sweep", "1", "--vary", "seed=7,8")):
        assert run_cli(*words, cwd=elsewhere).code == 0
    session = Session(Home(run_cli.home), open_writer(run_cli.home / "kgops.db"))
    one = runs.get(session.conn, 1)
    assert one is not None and run_calls.again(session, one) == "started run 5 with the job of run 1"
    for number in (2, 3, 4, 5):
        wait_for(lambda number=number: run_cli.show(number)["state"] == "succeeded", f"run {number}")  # type: ignore[misc]  # of a lambda
        shown = run_cli.show(number)
        assert shown["job"]["train"]["train"] == str(run_cli.cwd / "t.txt")
        assert chosen_by(shown) == chosen_by(run_cli.show(1))
    assert "no differences" in run_cli("compare", "1", "2").out


def chosen_by(shown: dict[str, Any]) -> dict[str, str]:
    return {choice["option"]: choice["chosen_by"] for choice in shown["plan"]["choices"]}


def test_unstartable_program_fails_with_what_the_system_said(run_cli: Console) -> None:
    program = run_cli.cwd / "broken"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    done = run_cli("run", "exec", "--", "./broken")
    assert done.code == 1
    assert "cannot start './broken'" in done.err


def test_a_misspelt_file_of_triples_is_told_at_once_and_nothing_is_started(run_cli: Console) -> None:
    done = run_cli("run", "train", "--train", "no-such-file.tsv")
    assert done.code == 2
    assert f"--train: there is no file {run_cli.cwd / 'no-such-file.tsv'}" in done.err
    assert run_cli.run(1) is None
