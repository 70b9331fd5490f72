"""Every example of a help page is run as it is written, and what it promises is read; test_readme.py types README's.

A new example that stands in no table here fails: write down how it is checked.
"""

import json
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from documented import SCRIPTS, Desk, Went, commands, of_help
from records import add
from test_examples_history import IMPORTS, WITH_A_HISTORY, says

from kgops.maths.regress.made_flights import Sky, make_flights
from kgops.workloads.regress.sizes import Flights, flights_in
from storage import runs
from storage.database import open_writer

Check = Callable[[Desk, Went], None]
FILES = SCRIPTS | {"other.txt": "usa\tembassy\tchina\nuk\tngo\tusa\n"}


EXAMPLES = {line for _, command in commands() for line in of_help(command)}


def test_every_command_shows_an_example_of_itself() -> None:
    for words, command in commands():
        found = of_help(command)
        assert found, f"`{words} --help` has no example"
        shown = words.replace("kgops run ", "kgops ")
        assert any(line.startswith(shown) for line in found), f"{words}: {found}"


def test_every_example_is_known_here_and_nothing_else_is() -> None:
    shown = set(EXAMPLES)
    assert shown - KNOWN == set(), "examples that no table of this file says how to check"
    assert KNOWN - shown == set(), "nobody shows these any more"


# --- in an empty folder ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    desk = Desk.at(tmp_path_factory.mktemp("examples"))
    yield desk
    desk.close()


@pytest.fixture
def desk(everywhere: Desk, tmp_path: Path) -> Desk:
    """The home of all examples, and a folder of this one's."""
    everywhere.folder = tmp_path / "work"
    everywhere.folder.mkdir()
    for name, text in FILES.items():
        (everywhere.folder / name).write_text(text)
    return everywhere


def succeeds(**columns: object) -> Check:
    def check(desk: Desk, went: Went) -> None:
        (newest,) = desk.console("runs", "--limit", "1", "--json").json()
        run = desk.console.show(newest["id"])
        assert {"state": "succeeded", **columns}.items() <= run.items()
        assert went.written == frozenset()

    return check


def plans(subject: str) -> Check:
    def check(desk: Desk, went: Went) -> None:
        suggested, first, *_, last = went.out.strip().splitlines()
        assert suggested.startswith("Suggested for Tesla T4: ")
        assert re.match(rf"{subject} on Tesla T4 \([\d,]+ MiB\): ", first), first
        assert last.startswith(f"kgops {subject.split()[0]} ")
        assert went.written == frozenset()

    return check


def has_a_profile(desk: Desk, went: Went) -> None:
    assert went.written == {"mine.toml"}
    assert tomllib.loads((desk.folder / "mine.toml").read_text())["options"]["precision"] == "fp16"
    desk.must("kgops profiles check mine.toml")


def has_named_a_host(desk: Desk, went: Went) -> None:
    hosts = {host["name"]: host for host in json.loads(desk.type("kgops hosts --json").out)}
    assert hosts["lab1"]["address"] == "ada@lab1.example.org"


def has_forgotten_a_host(desk: Desk, went: Went) -> None:
    assert "lab1" not in [host["name"] for host in json.loads(desk.type("kgops hosts --json").out)]


def says_that_nothing_is_there(desk: Desk, went: Went) -> None:
    """test_examples_hosts.py has hosts that answer."""
    assert went.code == 1
    assert "Error: " in went.err
    assert "Hint: " in went.err


def has_flights(many: int, size: int) -> Check:
    def check(desk: Desk, went: Went) -> None:
        assert len(went.written) == many
        assert all(re.fullmatch(r"flights/flight_\d+\.(npz|h5)", name) for name in went.written)
        made = flights_in(desk.folder / "flights")
        assert isinstance(made, Flights)
        assert (made.height, made.width, set(made.frames.values())) == (size, size, {256})

    return check


def leaves(*names: str) -> Check:
    def check(desk: Desk, went: Went) -> None:
        assert set(names) <= went.written, went.written

    return check


def has_started_all(desk: Desk, went: Went) -> None:
    numbers = re.findall(r"^run (\d+): batch_size=\d+ learning_rate=[\d.]+$", went.out, re.M)
    asked = set()
    for number in numbers:
        job = tomllib.loads((desk.run(int(number)) / "job.toml").read_text())
        asked.add((job["options"]["batch_size"], job["train"]["learning_rate"]))
    assert asked == {(batch, rate) for batch in (256, 512) for rate in (0.001, 0.003)}
    desk.must(f"kgops stop --grace 1 {' '.join(numbers)}")


