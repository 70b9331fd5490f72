"""What is built is what runs: the wheel, in an environment that has never seen this checkout."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from driving import patience

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel. Its dependencies are lent by the one the tests run in, which takes
    no copy of torch: behind its own packages on the path, so that nothing of kgops can come from there."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
        check=True,
        timeout=patience(),
    )
    site = next(folder.glob("lib/python*/site-packages"))
    lent = next(Path(entry) for entry in sys.path if (Path(entry) / "click").is_dir())
    (site / "lent.pth").write_text(f"{lent}\n")
    return folder


def test_the_wheel_holds_the_three_packages_and_the_profiles_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kgops", "screens", "storage"}
    assert {f"kgops/profiles/{path.name}" for path in (ROOT / "profiles").glob("*.toml")} <= set(names)
    folder = "kgops/workloads/graphs/counted"
    kept = {f"{folder}/{path.name}" for path in (ROOT / folder).glob("*.json")}
    assert kept and kept <= set(names)
    assert wheel.stat().st_size < 3 << 19


def test_the_installed_wheel_runs_a_command_to_its_end(environment: Path, tmp_path: Path) -> None:
    told = _kgops(environment, tmp_path, "run", "exec", "--json", "--", "echo", "hello")
    assert '"state": "succeeded"' in told.stdout
    python = [str(environment / "bin" / "python"), "-c", "import kgops; print(kgops.__file__)"]
    assert str(environment) in _call(python, tmp_path).stdout
    assert "hello" in _kgops(environment, tmp_path, "logs", "1").stdout


def test_the_installed_wheel_knows_its_profiles(environment: Path, tmp_path: Path) -> None:
    told = _kgops(environment, tmp_path, "run", "--profile", "t4", "--dry-run")
    assert 'precision = "fp16"' in told.stdout


def test_a_foreign_package_of_our_name_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "__init__.py").touch()
    told = subprocess.run(
        [sys.executable, "-P", "-c", "import kgops"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 1
    assert "kgops needs its own 'storage' package" in told.stderr


def _kgops(environment: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _call([str(environment / "bin" / "kgops"), *arguments], folder)


def _call(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "KGOPS_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=patience(),
    )
    assert done.returncode == 0, done.stderr
    return done
