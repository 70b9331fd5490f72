"""Builds the wheel, installs it where it has never been, and lets other people's programs read what kgops writes.

`python tests/clients.py` makes fresh environments in a temporary folder and prints a table: what was tried, with which
version, and what came of it; exit code 1 if anything failed. Packages come from wherever pip is set up to look. The one
environment with torch takes most of the minutes and some 2 GB; `--torch VERSION` tries another than the pinned one, and
`--no-torch` leaves out what needs it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from driving import Terminal
from nvml_standin import Machine, StandIn, compiler, h200, t4

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
# What commands and screens need: torch and PyKEEN are for workers alone.
CONSOLE = ("click", "nvidia-ml-py", "psutil", "pyyaml", "rich", "sqlite-utils", "textual>=8.2,<9")
TRAINED = ("run", "train", "--dataset", "nations", "--epochs", "2")

READ = """
import sqlite3, sys
import pandas, polars
folder, home = sys.argv[1:]
conn = sqlite3.connect(f"{home}/kgops.db")
(metrics,) = conn.execute("SELECT count(*) FROM metric").fetchone()
(mrr,) = conn.execute("SELECT value FROM metric WHERE name = 'test_mrr'").fetchone()
for name, read in (("pandas", pandas), ("polars", polars)):
    for kind, of in (("csv", read.read_csv), ("parquet", read.read_parquet)):
        table = of(f"{folder}/{kind}/metrics.{kind}")
        assert len(table) == metrics, (name, kind, len(table), metrics)
        values = dict(zip(table["name"], table["value"]))
        assert values["test_mrr"] == mrr, (name, kind, values)
print(f"pandas {pandas.__version__}, polars {polars.__version__}: {metrics} metrics, test_mrr {mrr:.4f} in each")
"""
CURVES = """
import sys
from pathlib import Path
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = {}
for path in Path(sys.argv[1]).rglob("events.out.tfevents.*"):
    events = EventAccumulator(str(path))
    events.Reload()
    found |= {tag: len(events.Scalars(tag)) for tag in events.Tags()["scalars"]}