def compares_four(desk: Desk, went: Went) -> None:
    for batch in (256, 512):
        for precision in ("fp32", "bf16"):
            assert re.search(rf"^batch_size={batch} precision={precision} ", went.out, re.M), went.out


def judges_tracin(desk: Desk, went: Went) -> None:
    options, _, tables = went.out.partition("\nTRAINING GUIDE")
    assert options.startswith("WHICH OPTIONS PAY on ")
    assert re.search(r"^vectorised gradients .* [\d.]+× +[\d.]+× more +same scores +→ ", options, re.M), (
        options
    )
    assert re.search(r"^baseline, batch 32 .* MiB$", tables, re.M), tables
    assert went.written <= {".data/README.md"}  # of a folder that PyKEEN makes when it is imported


def has_flights_to_learn_from(desk: Desk) -> None:
    make_flights(desk.folder / "flights", 2, Sky(frames=10, size=8))


def has_a_job(desk: Desk) -> None:
    command = [sys.executable, "-I", "-S", "-c", "print('{batch_size}', '{precision}')"]
    (desk.folder / "job.toml").write_text(f'workload = "exec"\n[exec]\ncommand = {json.dumps(command)}\n')


AT_ONCE: dict[str, Check] = {
    # First, since it is run 1 that is traced.
    "kgops train --dataset nations --num-epochs 20": succeeds(id=1, workload="train"),
    "kgops tracin --run 1 --test-triple 'usa,embassy,china' --score fisher --top-k 10": succeeds(
        workload="tracin"
    ),
    "kgops suggest tracin --run 1 --gpu t4": plans("tracin .*"),
    "kgops predict --run 1 --head usa --relation embassy --top-k 5": succeeds(workload="predict"),
    "kgops suggest predict --run 1 --head usa --relation embassy --gpu t4": plans("predict .*"),
    "kgops evaluate --run 1 --test other.txt": succeeds(workload="evaluate"),
    "kgops suggest evaluate --run 1 --gpu t4": plans("evaluate .*"),
    "kgops explain --run 1 --triple usa embassy china": succeeds(workload="explain"),
    "kgops suggest explain --run 1 --triple usa embassy china --gpu t4": plans("explain .*"),
    "kgops exec -- python train.py": succeeds(workload="exec", attempts=1),
    "kgops run --again 1 --seed 1": succeeds(workload="train"),
    'kgops exec --on-oom batch_size=64,32,16 -- python train.py --batch-size "{batch_size}"': succeeds(
        attempts=2
    ),
    "kgops suggest train --dataset nations --gpu t4 --details": plans("train nations"),
    "kgops suggest train --dataset umls --gpu t4": plans("train umls"),
    "kgops suggest regress --config colab_optimized_full --gpu t4": plans("regress .*"),
    "kgops profiles show t4": says("^# kgops run --profile t4", '^precision = "fp16"'),
    "kgops profiles check t4": says("t4"),
    "kgops profiles new --from t4 mine.toml": has_a_profile,
    "kgops recipes show umls": says("^# kgops train --recipe umls", '^dataset = "umls"'),
    "kgops doctor": says("Python", "torch", "disk"),
    "kgops gpus --json": says(r"^[\[{]"),
    "kgops feed --json < /dev/null": says('"type":"hello","protocol":1', '"type":"picture"'),
    "kgops hosts": says(r"^HOST +ADDRESS", r"^lab1 +127\.0\.0\.1"),
    "kgops hosts add lab1 ada@lab1.example.org --kgops '~/kgops/.venv/bin/kgops'": has_named_a_host,
    "kgops pull lab2:17": says_that_nothing_is_there,
    "kgops show lab2:17": says_that_nothing_is_there,
    "kgops logs -n 50 lab2:17": says_that_nothing_is_there,
    "kgops report lab2:17 --output lab2-17.html": says_that_nothing_is_there,
    "kgops hosts remove lab1": has_forgotten_a_host,
    "kgops hosts check all": says("^lab1: "),
    "kgops data flights --make flights": has_flights(4, 32),
    "kgops data drugs --make robokop": leaves("robokop/nodes.tsv", "robokop/mechanisms.tsv"),
    "kgops data kgx robokop --make graph": leaves("graph/triples.txt", "graph/names.tsv"),
    "kgops data kgx robokop --make graph --predicate treats": leaves("graph/triples.txt"),
    "kgops data split graph --relation treats --by tail": leaves("graph/train.txt", "graph/test.txt"),
    "kgops data flights --make flights --flights 6 --size 64": has_flights(6, 64),
    "kgops regress --config colab_optimized --data-directory flights --num-epochs 20": succeeds(
        workload="regress"
    ),
    "kgops sweep kinships --vary batch_size=256,512 --vary learning_rate=0.001,0.003": has_started_all,
    "kgops bench matrix job.toml --vary batch_size=256,512 --vary precision=fp32,bf16": compares_four,
    "kgops bench claims --quick --only b": judges_tracin,
}
DRUGS, OTHER_HOST = "kgops data drugs --make robokop", "kgops hosts add lab2 127.0.0.1"
# What has been typed, or lies in the folder, before an example that begins so.
BEFORE: dict[str, str | Callable[[Desk], None]] = {
    "kgops regress": has_flights_to_learn_from,
    "kgops data kgx": DRUGS,
    "kgops data split": f"{DRUGS} && kgops data kgx robokop --make graph",
    "kgops hosts": "kgops hosts add lab1 127.0.0.1",
    **dict.fromkeys(("kgops pull", "kgops show", "kgops logs", "kgops report"), OTHER_HOST),
    "kgops bench matrix": has_a_job,
}


