"""Makes an environment in which torch's CUDA build runs without a GPU: `build_standin.py VENV`.

VENV gets what constraints.txt pins, with the CUDA wheel of torch. In place of NVIDIA's libraries, 3 GB that are not
downloaded, it gets what the sources beside this file make. What torch calls and the sources do not answer is found in
torch's own list of undefined symbols, and answered with the library's "not supported". Nothing here is a GPU: see
standin.h for what is real and what is not.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
# Of CUDA 13.0, whose runtime torch 2.13 links to; nvml.h has been the same in what is used since.
HEADERS = ("nvidia-cuda-runtime==13.0.*", "nvidia-cuda-crt==13.0.*", "nvidia-nvml-dev==13.*")
RUNTIME = ("gpus.c", "memory.c", "streams.c", "kernels.c")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")  # a call may ignore what it is given

# How the symbols of a library begin, which library that is, and the number with which it says "not supported".
FAMILIES = {
    "cusparseLt": ("cusparseLt", 10),
    "cusparse": ("cusparse", 10),
    "cusolver": ("cusolver", 16),
    "cublasLt": ("cublasLt", 15),
    "cublas": ("cublas", 15),
    "cudnn": ("cudnn", 3000),
    "cufft": ("cufft", 16),
    "curand": ("curand", 101),
    "nvrtc": ("nvrtc", 11),
    "cupti": ("cupti", 27),
    "nccl": ("nccl", 3),
    "nvshmem": ("nvshmem_host", 1),
    "cuFile": ("cufile", 5022),
    "cuda": ("cudart", 801),
    "cu": ("cuda", 801),
}
_FAMILY = re.compile(rf"_*({'|'.join(FAMILIES)})(?=[A-Z_a-z])")


@dataclass(frozen=True)
class Symbol:
    name: str
    version: str  # of the symbol, as the linker has it; "" without


def main(target: Path) -> None:
    packages = install(target)
    include = [
        f"-I{path.parent}"
        for name in ("cuda_runtime_api.h", "nvml.h")
        for path in target.glob(f"headers/**/{name}")
    ]
    _compile("-fsyntax-only", "-Wno-enum-compare", *include, str(HERE / "nvml_layout.c"))
    libraries = build(packages, include)
    shutil.copy(HERE / "cuda_values.py", packages)
    (packages / "tests.pth").write_text(f"{PROJECT / 'tests'}\n")
    # Only where there are GPUs: each process of the environment reads this file at its start.
    there = "'KGOPS_NVML_STANDIN' in os.environ"
    (packages / "cuda_values.pth").write_text(f"import os; {there} and __import__('cuda_values')\n")
    print(f"{len(libraries)} libraries in place of NVIDIA's, in {target}")


def install(target: Path) -> Path:
    packages = _packages_of(target)
    if not (target / "bin" / "python").exists():
        venv.create(target, with_pip=True)
    # Without what a package asks for: torch asks for NVIDIA's libraries. constraints.txt has all of it.
    options = "--disable-pip-version-check install --quiet --no-deps"
    pip = [str(target / "bin" / "python"), "-m", "pip", *options.split()]
    constraints = (PROJECT / "constraints.txt").read_text()
    pinned = re.search(r"^torch==(\S+)", constraints, re.MULTILINE)
    assert pinned
    others = [line for line in constraints.splitlines() if line[:1].isalnum() and line != pinned[0]]
    subprocess.run([*pip, *others], check=True)
    subprocess.run([*pip, "--editable", str(PROJECT)], check=True)
    if not (packages / "torch" / "lib" / "libtorch_cuda.so").exists():
        # Three signs: the version without a suffix, which a build for CPUs would have.
        subprocess.run([*pip, "--no-cache-dir", "--force-reinstall", f"torch==={pinned[1]}"], check=True)
    if not (target / "triton").exists():
        # Not where torch finds it: kernels that only are compiled, and not run, serve one test alone.
        wanted = (packages / f"torch-{pinned[1]}.dist-info" / "METADATA").read_text(encoding="utf-8")
        triton = re.search(r"^Requires-Dist: (triton==[^ ;]+)", wanted, re.MULTILINE)
        assert triton
        subprocess.run([*pip, "--target", str(target / "triton"), triton[1]], check=True)
    if not (target / "headers").exists():
        subprocess.run([*pip, "--target", str(target / "headers"), *HEADERS], check=True)
    return packages


def build(packages: Path, include: list[str]) -> list[str]:
    lib = packages / "torch" / "lib"
    linked = _linked_libraries(lib)
    wanted = _wanted_symbols(lib)
    folder = _folder_torch_looks_in(packages, lib)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = _versions(packages, Path(include[0].removeprefix("-I")))
    written: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        # The runtime first: the others call it, and the driver's own calls are written there.
        for library in ["cudart", *sorted(set(linked) - {"cudart"})]:
            objects = _objects(library, work, [*include, *numbers])
            have = _defined(objects)
            if library == "cudart":
                written = have
            elif library == "cuda":
                have = written
            missing = sorted(one.name for one in wanted[library] if one.name not in have)
            stubs = work / f"{library}-stubs.c"
            stubs.write_text(_stubs(missing))
            versions = work / f"{library}.map"
            named = sorted({one.version for one in wanted[library]} - {""})
            versions.write_text("".join(f"{one} {{ global: *; }};\n" for one in named) or "{ global: *; };\n")
            made = folder / linked[library]
            made.unlink(missing_ok=True)
            beside = [] if library == "cudart" else ["-Wl,--no-as-needed", str(folder / linked["cudart"])]
            _compile("-shared", *map(str, [*objects, stubs]), f"-Wl,-soname,{linked[library]}", "-Wl,-rpath,$ORIGIN",
                     f"-Wl,--version-script={versions}", *beside, "-ldl", "-lpthread", "-o", str(made))  # fmt: skip
    return sorted(linked)


def _objects(library: str, work: Path, flags: list[str]) -> list[Path]:
    sources = {"cudart": RUNTIME, "cuda": (), "nccl": ()}.get(library, ("libraries.c",))
    made = []
    for source in sources:
        out = work / f"{library}-{source}.o"
        _compile("-c", *WARNINGS, f"-DIN_{library}", *flags, str(HERE / source), "-o", str(out))
        made.append(out)
    return made


def _stubs(missing: list[str]) -> str:
    lines = ["extern void standin_note(const char *) __attribute__((weak));"]
    for name in missing:
        answer = FAMILIES[_family(name)][1]
        lines.append(
            f'int {name}(void) {{ if (standin_note) standin_note("not emulated: {name}"); return {answer}; }}'
        )
    return "\n".join(lines) + "\n"


def _linked_libraries(lib: Path) -> dict[str, str]:
    """cublas → libcublas.so.13, …, and the driver, which torch opens by name."""
    found = {"cuda": "libcuda.so.1"}
    for path in lib.glob("lib*.so"):
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", _run("readelf", "-d", str(path))):
            library = re.match(r"lib(cu\w+|nv\w+|nccl)\.so\.\d+$", name)
            if library:
                found[library[1]] = name
    return found


def _wanted_symbols(lib: Path) -> dict[str, set[Symbol]]:
    wanted: dict[str, set[Symbol]] = defaultdict(set)
    for path in lib.glob("lib*.so"):
        for line in _run("nm", "-D", "--undefined-only", str(path)).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if not name.startswith("_ZN") and _FAMILY.match(name):
                wanted[FAMILIES[_family(name)][0]].add(Symbol(name, version.lstrip("@")))
    return wanted


def _family(symbol: str) -> str:
    found = _FAMILY.match(symbol)
    assert found
    return found[1]


def _folder_torch_looks_in(packages: Path, lib: Path) -> Path:
    found = re.search(r"\(R(?:UN)?PATH\).*\[(.*)\]", _run("readelf", "-d", str(lib / "libtorch_cuda.so")))
    assert found
    folders = [one.replace("$ORIGIN", str(lib)) for one in found[1].split(":") if "nvidia" in one]
    return Path(folders[-1]).resolve()


def _versions(packages: Path, include: Path) -> list[str]:
    """The versions torch was built with, as the libraries number them."""
    told = next(packages.glob("torch-*.dist-info")).joinpath("METADATA").read_text()
    runtime = re.search(r"#define CUDART_VERSION\s+(\d+)", (include / "cuda_runtime_api.h").read_text())
    assert runtime
    numbers = [f"-DCUDART={runtime[1]}"]
    found = re.search(r"nvidia-cudnn-cu\d+\s*\(?==(\d+)\.(\d+)\.(\d+)", told)
    assert found
    numbers.append(f"-DCUDNN={int(found[1]) * 10000 + int(found[2]) * 100 + int(found[3])}")
    return numbers


def _defined(objects: list[Path]) -> set[str]:
    return {
        line.split()[-1] for path in objects for line in _run("nm", "--defined-only", str(path)).splitlines()
    }


def _packages_of(environment: Path) -> Path:
    return Path(
        sysconfig.get_path("purelib", "venv", vars={"base": str(environment), "platbase": str(environment)})
    )


def _compile(*words: str) -> None:
    _run("cc", "-std=gnu11", "-O1", "-g", "-fPIC", *words)


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
