"""Every command of every page is run as it stands there, one below the other, in a home of the page.

The pages with tests of their own are left out: README, TUTORIAL, MIGRATING, own-graph, ask-a-model, why, explanations.
"""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import dated_benchmarks
import pytest
from documented import ROOT, Desk, document_pages, in_sentences, page, typed_in
from driving import wait_for
from gpu_machine import GpuMachine
from nvml_standin import t4
from slurm_cluster import cluster, missing
from ssh_server import Lab, needs_ssh
from test_examples import FILES, put_before

from storage.database import open_writer

TESTED_ELSEWHERE = {
    "README.md",
    "ARCHITECTURE.md",  # names commands, and types none
    "docs/TUTORIAL.md",
    "docs/MIGRATING.md",
    *(f"docs/{name}.md" for name in ("explanations", "guides/own-graph", "guides/ask-a-model", "guides/why")),
}
# They open a terminal or a server, or look at data of another machine; test_examples_history.py opens them.
OPENS_SCREENS = {"kgops tui", "kgops serve", "kgops --hosts all", "kgops demo --tour"}
ASKED = "--run one --head usa --relation embassy"
TRACED = "--run one --test-triple usa embassy china"


@dataclass(frozen=True)
class Stage:
    """What is there when a page is read, and what is typed for a command with a placeholder or that takes long."""

    prepare: Callable[[Desk], None] = lambda desk: None
    typed: dict[str, str] = field(default_factory=dict)
    before: dict[str, Callable[[Desk], None]] = field(default_factory=dict)


def commands_of(name: str) -> list[str]:
    """Those in blocks first, then those in sentences."""
    lines = [typed.line for typed in typed_in(page(name), "sh|console")]
    more = [span for span in in_sentences(page(name)) if span not in lines and span not in OPENS_SCREENS]
    return [line for line in lines if line.startswith("kgops")] + more


def follow(desk: Desk, name: str, stage: Stage) -> None:
    stage.prepare(desk)
    shown = commands_of(name)
    assert {*stage.typed, *stage.before} <= set(shown), "not on the page any more"
    for line in shown:
        if line in stage.before:
            stage.before[line](desk)
        went = desk.type(stage.typed.get(line, line))
        # On a machine without a GPU, doctor says by its code what it found.
        assert went.code in ((0, 1) if line in ("kgops doctor", "kgops gpus") else (0,)), (line, went.err)


def has_scripts_and_a_gpu(desk: Desk) -> None:
    desk.more |= GpuMachine(desk.home.parent, t4()).environment
    for name, text in {**FILES, "eval.py": "print('mrr=0.5')\n"}.items():
        (desk.folder / name).write_text(text)


def has_a_failed_run(desk: Desk) -> None:
    assert desk.type("kgops exec -- sh -c 'exit 3'").code == 1


def has_a_trained_model(desk: Desk) -> None:
    """ConvE, as PyKEEN's own pipeline saves it."""
    small = "--embedding-dim 16 --num-epochs 1"
    desk.must(f"kgops train --engine pykeen --model ConvE --dataset nations {small}")
    shutil.copy(desk.run(1) / "results/pykeen/trained_model.pkl", desk.folder)


def has_runs_of_a_paper(desk: Desk) -> None:
    for seed in (1, 2):
        desk.must(f"{TRAINED} --seed {seed} --tag paper")


def has_runs_and_benchmarks(desk: Desk) -> None:
    has_runs_of_a_paper(desk)
    with closing(open_writer(desk.home / "kgops.db")) as conn:
        dated_benchmarks.add_all(conn)


def has_a_job(desk: Desk) -> None:
    (desk.folder / "job.toml").write_text(
        'workload = "train"\n[train]\ndataset = "nations"\nnum_epochs = 1\n[options]\nbatch_size = 128\n'
    )


def has_trained(label: str) -> Callable[[Desk], None]:
    def look(desk: Desk) -> None:
        wait_for(lambda: "epoch" in desk.type(f"kgops logs {label}").out, f"an epoch of {label}")

    return look


def has_what_commands_name(desk: Desk) -> None:
    has_runs_of_a_paper(desk)
    has_a_job(desk)
    has_scripts_and_a_gpu(desk)
    desk.more.clear()  # only the scripts
    desk.must("kgops data flights --make flights && kgops data drugs --make robokop")
    desk.console.running(int(desk.type("kgops exec --label long --detach -- python long.py").out))


def all_have_ended(desk: Desk) -> None:
    for number in range(1, 5):
        assert desk.console.ended(number).state == "succeeded"