# `bench claims` trains for a minute; test_bench_claims.py runs what it does, smaller.
LONG = ("kgops bench claims",)


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=pytest.mark.long) if line.startswith(LONG) else line for line in AT_ONCE],
)
def test_example_does_what_it_says(desk: Desk, line: str) -> None:
    for begins, prepare in BEFORE.items():
        if line.startswith(begins):
            desk.must(prepare) if isinstance(prepare, str) else prepare(desk)
    went = desk.type(line)
    # A machine without a GPU or an SSH server is no reason to fail: these say by their codes what they found.
    finds = ("kgops doctor", "kgops gpus --json", "kgops hosts check all")
    assert went.code in ((0, 1) if line in finds or "lab2:17" in line else (0,)), went.err
    AT_ONCE[line](desk, went)


# --- on a run ------------------------------------------------------

# A run with this number has to be in this state; the last is what is to become of it.
ON_A_RUN = {
    "kgops stop 42 --grace 60": ("running", "cancelled", 1),
    "kgops resume 42 --detach": ("ended", "failed", 2),
}


@pytest.mark.parametrize("line", ON_A_RUN)
def test_example_does_what_it_says_to_a_run(tmp_path: Path, line: str) -> None:
    state, then, attempts = ON_A_RUN[line]
    desk = Desk.at(tmp_path / "place")
    put_run(desk, 42, state)
    desk.must(line)
    assert desk.console.ended(42).state == then
    assert desk.console.show(42)["attempts"] == attempts
    desk.close()


def put_before(home: Path, number: int) -> None:
    """So that the next run has this number."""
    conn = open_writer(home / "kgops.db")
    add(conn, number - 1, submitted_at=time.time())
    runs.end(conn, number - 1, state="cancelled", reason=None, exit_code=None, ended_at=time.time())
    conn.close()


def put_run(desk: Desk, number: int, state: str) -> None:
    """A run of this number that goes on, or has failed."""
    put_before(desk.home, number)
    if state == "running":
        assert desk.console.detach("python3", "-c", SCRIPTS["long.py"]) == number
        desk.console.running(number)
    else:
        assert desk.console("run", "exec", "--", "sh", "-c", "exit 3").code == 1


# --- what is run by a test of its own ---------------------------------------------------------------

KNOWN = {
    *WITH_A_HISTORY,
    *AT_ONCE,
    *ON_A_RUN,
    *IMPORTS,
    "kgops demo --tour",
    "kgops tui",
    "kgops serve --port 8123",
}


def test_what_a_demo_and_its_tour_say_to_do_next_works(tmp_path: Path) -> None:
    desk = Desk.at(tmp_path / "place")
    waiting = ["kgops demo"]
    while waiting:
        line = waiting.pop(0)
        went = desk.must(line)
        # Without a terminal the screens are not opened, and help is printed: no next steps.
        waiting += re.findall(r"^ {5}((?:KGOPS_HOME=\S+ )?python -m kgops.*)$", went.out, re.M)
    typed = [line.partition("kgops ")[2].partition(" ")[0] for line in desk.went]
    assert typed == [
        "demo",
        "",
        "show",
        "influences",
        "train",
        "train",
        "compare",
        "demo",
        "",
        "compare",
        "bench",
        "demo",
    ]
    assert not desk.home.with_name("kgops-tour").exists()
    desk.close()


def test_every_option_says_what_it_is_for() -> None:
    for words, command in commands():
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert option.help, f"{words} {option.opts[0]}"
