"""docs/MIGRATING.md: what becomes of the scripts' command lines; each is run as it stands there, renamed."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kgops.cli import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "MIGRATING.md").read_text()
WORKLOADS = {
    "train_pytorch.py": "train",
    "run_tracin.py": "tracin",
    "batch_tracin_with_filtering.py": "tracin",
    "main.py": "regress",
}
# What a flag of a table is given with: the least that its command takes.
LEAST = {
    "train_pytorch.py": "--train data/train.txt --valid data/valid.txt --test data/test.txt",
    "run_tracin.py": "--model-path models/conve/final_model.pt --train data/train.txt --self-influence",
    "batch_tracin_with_filtering.py": (
        "--model-path models/conve/final_model.pt --train data/train.txt --test-triples data/batch.txt"
    ),
}
FILES = {
    "train.txt": "CHEBI:1\ttreats\tMONDO:1\nCHEBI:1\taffects\tCHEBI:2\nCHEBI:2\ttreats\tMONDO:2\n",
    "valid.txt": "CHEBI:2\taffects\tMONDO:1\n",
    "test.txt": "CHEBI:1\ttreats\tMONDO:2\n",
    "batch.txt": "CHEBI:1\ttreats\tMONDO:2\n",
    "node_dict.txt": "CHEBI:1\t0\nCHEBI:2\t1\nMONDO:1\t2\nMONDO:2\t3\n",
    "rel_dict.txt": "treats\t0\naffects\t1\n",
    "edge_map.json": "{}",
    "node_names.txt": "CHEBI:1\tAspirin\n",
}


def pairs() -> list[tuple[str, str]]:
    """Old command line and new, as they stand one under the other."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    return list(zip(lines[::2], lines[1::2], strict=True))


def rows() -> list[tuple[str, str, str]]:
    """Script, flag, and the line of the job that it becomes."""
    found = []
    for script, text in re.findall(r"^## `(\S+\.py)`(.*?)(?=^## )", PAGE, re.M | re.S):
        found += [(script, *row) for row in re.findall(r"^\| `(--[^`]+)` \| `([^`]+)` \|", text, re.M)]
    return found


@pytest.fixture
def planned(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], dict[str, Any]]:
    """The job that a command line would start, in a folder with the files that are named."""
    monkeypatch.chdir(tmp_path)
    for name in ("data", "flights", "models/conve/checkpoints"):
        (tmp_path / name).mkdir(parents=True)
    for name, text in FILES.items():
        (tmp_path / "data" / name).write_text(text)

    def plan(line: str) -> dict[str, Any]:
        name, *words = shlex.split(line)
        assert name == "kgops"
        capsys.readouterr()
        code = main([*words, "--dry-run"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return tomllib.loads(said.out)

    return plan


def test_every_script_has_its_commands_on_the_page() -> None:
    assert {shlex.split(old)[1] for old, _ in pairs()} == set(WORKLOADS)
    assert len(rows()) >= 15


@pytest.mark.parametrize(("old", "new"), pairs(), ids=[" ".join(new.split())[:60] for _, new in pairs()])
def test_the_name_is_all_that_changes_and_the_new_line_is_planned(
    planned: Callable[[str], dict[str, Any]], old: str, new: str
) -> None:
    python, script, *flags = shlex.split(old)
    assert python == "python"
    workload = WORKLOADS[script]
    assert shlex.split(new) == ["kgops", "run", workload, *flags]
    assert planned(new)["workload"] == workload


@pytest.mark.parametrize(("script", "flag", "line"), rows(), ids=[f"{s} {f}" for s, f, _ in rows()])
def test_a_flag_becomes_what_the_table_says(
    planned: Callable[[str], dict[str, Any]], script: str, flag: str, line: str
) -> None:
    workload = WORKLOADS[script]
    job = planned(f"kgops run {workload} {LEAST[script]} {flag}")
    ((name, value),) = tomllib.loads(line).items()
    found = job["levers"].get(name, job[workload].get(name))
    assert found == value