assert any("loss" in tag for tag in found), found
print(f"{len(found)} curves, {sum(found.values())} points")
"""


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    went_well: bool
    told: str
    seconds: float

    def __str__(self) -> str:
        return f"{'ok' if self.went_well else 'FAILED':8}{self.seconds:6.0f} s  {self.what:44}  {self.told}"


class Clients:
    def __init__(self, base: Path, torch: str | None) -> None:
        self.base, self._torch, self.rows = base, torch, list[Row]()
        self._home = base / "home"
        self._wheel = base / "none"

    def attempt(self, what: str, do: Callable[[], str]) -> None:
        """A row for the table; what fails is told and the others go on."""
        begun = time.monotonic()
        try:
            told, went_well = do(), True
        except (subprocess.SubprocessError, AssertionError, OSError, ValueError) as error:
            said = f"{getattr(error, 'stdout', None) or ''} {getattr(error, 'stderr', None) or error}"
            told, went_well = " ".join(said.split())[-300:], False
        self.rows.append(Row(what, went_well, told, time.monotonic() - begun))
        print(self.rows[-1], flush=True)

    # --- the wheel ---

    def build(self) -> str:
        self._environment("tools", "build", "twine", "check-wheel-contents", "uv")
        self._call("tools", "python", "-m", "build", "--outdir", self.base / "dist", ROOT)
        (self._wheel,) = (self.base / "dist").glob("*.whl")
        size = self._wheel.stat().st_size
        assert size < 1_000_000, f"{size:,} bytes"
        return f"{self._wheel.name}, {size / 1000:.0f} kB"

    def check(self) -> str:
        told = self._call("tools", "check-wheel-contents", "--config", ROOT / "pyproject.toml", self._wheel)
        packed = sorted((self.base / "dist").iterdir())
        said = self._call("tools", "twine", "check", "--strict", *packed)
        assert said.count("PASSED") == len(packed), said
        return f"{told.splitlines()[-1].rpartition(': ')[2]}; twine: {said.count('PASSED')} passed"

    # --- installing it ---

    def install_whole(self) -> str:
        """As a person would, with pip and everything it depends on."""
        pinned = [f"torch=={self._torch}"] if self._torch else ["--constraint", str(ROOT / "constraints.txt")]
        self._environment("whole", f"{self._wheel}[parquet]", *pinned)
        told = self._kgops("whole", *TRAINED).strip().splitlines()[-1]
        versions = self._call(
            "whole", "python", "-c", "import torch, sys; print(torch.__version__, sys.version.split()[0])"
        )
        return f"torch, Python {versions.strip()}: {told}"

    def install_with_uv(self, python: str) -> str:
        """Commands and screens: a worker's torch is left out."""
        name = f"uv-{python}"
        uv = str(self._bin("tools") / "uv")
        run([uv, "venv", "--quiet", "--python", interpreter(python), str(self.base / name)])
        into = ["--python", str(self._bin(name) / "python")]
        run([uv, "pip", "install", "--quiet", *into, *CONSOLE])
        run([uv, "pip", "install", "--quiet", *into, "--no-deps", str(self._wheel)])
        return self._is_usable(name)

    def install_as_a_tool(self) -> str:
        """In an environment of its own with only the command on the path, as pipx and `uv tool` do."""
        bin_, tools = self.base / "tool-bin", self.base / "tool-envs"
        environment = {"UV_TOOL_DIR": str(tools), "UV_TOOL_BIN_DIR": str(bin_)}
        uv = str(self._bin("tools") / "uv")
        listed = self.base / "no-torch.txt"
        listed.write_text("torch ; python_version < '3'\npykeen ; python_version < '3'\n")
        given = ["--quiet", "--overrides", str(listed)]
        run([uv, "tool", "install", *given, str(self._wheel)], environment)
        (self.base / "tool").mkdir()
        (self.base / "tool" / "bin").symlink_to(bin_)
        return self._is_usable("tool")

    def _is_usable(self, name: str) -> str:
        version = self._kgops(name, "--version").strip()
        assert "fp16" in self._kgops(name, "profiles", "show", "t4"), "no profiles in the wheel"
        recipe = self._kgops(name, "run", "train", "--recipe", "kinships", "--dry-run")
        assert "kinships" in recipe, recipe
        done = self._kgops(name, "run", "exec", "--json", "--", "true")
        assert '"succeeded"' in done, done
        self._screens_open(name)
        return f"{version}: profiles, a recipe, a run, the screens"

    def _screens_open(self, name: str) -> None:
        terminal = Terminal([str(self._bin(name) / "kgops"), "tui"], self._variables(name), self.base)
        try:
            terminal.wait_for_text(b"RECENT")  # painted with our own stylesheet, with the run before
            terminal.type(b"q")
            assert terminal.wait() == 0, terminal.seen[-500:]
        finally:
            terminal.close()

    # --- other people's programs ---

    def export(self) -> str:
        for kind in ("csv", "parquet", "tensorboard"):
            self._kgops("whole", "export", "1", "--to", kind, "--output", self.base / "exports" / kind)
        return "csv, parquet, tensorboard"

    def read_tables(self) -> str:
        self._environment("tables", "pandas", "polars", "pyarrow")
        home = self._home_of("whole")
        return self._call("tables", "python", "-c", READ, self.base / "exports", home).strip()

    def read_curves(self) -> str:
        self._environment("curves", "tensorboard", "setuptools<81")
        return self._call("curves", "python", "-c", CURVES, self.base / "exports" / "tensorboard").strip()

    def read_database(self) -> str:
        self._environment("datasette", "datasette", "setuptools<81")
        database = self._home_of("whole") / "kgops.db"
        asked = "/kgops/run_summary.json?_shape=array"
        (row,) = json.loads(self._call("datasette", "datasette", "--get", asked, database))
        assert row["state"] == "succeeded", row
        return f"run_summary has {len(row)} columns of run {row['id']}"

    def see_the_same_gpus(self) -> str:
        """nvitop and gpustat read the NVML that kgops reads."""
        if compiler() is None:
            return "left out: no C compiler for the NVML stand-in"
        self._environment("gpus", "gpustat", "nvitop", "setuptools<81")
        standin = StandIn(self.base)
        standin.show(Machine((t4(used_mib=2048), h200(used_mib=70_000)), driver="550.54.15", cuda=12040))
        more = standin.environment()
        name = f"uv-{PYTHONS[0]}"
        gpus = json.loads(self._kgops(name, "gpus", "--json", more=more))["gpu"]
        ours = [(gpu["name"], gpu["memory_used_mib"]) for gpu in gpus]
        told = json.loads(self._call("gpus", "gpustat", "--json", more=more))
        theirs = [(gpu["name"], gpu["memory.used"]) for gpu in told["gpus"]]
        assert ours == theirs, (ours, theirs)
        shown = self._call("gpus", "nvitop", "--once", "--ascii", more={**more, "COLUMNS": "120"})
        for name, used in ours:
            assert f"{used}MiB /" in shown or f"{used / 1024:.2f}GiB /" in shown, (name, used, shown)
        return ", ".join(f"{name} {used:,} MiB" for name, used in ours)

    # --- calling ---

    def _environment(self, name: str, *packages: str | Path) -> None:
        run([sys.executable, "-m", "venv", str(self.base / name)])
        self._call(
            name, "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages
        )

    def _kgops(self, name: str, *words: str | Path, more: dict[str, str] | None = None) -> str:
        return self._call(name, "kgops", *words, more=more)

    def _call(self, name: str, program: str, *words: str | Path, more: dict[str, str] | None = None) -> str:
        argv = [str(self._bin(name) / program), *map(str, words)]
        return run(argv, {**self._variables(name), **(more or {})}, self.base)

    def _variables(self, name: str) -> dict[str, str]:
        """A home nobody has used, and nothing of the environment this was started from but how pip is set up."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if key.startswith(("PIP_", "UV_", "SSL_", "LC_", "OMP_"))
            or key.lower().endswith("_proxy")
            or key == "LANG"
        }
        path = os.pathsep.join([str(self._bin(name)), os.environ["PATH"]])
        return {**kept, "PATH": path, "HOME": str(self._home), "KGOPS_HOME": str(self._home_of(name))}

    def _home_of(self, name: str) -> Path:
        return self._home / name

    def _bin(self, name: str) -> Path:
        return self.base / name / "bin"


def interpreter(version: str) -> str:
    """Of that Python: on the path, or where pyenv keeps it; uv may fetch it where neither has it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    for found in (shutil.which(f"python{version}"), *map(str, pyenv.glob(f"versions/{version}*/bin/python"))):
        if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            return found
    return version


