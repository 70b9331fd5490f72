"""The plan of New run beside that of `kgops suggest`: one plan, in the same words and values."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from disks import small_disk
from driving import Console
from screen_driving import open_screens
from test_screens_new_run import opened

from kgops.present.drafts import Draft
from kgops.present.what_if import Offers, WhatIf
from kgops.settings import Home
from screens import new_run_page
from screens.new_run_plan import command_of

NATIONS = {"data": "nations"}
DRAFTS = {
    "train on the CPU": Draft(fields=NATIONS, gpu="cpu"),
    "train on this machine": Draft(fields=NATIONS),
    "train on a T4": Draft(fields=NATIONS, gpu="t4"),
    "train on an A100": Draft(fields={"data": "umls"}, options={"batch_size": 512}, gpu="a100-40"),
    "a format that a CPU lacks": Draft(fields=NATIONS, options={"precision": "fp16"}, gpu="cpu"),
    "a rule": Draft(
        fields=NATIONS, options={"compile": "reduce-overhead", "gradient_checkpointing": True}, gpu="t4"
    ),
    "a model of PyKEEN": Draft(fields={**NATIONS, "model": "RotatE"}, gpu="t4"),
    "more than there is": Draft(fields={**NATIONS, "embedding_dim": "40000"}, gpu="t4"),
    "pipeline": Draft("pipeline", NATIONS, gpu="t4"),
    "pipeline on the CPU": Draft("pipeline", NATIONS, gpu="cpu"),
    "regress": Draft("regress", {"config": "colab_optimized"}, gpu="t4"),
    "regress on the CPU": Draft("regress", {"config": "colab_optimized"}, gpu="cpu"),
}
# The form offers them, and no worker of that job reports them.
NOT_IN_SUGGEST = {"grad_clip", "cuda_graphs", "tests_at_once"}


@pytest.mark.parametrize("name", DRAFTS)
def test_new_run_shows_each_option_as_suggest_does(run_cli: Console, tmp_path: Path, name: str) -> None:
    draft, home = DRAFTS[name], Home(run_cli.home)
    if draft.workload == "regress":
        np.savez(tmp_path / "morning.npz", frames=np.zeros((40, 16, 16), np.uint8))
        draft = draft.with_field("data_directory", str(tmp_path))
    answer = WhatIf(home).answer(draft)
    assert answer.trouble is None
    rows = new_run_page.rows(draft, Offers(), answer, new_run_page.WIDEST)
    here = cells(["".join(piece.text for piece in row.pieces) for row in rows], ("value", "why", "by"))
    there = of_suggest(run_cli, home, draft)
    assert set(here) - set(there) <= NOT_IN_SUGGEST
    shown = set(here) & set(there)
    assert {"precision", "batch_size", "gradient_checkpointing", "memory_cleanup"} <= shown
    for option in shown:
        value, why, by = here[option]
        assert (value, by) == there[option][:2], option
        assert there[option][2].startswith(why.rstrip("…")), option


def of_suggest(run_cli: Console, home: Home, draft: Draft) -> dict[str, tuple[str, ...]]:
    """Value, who chose it and why, of each option, from the page that the command of New run would have."""
    command = command_of(WhatIf(home).answer(draft), home)
    assert command is not None
    command.write(home)
    words = [word for word in shlex.split(command.text) if word not in ("kgops", "run", "suggest")]
    if "--gpu" not in words and draft.gpu is not None:  # the CPU
        words += ["--gpu", draft.gpu]
    page = run_cli("suggest", *words)
    return cells(page.out.splitlines(), ("VALUE", "BY", "WHY"))


def cells(lines: list[str], columns: tuple[str, str, str]) -> dict[str, tuple[str, ...]]:
    """What stands in those columns for each option."""
    at = next(i for i, line in enumerate(lines) if line.startswith("OPTION"))
    starts = [lines[at].index(column) for column in columns]
    found = {}
    for line in lines[at + 1 :]:
        if not line:
            break
        ends = (*starts[1:], None)
        found[line.split()[0]] = tuple(
            line[start:end].strip() for start, end in zip(starts, ends, strict=True)
        )
    return found


async def test_the_headline_says_that_a_disk_is_too_small(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "size=60m"):
        console = Console(tmp_path / "small" / "kgops", tmp_path)
        async with open_screens(console.home) as seen:
            await opened(seen)
            assert seen.row_of("PLAN").startswith("PLAN  does not fit on the disk, writes ")
            assert "to spare" not in seen.text
            await seen.until_shows("would write")
        planned = console("suggest", "train", "--dataset", "nations", "--num-epochs", "100")
        assert ": does not fit on the disk, writes " in planned.out.splitlines()[1]
        tried = console("run", "train", "--dataset", "nations", "--num-epochs", "100", "--dry-run")
        assert "# does not fit on the disk, writes " in tried.out and "fits now" not in tried.out


async def test_the_plan_follows_runs_that_others_start_and_stop(run_cli: Console) -> None:
    async with open_screens(run_cli.home, (160, 40)) as seen:
        await opened(seen)
        await seen.until_shows("PLAN  fits now")
        alone = run_cli.detach("sleep", "600", flags=("--exclusive",))
        await seen.until_shows(f"would wait now for run {alone}")
        assert run_cli("stop", str(alone)).code == 0
        await seen.until_shows("PLAN  fits now")
