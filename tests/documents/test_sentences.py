"""Commands within sentences of README and docs/ are really run, in one home, and what they promise is read.

Those that stand for a whole kind of command (`kgops run`), and those that need more than a home, are held elsewhere:
each names the test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from documented import ROOT, Desk, Went, in_sentences, page

# What is typed for a span, {} being the span itself, what its output has, and which files it leaves.
_SMALL = "--num-epochs 1 --embedding-dim 16 --embedding-height 4 --embedding-width 4 --output-channels 4"
_SLEEP = "n=$(kgops run exec --detach -- sleep 600)"
RUN: dict[str, tuple[str, str]] = {
    "kgops --help": ("{}", r"(?m)^  train "),
    "kgops train": (f"{{}} --dataset nations {_SMALL}", r"run \d+ succeeded"),
    "kgops train --recipe kinships": ("{} --dry-run", r"kinships"),
    "kgops export tag:paper --to csv": ("kgops tag 1 paper && {} --output tagged", r"tagged"),
    "kgops run --again last": ("kgops run --again 1", r"run \d+ succeeded"),
    "kgops run train": (f"{{}} --dataset nations {_SMALL}", r"run 1 succeeded"),
    "kgops run tracin --run 1": ("{} --test-triple usa embassy china", r"run 2 succeeded"),
    "kgops run predict --run 1 --head usa --relation embassy": ("{}", r"usa · embassy · \?"),
    "kgops run explain --run 1 --triple usa embassy china": ("{}", r"usa · embassy · china"),
    "kgops run exec -- COMMAND": ("kgops run exec -- echo hello", r"hello"),
    "kgops run tracin --run 42": ("kgops run tracin --run 1 --test-triple usa embassy china", r"succeeded"),
    "kgops run tracin --score": (
        "{} fisher --run 1 --test-triple usa embassy china && kgops show last",
        r"; score fisher, ",
    ),
    "kgops run explain": ("{} --run 1 --triple usa embassy china", r"usa · embassy · china"),
    "kgops run - --detach": ("kgops run - --detach < job.toml", r"(?m)^\d+$"),
    "kgops run FILE.toml": ("kgops run job.toml", r"succeeded"),
    "kgops run tracin … --devices all": (
        "kgops run tracin --run 1 --test-triple usa embassy china --devices all",
        r"succeeded",
    ),
    "kgops run … --memory-limit 4000": (
        f"kgops run train --dataset nations {_SMALL} --memory-limit 4000",
        r"succeeded",
    ),
    "kgops run sweep JOB --vary batch_size=256,512": (
        "kgops run sweep job.toml --vary batch_size=256,512",
        r"256[\s\S]*512",
    ),
    "kgops data flights --make DIR": ("kgops data flights --make flights", r"flights"),
    "kgops doctor": ("{}", r"(?i)python"),
    "kgops suggest train …": ("kgops suggest train --dataset nations", r"\nkgops run train .*nations"),
    "kgops suggest tracin": ("{} --run 1 --test-triple usa embassy china", r"\nkgops run tracin "),
    "kgops runs 'mrr>0.3 tag:paper since:7d'": ("kgops tag 1 paper && {}", r"(?m)^RUN|no run"),
    "kgops tag": ("{} 1 paper", r"paper"),
    "kgops note": ("{} 1 'as in the paper' && {} 1", r"as in the paper"),
    "kgops gpus": ("{} || true", r"(?i)gpu|driver"),
    "kgops recipes": ("{}", r"umls"),
    "kgops recipes show umls": ("{}", r"(?m)^# kgops run train --recipe umls"),
    "kgops hosts": ("kgops hosts add lab1 127.0.0.1 && {} && kgops hosts remove lab1", r"lab1 +127\.0\.0\.1"),
    "kgops show RUN": ("kgops show 1", r"^run 1 · train"),
    "kgops show": ("{} last", r"^run \d+ · "),
    "kgops logs RUN": ("kgops logs 1", r"optimizer kernel: fused"),
    "kgops logs": ("{} last", r"\S"),
    "kgops logs --raw": ("kgops logs 1 --raw", r"optimizer kernel: fused"),
    "kgops logs 42": ("kgops logs 1", r"mixed precision: "),
    "kgops logs 42 --grep 'mixed precision'": (
        "kgops logs 1 --grep 'mixed precision'",
        r"^mixed precision: ",
    ),
    "kgops influences RUN": ("kgops influences 2", r"SCORE +HEAD +RELATION +TAIL"),
    "kgops compare": ("{} 1 2", r"\b1\b.*\b2\b"),
    "kgops compare 1 2": ("{}", r"\b1\b.*\b2\b"),
    "kgops report": ("{} 1 --output again.html", r"again.html"),
    "kgops report RUN": ("kgops report 1 --output page.html", r"page.html"),
    "kgops export RUN… --to json": ("kgops export 1 2 --to json --output runs.json", r"runs.json"),
    "kgops import PATH…": ("KGOPS_HOME=$PWD/other kgops import runs.json", r"1"),
    "kgops import": ("KGOPS_HOME=$PWD/third kgops import runs.json", r"1"),
    "kgops stop RUN": (f"{_SLEEP} && kgops stop $n", r"cancelled"),
    "kgops stop": (f"{_SLEEP} && {{}} $n", r"cancelled"),
    "kgops resume RUN": (
        f"{_SLEEP} && kgops stop $n && kgops resume $n --detach && kgops stop $n",
        r"cancelled[\s\S]*cancelled",
    ),
    "kgops resume": (
        f"{_SLEEP} && kgops stop $n && {{}} $n --detach && kgops stop $n --grace 1",
        r"cancelled",
    ),
    "kgops delete RUN": (f"{_SLEEP} && kgops stop $n && kgops delete $n --yes", r"deleted"),
    "kgops profiles": ("{}", r"(?m)^t4\b"),
    "kgops bench": ("{} show claims", r"claim"),
    "kgops run": ("kgops run job.toml", r"succeeded"),
    "kgops demo": ("{}", r"What to do next"),
}
ELSEWHERE = {
    "kgops demo --tour": "tests/tour/test_tour.py",
    "kgops tui": "tests/screens/test_screens_terminal.py",
    "kgops serve": "tests/cli/test_serve.py",
    "kgops run --profile t4": "tests/documents/test_readme.py",
    "kgops run regress --config NAME --data-directory DIR": "tests/documents/test_examples.py",
    "kgops run … --on slurm --partition gpu --time 04:00:00 --gres gpu:1": "tests/cluster",
    "kgops hosts add lab1 user@host": "tests/hosts/test_hosts_commands.py",
    "kgops --hosts all": "tests/screens/test_screens_hosts.py",
    "kgops gpus --hosts all": "tests/hosts/test_hosts_commands.py",
    "kgops runs --hosts lab1,lab2": "tests/hosts/test_hosts_commands.py",
    "kgops hosts check": "tests/hosts/test_hosts_commands.py",
    "kgops feed": "tests/hosts/test_hosts_watch.py",
    "kgops run train … --host lab1": "tests/hosts/test_run_on_host.py",
    "kgops stop lab1:17": "tests/hosts/test_run_on_host.py",
    "kgops pull lab1:17": "tests/hosts/test_pull.py",
    "kgops run …": "tests/documents/test_migrating.py",
    "kgops import results/robokop": "tests/documents/test_examples_history.py",
}


def toml_of(flags: str) -> str:
    words = flags.replace("--", "").replace("-", "_").split()
    return "".join(f"{name} = {value}\n" for name, value in zip(words[::2], words[1::2], strict=True))


def spans() -> list[str]:
    docs = (f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("[A-Z]*.md")))
    names = ("README.md", "ARCHITECTURE.md", *docs)
    return [
        span
        for span in dict.fromkeys(span for name in names for span in in_sentences(page(name)))
        if len(span.split()) > 1
    ]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk.at(tmp_path_factory.mktemp("sentences"))
    (desk.folder / "job.toml").write_text(
        f'workload = "train"\n[train]\ndataset = "nations"\n{toml_of(_SMALL)}'
    )
    yield desk
    desk.close()


def typed(desk: Desk, span: str) -> Went:
    """Behind the trainings and the export that others go on from."""
    first = ("kgops run train", "kgops run tracin --run 1", "kgops export RUN… --to json")
    for each in [*first[: 3 if "import" in span else 2], span]:
        line = RUN[each][0].replace("{}", each)
        if line not in desk.went:
            desk.type(line)
    return desk.went[RUN[span][0].replace("{}", span)]


def test_every_command_of_a_sentence_is_run_here_or_by_a_test_that_is_named() -> None:
    assert set(spans()) == set(RUN) | set(ELSEWHERE)
    for span, name in ELSEWHERE.items():
        files = sorted((ROOT / name).glob("test_*.py")) if (ROOT / name).is_dir() else [ROOT / name]
        text = "".join(file.read_text() for file in files)
        for word in [one for one in span.split()[1:3] if one.islower() and one.isalpha()]:
            assert word in text, f"{name} runs nothing of {span}"


@pytest.mark.parametrize("span", RUN)
def test_a_command_of_a_sentence_does_what_it_says(desk: Desk, span: str) -> None:
    went = typed(desk, span)
    assert went.code == 0, went.err
    assert re.search(RUN[span][1], went.err + went.out), went.err + went.out


def test_what_these_commands_leave_can_be_read(desk: Desk) -> None:
    for span in ("kgops report RUN", "kgops export RUN… --to json", "kgops data flights --make DIR"):
        typed(desk, span)
    exported = json.loads((desk.folder / "runs.json").read_text())
    assert [run["run"]["id"] for run in exported["runs"]] == [1, 2]
    assert "test MRR" in (desk.folder / "page.html").read_text()
    assert any(Path(desk.folder / "flights").iterdir())
