"""Seconds, shares and megabytes are finite numbers, wherever they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving import Console

WORDS = ("nan", "inf", "-inf")
FLAGS = (
    "run exec --grace {} -- true",
    "run exec --log-limit {} -- true",
    "run train --dataset nations --learning-rate {}",
    "run train --dataset nations --input-dropout {}",
    "run regress --data_directory x --loss_alpha {}",
    "suggest train --dataset nations --weight-decay {}",
    "stop 1 --grace {}",
)


@pytest.mark.parametrize("words", FLAGS)
def test_flags_take_no_number_that_is_not_finite(run_cli: Console, words: str) -> None:
    for word in WORDS:
        done = run_cli(*words.format(word).split())
        assert done.code == 2
        assert "finite number" in done.err
        assert "Traceback" not in done.err
    assert list((run_cli.home / "runs").iterdir()) == []


@pytest.mark.parametrize("table", ["limits]\ngrace_s", "limits]\nlog_mib", "options]\ncompile"])
def test_job_files_take_no_number_that_is_not_finite(run_cli: Console, tmp_path: Path, table: str) -> None:
    for word in (*WORDS, "1" + "0" * 400):
        job = tmp_path / "job.toml"
        job.write_text(f'workload = "exec"\n[exec]\ncommand = ["true"]\n[{table} = {word}\n')
        done = run_cli("run", job)
        assert done.code == 2, done
        assert done.err.count("Error: ") == 1
        assert "Traceback" not in done.err
    assert list((run_cli.home / "runs").iterdir()) == []
