"""`kgops doctor` names each trouble of a machine and says what to do about it."""

import shutil

from driving import Console


def test_a_sound_machine_gets_exit_code_0_and_every_subject_is_named(run_cli: Console) -> None:
    done = run_cli("doctor", "--json")
    found = {finding["subject"]: finding for finding in done.json()}
    subjects = {
        "Python",
        "SQLite",
        "torch",
        "NVML",
        "home",
        "file system",
        "disk",
        "hooks",
        "database",
        "runs",
        "logout",
    }
    assert found.keys() == subjects
    assert done.code == 0, [finding for finding in found.values() if finding["level"] == "trouble"]


def test_every_trouble_comes_with_what_to_do(run_cli: Console) -> None:
    run_cli.home.chmod(0o755)
    (run_cli.home / "kgops.db").write_bytes(
        b"this is no database, but it is long enough to be looked at" * 20
    )
    done = run_cli("doctor", "--json")
    troubles = {finding["subject"]: finding for finding in done.json() if finding["level"] == "trouble"}
    assert done.code == 1
    assert troubles.keys() == {"home", "database"}
    assert troubles["home"]["advice"] == f"chmod 700 {run_cli.home}"
    assert "--rebuild" in troubles["database"]["advice"]


def test_the_database_is_made_again_from_the_run_folders(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--label", "kept", "--", "sh", "-c", "echo '{}'; exit 3").code == 1
    assert run_cli("run", "exec", "--tag", "lost-with-the-database", "--", "true").code == 0
    before = [run_cli.show(number) for number in (1, 2)]
    for name in ("kgops.db", "kgops.db-wal", "kgops.db-shm"):
        (run_cli.home / name).unlink(missing_ok=True)
    assert "2 run folders, and no database" in run_cli("doctor").out
    done = run_cli.must("doctor", "--rebuild")
    assert "2 runs restored: 1, 2" in done.out
    for old, new in zip(before, [run_cli.show(number) for number in (1, 2)], strict=True):
        for column in ("label", "state", "reason", "exit_code", "submitted_at", "ended_at", "folder", "job"):
            assert new[column] == old[column], column


def test_a_run_whose_folder_is_gone_is_named_and_has_no_log(run_cli: Console) -> None:
    for _ in range(2):
        assert run_cli("run", "exec", "--", "true").code == 0
    shutil.rmtree(run_cli.folder(2))
    done = run_cli.must("doctor")
    assert "the folder of run 2 is gone" in done.out and "kgops delete 2" in done.out
    assert "The folder of run 2 is gone." in run_cli("logs", "2").err