def run(argv: Sequence[str], more: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """What it printed; CalledProcessError where it failed."""
    environment = {**os.environ, **(more or {})}
    return subprocess.run(
        argv, env=environment, cwd=cwd, check=True, capture_output=True, text=True, timeout=1800
    ).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="a version of torch; default: the pinned one")
    parser.add_argument("--no-torch", action="store_true", help="leave out what needs it")
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="kgops-clients-"))
    (base / "home").mkdir()
    clients = Clients(base, given.torch)
    attempts: list[tuple[str, Callable[[], str]]] = [
        ("python -m build", clients.build),
        ("check-wheel-contents, twine check", clients.check),
        *((f"uv pip install, Python {one}", lambda one=one: clients.install_with_uv(one)) for one in PYTHONS),
        ("uv tool install", clients.install_as_a_tool),
        ("nvitop and gpustat beside kgops gpus", clients.see_the_same_gpus),
    ]
    if not given.no_torch:
        attempts += [
            ("pip install, and a training", clients.install_whole),
            ("kgops export", clients.export),
            ("pandas and polars read CSV and Parquet", clients.read_tables),
            ("TensorBoard reads its events", clients.read_curves),
            ("datasette reads the database", clients.read_database),
        ]
    try:
        for what, do in attempts:
            clients.attempt(what, do)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    return 0 if all(row.went_well for row in clients.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
