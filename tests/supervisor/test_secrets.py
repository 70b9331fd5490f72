"""Secrets are in no file that stays, and what is in a home is for its owner alone."""

import os
import shlex
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

from driving import Console, all_of, is_clear, wait_for

from kgops.supervisor import processes

SECRETS = {
    "HF_TOKEN": "hunter1-in-the-environment",
    "my_api_key": "hunter2-in-the-environment",
    "CLIENT_SECRET_2": "hunter3-in-the-environment",
    "PGPASSWORD": "hunter4-in-the-environment",
}
ARGUMENTS = (
    *("--api-key", "hunter5-in-the-arguments"),
    "--token=hunter6-in-the-arguments",
    "DB_PASSWORD=hunter7-in-the-arguments",
    *("-password", "hunter8-in-the-arguments"),
    *("--passwd", "hunter11-in-the-arguments", "--auth=hunter12-in-the-arguments"),
    "https://me:hunter13-in-an-address@localhost/x",
    *("-H", "Authorization: Bearer hunter14-in-a-header", "X-Api-Key: hunter15-in-a-header"),
    '{"api_key": "hunter16-in-json"}',
    f"--plain={SECRETS['HF_TOKEN']}",
)


def test_secrets_are_in_no_file_once_the_run_has_ended(run_cli: Console, tmp_path: Path) -> None:
    script = (
        "export API_KEY=hunter9-in-a-script OTHER_TOKEN='hunter10 in a script'\n"
        'while [ ! -e gate ]; do sleep 0.05; done; env > seen; echo "$@" >> seen'
    )
    number = run_cli.going("sh", "-c", script, "sh", *ARGUMENTS, env=SECRETS)
    private = run_cli.folder(number) / "private.json"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    for who in all_of(run_cli.home):
        if processes.is_supervisor(who.pid):
            assert b"hunter" not in Path(f"/proc/{who.pid}/cmdline").read_bytes()
    printed = (
        run_cli("runs", "--json").out + run_cli("show", str(number), "--json").out + run_cli("show", "1").out
    )
    assert "hunter" not in printed
    assert "HF_TOKEN" in printed  # that there was one may be known
    (tmp_path / "gate").touch()
    assert run_cli.ended(number).state == "succeeded"
    seen = (tmp_path / "seen").read_text()  # the worker itself got them all
    for secret in (*SECRETS.values(), *ARGUMENTS):
        assert secret in seen
    assert not private.exists()
    for path in run_cli.home.rglob("*"):
        assert "hunter" not in path.name
        if path.is_file():
            assert b"hunter" not in path.read_bytes(), path
    again = run_cli("run", "--again", str(number))
    assert (again.code, is_clear(again.err)) == (2, True)
    assert run_cli("resume", str(number)).code == 2


def test_the_value_of_a_secret_variable_stays_in_nothing_a_person_types(
    run_cli: Console, tmp_path: Path
) -> None:
    secret = SECRETS["HF_TOKEN"]
    place = tmp_path / secret
    place.mkdir()
    dry = run_cli(
        "run", "exec", "--label", f"x {secret}", "--dry-run", "--", "echo", f"a-{secret}", env=SECRETS
    )
    assert dry.code == 0 and "hunter" not in dry.out + dry.err
    told = ("run", "exec", "--label", f"x {secret}", "--", "echo")
    assert (
        run_cli(*told, env={**SECRETS, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:/{secret}"}).code
        == 0
    )
    assert run_cli("note", "1", f"with {secret} in it", env=SECRETS).code == 0
    tag = run_cli("tag", "1", f"x-{secret}", env=SECRETS)
    assert (tag.code, is_clear(tag.err)) == (2, True) and "hunter" not in tag.err
    for settings in (
        ("--train", str(place / "t.txt")),
        ("--dataset", "nations", "--on", "slurm", f"--sbatch=--a={secret}"),
    ):
        done = run_cli("run", "train", *settings, env=SECRETS)
        assert done.code == 2 and "which the record would keep" in done.err and "hunter" not in done.err
    for path in run_cli.home.rglob("*"):
        assert "hunter" not in path.name
        assert not path.is_file() or b"hunter" not in path.read_bytes(), path
    assert run_cli("export", "1", "--to", "json").code == 0 and run_cli("report", "1").code == 0
    for name in ("run-1.json", "run-1.html"):
        assert (
            "hunter" not in (tmp_path / name).read_text()
            and "&lt;***&gt;" in (tmp_path / "run-1.html").read_text()
        )


def test_home_and_all_in_it_are_private_whatever_the_umask(run_cli: Console, tmp_path: Path) -> None:
    home = tmp_path / "fresh"
    home.mkdir(mode=0o755)
    script = """echo '{"event": "note", "text": "x"}' > $KGOPS_EVENTS; echo out; sleep 0.3"""
    argv = shlex.join(run_cli.argv("run", "exec", "--", "sh", "-c", script))
    subprocess.run(
        ["sh", "-c", f"umask 022; exec {argv}"],
        env=run_cli.environment({"KGOPS_HOME": str(home)}),
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    paths = list(home.rglob("*"))
    assert {"kgops.db", "worker.log", "events.jsonl", "job.toml", "supervisor.log"} <= {
        path.name for path in paths
    }
    for path in paths:
        with suppress(FileNotFoundError):  # a journal goes with whoever closes the database last
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    wait_for(lambda: not all_of(home), "the supervisor to leave")
