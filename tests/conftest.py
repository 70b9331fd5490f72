"""Every test has a home of its own, and leaves no process behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import signal
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from driving import Console, Done, Terminal, end_all_of
from fuzzing import memory_within
from gpu_machine import GpuMachine
from hypothesis import HealthCheck, settings
from nvml_standin import Machine, StandIn, t4
from ssh_server import Lab, open_lab
from tracing import train_on_files

from kgops.jobs.files import read_table, write_json
from storage.database import open_writer

if TYPE_CHECKING:
    from known_runs import History

    from kgops.maths.graphs.triples import Graph
    from kgops.maths.regress.flights import Flight


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "write what tests/screens/test_screens_snapshots.py draws over what it compares with"
    parser.addoption("--update-screens", action="store_true", help=told)


# Whoever starts tests in the background has them ignore Ctrl-C, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# So it is with a hang-up under nohup. A handler is not inherited, and keeps the tests themselves alive as nohup should.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# On a busy machine one drawn value may take a second, and neither it nor the test is at fault.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# The compiler's helpers would be started with the home of one test, and ended with it under the next one's feet.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    told = (
        "takes minutes: `make test-long`, and below tests/cuda `make test-cuda`; left out unless -m is given"
    )
    config.addinivalue_line("markers", f"long: {told}")
    config.option.markexpr = config.option.markexpr or "not long"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs a GPU where torch, which knows, has none: `make gpu-check` then fails. Computes in one thread:
    matrices as small as those of tests only wait for each other on a second one, and kernels have a buffer for each."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    for_gpus = [item for item in items if item.get_closest_marker("gpu")]
    if not for_gpus:
        return
    import torch  # as their modules have: most sessions collect none of them

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old driver is torch's warning
        there = torch.cuda.is_available()
    for item in for_gpus:
        if not there:
            reason = f"requires a GPU, and torch {torch.__version__} sees none: `make gpu-check`"
            item.add_marker(pytest.mark.skip(reason=reason))
        elif item.get_closest_marker("triton") and find_spec("triton") is None:
            item.add_marker(pytest.mark.skip(reason="requires Triton, which compiles for GPUs"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that awaits."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
    )
    return True


@pytest.fixture(autouse=True)
def kgops_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No test ever sees the home of whoever runs it."""
    path = tmp_path_factory.mktemp("home") / "kgops"
    monkeypatch.setenv("KGOPS_HOME", str(path))
    yield path
    if path.exists():
        end_all_of(path)
        _keep_starts(path, tmp_path_factory)


def _starts(folders: pytest.TempPathFactory) -> Path:
    """What was measured of workers' starts in this session: a test in a new home would measure it again."""
    together = folders.getbasetemp()
    return (together.parent if "PYTEST_XDIST_WORKER" in os.environ else together) / "starts.json"


def _keep_starts(home: Path, folders: pytest.TempPathFactory) -> None:
    measured, kept = read_table(home / "starts.json"), read_table(_starts(folders))
    if not measured.keys() <= kept.keys():
        write_json(_starts(folders), kept | measured)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: the first opening of a database imports what migrates it."""
    path = tmp_path_factory.mktemp("template") / "kgops.db"
    open_writer(path).close()
    return path


@pytest.fixture
def home(kgops_home: Path, empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which kgops has been used before, with no run yet."""
    kgops_home.mkdir(mode=0o700)
    for folder in ("runs", "pending"):
        (kgops_home / folder).mkdir(mode=0o700)
    shutil.copy(empty_database, kgops_home / "kgops.db")
    (kgops_home / "kgops.db").chmod(0o600)
    if _starts(tmp_path_factory).exists():
        shutil.copy(_starts(tmp_path_factory), kgops_home / "starts.json")
    return kgops_home


@pytest.fixture
def conn(home: Path) -> Iterator[sqlite3.Connection]:
    opened = open_writer(home / "kgops.db")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def fuzz_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a module: they write one over the other."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture
def bounded() -> Iterator[None]:
    """For tests under fuzz: whatever is in a file, reading it takes no memory to speak of."""
    with memory_within(400):
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a small training on files, made once for all that trace it."""
    return train_on_files(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def nations() -> Graph:
    from kgops.maths.graphs.triples import read_pykeen_dataset  # loads torch, as the modules of its tests

    return read_pykeen_dataset("nations")


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[History]:
    """Of many runs, to be read only."""
    from known_runs import known_history

    yield from known_history(tmp_path_factory.mktemp("history") / "kgops.db", empty_database)


@pytest.fixture(scope="session")
def flights(tmp_path_factory: pytest.TempPathFactory) -> list[Flight]:
    from tiny_regression import made_flights  # loads torch, as the modules of its tests have

    return made_flights(tmp_path_factory.mktemp("flights"))


@pytest.fixture(scope="session")
def two_trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A home with two trainings, for all that only look at them: nothing is learned in the first."""
    folder = tmp_path_factory.mktemp("two-trainings")
    console = Console(folder / "kgops", folder)
    small = "--dataset nations --num-epochs 4 --embedding-dim 16 --output-channels 4 --validate-every 1"
    for flags in ("--batch-size 128 --learning-rate 0.00001", "--batch-size 64"):
        console.must("run", "train", *small.split(), *flags.split(), env={"OMP_NUM_THREADS": "1"})
    yield console
    console.close()


@pytest.fixture
def standin(tmp_path: Path) -> StandIn:
    """GPUs for the children of a test."""
    return StandIn(tmp_path)


@pytest.fixture
def on_t4(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables of commands that see one T4 with 14,909 MiB to use; their supervisors see it, too."""
    standin.show(Machine((t4(),)))
    variables = standin.variables()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


@pytest.fixture
def run_cli(home: Path, tmp_path: Path) -> Iterator[Console]:
    console = Console(home, tmp_path)
    yield console
    console.close()


@pytest.fixture
def kgops(run_cli: Console, machine: GpuMachine) -> Callable[..., Done]:
    """The command on the `machine` of a test."""
    return lambda *words: run_cli(*words, env=machine.environment)


@pytest.fixture
def lab(
    run_cli: Console, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    """Hosts behind a real SSH server, for `run_cli` and for this process."""
    with open_lab(tmp_path_factory.mktemp("lab"), run_cli) as lab:
        monkeypatch.setenv("PATH", lab.path)
        yield lab


@pytest.fixture
def open_terminal(run_cli: Console) -> Iterator[Callable[..., Terminal]]:
    """Starts `kgops ARGS`, or another command, on a terminal of its own."""
    opened: list[Terminal] = []

    def start(
        *args: str, argv: list[str] | None = None, environment: Mapping[str, str] | None = None
    ) -> Terminal:
        words, variables = argv or run_cli.argv(*args), environment or run_cli.environment()
        opened.append(Terminal(words, variables, run_cli.cwd))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()