TRAINED = "kgops train --dataset nations --num-epochs 1"
SWEEP = "kgops sweep umls --vary batch_size=256,512 --vary lr=0.001,0.003 --tag s1"
PAGES = {
    "docs/guides/will-it-fit.md": Stage(),
    "docs/guides/own-script.md": Stage(has_scripts_and_a_gpu, {"kgops exec": "kgops exec -- true"}),
    "docs/guides/pykeen-model.md": Stage(has_a_trained_model),
    "docs/guides/regression.md": Stage(
        typed={
            "kgops regress": "kgops regress --help",
            "kgops data flights": "kgops data flights --make more",
        }
    ),
    "docs/guides/kgx.md": Stage(typed={"kgops data kgx": "kgops data kgx --help"}),
    "docs/guides/outlive-ssh.md": Stage(
        has_a_failed_run,
        {"kgops delete 'state:failed older:7d'": "kgops delete 'state:failed older:0s' --yes"},
        {"kgops logs night --grep epoch": has_trained("night")},
    ),
    "docs/guides/sweep.md": Stage(
        has_a_job,
        {SWEEP: SWEEP.replace("umls", "job.toml"), "kgops sweep": "kgops sweep --help"},
        {"kgops compare tag:s1": all_have_ended},
    ),
    "docs/guides/export.md": Stage(
        has_runs_and_benchmarks,
        {"kgops import": "kgops export last --to json --output one.json && kgops import one.json"}
        | {"kgops show RUN": "kgops show last"},
    ),
    "docs/COMMANDS.md": Stage(
        has_what_commands_name,
        {
            "kgops run train": f"{TRAINED.replace('train', 'run train', 1)} --label one",
            "kgops train": TRAINED,
            "kgops predict": f"kgops predict {ASKED}",
            "kgops evaluate": "kgops evaluate --run one --test other.txt",
            "kgops explain": "kgops explain --run one --triple usa embassy china",
            "kgops tracin": f"kgops tracin {TRACED} --label traced",
            "kgops tracin … --validate 25": f"kgops tracin {TRACED} --validate 25",
            "kgops regress --config NAME --data-directory DIR": (
                "kgops regress --config colab_optimized --data-directory flights --num-epochs 1"
            ),
            "kgops exec -- COMMAND": "kgops exec -- true",
            "kgops sweep JOB --vary batch_size=256,512": "kgops sweep job.toml --vary batch_size=256,512",
            "kgops train … --memory-limit 4000": f"{TRAINED} --memory-limit 4000",
            "kgops train … --on slurm": f"{TRAINED} --on slurm --dry-run",
            "kgops suggest train …": "kgops suggest train --dataset nations",
            "kgops tag": "kgops tag one paper",
            "kgops note": "kgops note one 'the first'",
            "kgops show RUN": "kgops show one",
            "kgops logs RUN": "kgops logs one",
            "kgops influences RUN": "kgops influences traced",
            "kgops report RUN": "kgops report one --output one.html",
            "kgops export RUN… --to json": "kgops export one --to json --output one.json",
            "kgops import PATH…": "kgops import one.json",
            "kgops stop RUN": "kgops stop long",
            "kgops resume RUN": "kgops resume long --detach",
            "kgops delete RUN": "kgops delete traced --yes",
            "kgops pull lab1:17": "kgops pull --help",
            "kgops bench": "kgops bench show",
            "kgops feed": "kgops feed --json </dev/null",
        },
    ),
    "docs/how-it-works.md": Stage(),
    "docs/SECURITY.md": Stage(
        has_a_job,
        {
            "kgops run FILE.toml": "kgops run job.toml",
            "kgops logs --raw": "kgops logs last --raw",
            "kgops report": "kgops report last --output one.html",
        },
    ),
}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk.at(tmp_path / "place")
    yield made
    made.close()


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_of_a_guide_run_one_after_the_other(desk: Desk, name: str) -> None:
    follow(desk, name, PAGES[name])


BELOW = ("own-model", "servers", "slurm")


def test_every_page_with_commands_is_followed() -> None:
    followed = {*PAGES, *TESTED_ELSEWHERE, *(f"docs/guides/{name}.md" for name in BELOW)}
    assert {name for name in document_pages() if commands_of(name)} - followed == set()


@needs_ssh
def test_the_commands_of_the_guide_on_servers_run_over_ssh(lab: Lab) -> None:
    """The first names the host; the laboratory has named it, by an address that is there."""
    lab.add("lab1")
    put_before(lab.homes["lab1"], 17)
    named, *lines = commands_of("docs/guides/servers.md")
    assert named == "kgops hosts add lab1 ada@lab1.example.org"
    for line in lines:
        lab.must(*shlex.split(line)[1:])
    assert lab.console.show(1)["state"] == "cancelled"


@pytest.mark.skipif(bool(missing()), reason=f"needs Slurm: no {', '.join(missing())}")
def test_the_commands_of_the_guide_on_slurm_run_on_a_cluster(
    desk: Desk, tmp_path_factory: pytest.TempPathFactory
) -> None:
    train, trace = commands_of("docs/guides/slurm.md")
    with cluster(tmp_path_factory.mktemp("slurm"), 1, with_gpus=True) as one:
        desk.more |= one.environment
        for line in (f"{train} --num-epochs 1", trace):
            desk.must(line)


def test_a_model_that_is_added_as_the_guide_says_is_trained_explained_and_traced(desk: Desk) -> None:
    """In a copy of kgops."""
    place = desk.home.parent / "kgops-to-change"
    for package in ("kgops", "storage", "screens", "profiles"):
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    model, name = re.findall(r"^```python\n(.*?)^```", page("docs/guides/own-model.md"), re.M | re.S)
    with (place / "kgops/maths/models/vectors.py").open("a") as file:
        file.write(f"\n\n{model}")
    options = place / "kgops/workloads/train/options.py"
    table = "VECTOR_MODELS = {\n"
    options.write_text(options.read_text().replace(table, table + name))
    desk.more["PYTHONPATH"] = str(place)
    follow(desk, "docs/guides/own-model.md", Stage())
    shown = desk.console.show(1)
    assert shown["label"] == "mine" and shown["metric"]["test_mrr"] > 0.3
    assert desk.console.show(3)["state"] == "succeeded"
