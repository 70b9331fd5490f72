"""Whatever stands in a job, profile, configuration, axis, filter, event or request to Slurm: understood, or refused.

`KGOPS_FUZZ=50 python -m pytest tests/hostile/test_fuzz_text.py --timeout 0` tries 50 times as many.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from fuzzing import ODD, PLAIN, damaged, examples, refused_or
from hypothesis import example, given
from hypothesis import strategies as st

from kgops.cluster.script import sbatch_options, script
from kgops.experiments.variants import read_axis, variants
from kgops.jobs import events, toml
from kgops.jobs.job import Job
from kgops.jobs.option import word_of
from kgops.planning import profiles
from kgops.workloads import configurations
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.job_files import read_job, read_job_file
from kgops.workloads.registry import WORKLOADS
from kgops.workloads.train import recipes
from storage import conditions, filters

pytestmark = pytest.mark.usefixtures("bounded")

BASES: dict[str, dict[str, Any]] = {
    "exec": {"command": ["train.py", "--batch", "{n}"], "on_oom": {"n": [64, 32]}},
    "train": {"dataset": "umls"},
    "tracin": {"dataset": "umls", "checkpoint_dir": "kept", "test_triple": "a,b,c"},
    "regress": {"data_directory": "flights"},
    "pipeline": {"train": {"dataset": "umls"}, "tracin": {"top_k": 5}},
}
VALUES = ODD | PLAIN | st.integers(1, 300) | st.floats(0, 1)


def read_and_told(path: Path, content: bytes, read: Any) -> Any:
    path.write_bytes(content)
    return refused_or(lambda: read(path), str(path))


# --- jobs -----------------------------------------------------------------------------------------


@st.composite
def changed_jobs(draw: st.DrawFn) -> dict[str, Any]:
    """A job that is right, but for up to three values anywhere in it."""
    name = draw(st.sampled_from(sorted(BASES)))
    table: dict[str, Any] = {"workload": name, name: dict(BASES[name])}
    for _ in range(draw(st.integers(0, 3))):
        names = {
            name: [key.name for key in WORKLOADS[name].settings],
            "options": list(OPTIONS),
            "gpu": ["gpu", "memory_mib", "exclusive"],
            "limits": ["attempts", "grace_s", "log_mib", "memory_mib", "allow_approximate"],
            "on": ["where", "partition", "time", "gres", "cpus", "memory", "account", "tasks", "options"],
            "": ["label", "profile", "workload", *WORKLOADS, "options", "gpu", "limits", "on", "other"],
        }
        part = draw(st.sampled_from(sorted(names)))
        there = table if not part else table.setdefault(part, {})
        if isinstance(there, dict):
            there[draw(st.sampled_from(names[part]) | PLAIN)] = draw(VALUES)
    return table


@examples(150)
@given(table=changed_jobs())
@example(table={"workload": "exec", "exec": {"command": ["x"]}, "limits": {"grace_s": 10**400}})
@example(table={"workload": "exec", "exec": {"command": ["x"]}, "options": {"block": 1 << 20_000}})
@example(table={"workload": "exec", "exec": {"command": ["x"]}, **{f"unknown_{n}": n for n in range(3000)}})
@example(table={"workload": "train", "train": {"dataset": "umls", "learning_rate": float("inf")}})
@example(table={"workload": "exec", "exec": {"command": ["x"]}, "on": {"cpus": 1}})
@example(table={"workload": "regress", "regress": {"data_directory": "x", "save_name": " "}})
def test_a_changed_job_is_refused_with_its_problems_or_written_and_read_again_as_it_is(
    table: dict[str, Any],
) -> None:
    job = refused_or(lambda: read_job(table, "the job"), "the job")
    if job is not None:
        assert read_job(toml.loads(job.as_toml()), "again") == job
        assert read_job(json.loads(json.dumps(job.as_table(), allow_nan=False)), "again") == job


JOB_TEXTS = [
    *(Job(name, "x", settings).as_toml().encode() for name, settings in BASES.items()),
    *(recipes.find(name).read_bytes() for name in recipes.names()),
]
TOML_TOKENS = (
    *(
        b"\n[a.b]\n",
        b"[[options]]",
        b"=",
        b'"',
        b'"""',
        b"'''",
        b"\\",
        b"#",
        b"\r",
        b"\0",
        b"\xff",
        b"\x7f",
        b".",
    ),
    *(b"[" * 2000, b"{a=" * 2000, b"a." * 2000, b"1" * 5000, b"0x" + b"f" * 5000, b"1979-05-27T00:00:00Z"),
    *(b"1e999", b"nan", b"\xed\xa0\x80", b'"\\ud800"', b"\n" * 3, b"true", b"[options]\nblock = 7\n"),
)
DAMAGED_JOBS = st.sampled_from(JOB_TEXTS).flatmap(lambda text: damaged(text, TOML_TOKENS))


@examples(150)
@given(content=DAMAGED_JOBS)
@example(content=b"x" + b".x" * 20_000 + b" = 1")
@example(content=b"x = 1" + b"\n[" + b"x . " * 20_000 + b"x]")
@example(content=b"x = 1" + b"0" * 5000)
@example(content=b"x = " + b'"' * 300_001)
@example(content=b'x = """' + b'\\"""' * 100_000)
@example(content=b"x = '''" + b"''\"\"" * 100_000)
@example(content=b"".join(b"key_%d = 1\n" % n for n in range(20_000)))
def test_a_damaged_job_file_is_a_job_or_refused_by_its_name(fuzz_folder: Path, content: bytes) -> None:
    job = read_and_told(fuzz_folder / "job.toml", content, read_job_file)
    if job is not None:
        assert read_job(toml.loads(job.as_toml()), "again") == job


PROFILE_TEXTS = [profiles.find(name).path.read_bytes() for name in profiles.names()]


@examples(150)
@given(content=st.sampled_from(PROFILE_TEXTS).flatmap(lambda text: damaged(text, TOML_TOKENS)))
@example(content=b"x = " + b"[" * 5000)
@example(content=b"x" + b".x" * 3000 + b" = 1")
@example(content=b'summary = "x"\n[environment]\n"A=B" = "c"')
@example(content=b'summary = "x"\n[environment]\nA = "\\u0000"')
@example(content=b'summary = "x"\n[environment]\nA = 0x' + b"f" * 5000)
def test_a_damaged_profile_is_a_profile_or_refused_by_its_name(fuzz_folder: Path, content: bytes) -> None:
    profile = read_and_told(fuzz_folder / "profile.toml", content, profiles.read)
    if profile is not None:
        for name, value in profile.environment.items():  # as a process takes them
            assert name and "=" not in name and "\0" not in name + value


# --- configurations -------------------------------------------------------------------------------


def without_comments(name: str) -> bytes:
    """A shipped configuration, as short as it may be: PyYAML takes its time."""
    lines = (Path(recipes.find("umls")).parent / f"{name}.yaml").read_text("utf-8").splitlines()
    return "\n".join(line.split(" #")[0] for line in lines if line and not line.startswith("#")).encode()


YAML_TEXTS = [without_comments(name) for name in configurations.names()]
YAML_TOKENS = (
    *(
        b": ",
        b"- ",
        b"? ",
        b"&a ",
        b"*a",
        b"<<: ",
        b"!!set ",
        b"!!bool ",
        b"!!timestamp ",
        b"!!binary ",
        b"!!omap ",
    ),
    *(
        b"!!python/object/apply:os.system [true]",
        b"0x" + b"f" * 5000,
        b"1" + b":59" * 3000,
        b"[" * 500,
        b"{" * 500,
    ),
    *(
        b"'",
        b'"',
        b"\n",
        b"\t",
        b"|",
        b">",
        b"---\n",
        b"%YAML 9.9\n",
        b"\0",
        b"\xff",
        b"~",
        b"2026-99-99",
        b".inf",
    ),
    *(b"\nseed: &a [*a, *a]\n", b'"\\ud800"', b"=", b"1e-3", b".nan", b"190:20:30.15", b"\nloo: yes\n"),
)
LAUGHS = b"a: &l0 [x]\n" + b"".join(
    b"b%d: &l%d [%s]\n" % (n, n, b",".join([b"*l%d" % (n - 1)] * 9)) for n in range(1, 15)
)


def configured(path: Path) -> Job:
    return read_job(configurations.job_table(configurations.read(str(path)), str(path)), str(path))


@examples(60)
@given(content=st.sampled_from(YAML_TEXTS).flatmap(lambda text: damaged(text, YAML_TOKENS)))
@example(content=LAUGHS + b"seed: *l14")
@example(content=b"seed: &a [*a]")
@example(content=b"architecture: &a {name: *a}")
@example(content=b"seed: 1" + b":59" * 3000)
@example(content=b"dropout: 1" + b":59" * 3000 + b".5")
@example(content=b"seed: 0x" + b"f" * 5000)
@example(content=b"? 0x" + b"f" * 5000 + b"\n: 1")
@example(content=b"seed: !!set {0x" + b"f" * 5000 + b"}")
@example(content=b"loo: !!bool x")
@example(content=b"!!timestamp x: 1")
@example(content=b"seed: " + b"[" * 5000)
@example(content=b"".join(b"k%d: 1\n" % n for n in range(1500)))
@example(content=b"learning_rate: .inf\ndata_directory: x")
def test_a_damaged_configuration_is_a_job_or_refused_by_its_name(fuzz_folder: Path, content: bytes) -> None:
    job = read_and_told(fuzz_folder / "configuration.yaml", content, configured)
    if job is not None:
        assert read_job(toml.loads(job.as_toml()), "again") == job


# --- what is typed --------------------------------------------------------------------------------

AXES = st.builds(
    lambda name, values: f"{name}={','.join(values)}",
    st.sampled_from([*OPTIONS, "learning_rate", "seed", "dataset", "n", "a.b", ""]) | PLAIN,
    st.lists(
        PLAIN
        | st.sampled_from(
            ["1", "2", "0x10", "1e-3", "true", "[1", '"a"', "1 # b", "1\ny=2", "nan", "2026-01-31"]
        ),
        max_size=4,
    ),
)


@examples(120)
@given(axes=st.lists(AXES | PLAIN, min_size=1, max_size=3), workload=st.sampled_from(["train", "exec"]))
@example(axes=["n=" + "[" * 50_000], workload="exec")
@example(axes=["n=1" + "0" * 5000 + ",0x" + "f" * 5000], workload="exec")
@example(axes=["n=" + ",".join(map(str, range(1000)))] * 12, workload="exec")
@example(axes=[f"n{i}=" + ",".join(map(str, range(1000))) for i in range(12)], workload="exec")
def test_a_varied_job_is_a_matrix_of_jobs_or_refused(axes: list[str], workload: str) -> None:
    job = read_job({"workload": workload, workload: BASES[workload]}, "the job")
    read = [axis for text in axes if (axis := refused_or(lambda text=text: read_axis(text))) is not None]  # type: ignore[misc]
    for name, values in read:
        for value in values:
            if isinstance(value, (str, int, float)) and "," not in (word := word_of(value)):
                again = refused_or(lambda name=name, word=word: read_axis(f"{name}={word}"))  # type: ignore[misc]
                assert again is None or repr(again) == repr((name, (value,))) or isinstance(value, str)
    found = refused_or(lambda: variants(job, read))
    assert found is None or 2 <= len(found) <= 64


# --- filters --------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_characters='"'), min_size=1, max_size=6).filter(
    lambda word: not re.search(r"[\s\0]", word)
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda number: f"{number:.9g}")
OF_KIND: dict[str, Any] = {
    "choice": WORDS,
    "contains": WORDS | WORDS.map(lambda word: f'"{word} {word}"'),
    "gpu": WORDS,
    "number": NUMBERS | st.tuples(NUMBERS, NUMBERS).map("..".join),
    "time": st.sampled_from(["7d", "30m", "999999999w", "2026-01-31", "today"]),
}


@st.composite
def typed(draw: st.DrawFn) -> tuple[str, bool]:
    key = draw(st.sampled_from(sorted(filters.FIELDS)))
    field = filters.FIELDS[key]
    op = draw(
        st.sampled_from([":", "=", ">", "<", ">=", "<=", "!="] if field.kind == "number" else [":", "="])
    )
    value = draw(st.sampled_from(["failed", "oom", "ended"]) if key == "state" else OF_KIND[field.kind])
    if ".." in value and op not in (":", "="):
        op = ":"
    return f"{draw(st.sampled_from(['', '-']))}{key}{op}{value}", field.kind == "choice"


@examples(150)
@given(terms=st.lists(typed(), max_size=4), between=st.sampled_from([" ", "  ", "\n", "\t "]))
def test_every_filter_put_together_from_its_parts_is_read_as_these_parts(
    terms: list[tuple[str, bool]], between: str
) -> None:
    text = between.join(term for term, _ in terms)
    reading = filters.read(text, now=1.8e9)
    alone = [filters.read(term, now=1.8e9) for term, _ in terms]
    assert list(reading.terms) == [term for one in alone for term in one.terms]
    assert len(reading.troubles) == sum(len(one.troubles) for one in alone)
    assert not any(one.troubles for one, (_, may) in zip(alone, terms, strict=True) if not may)


@examples(60)
@given(text=st.text(alphabet='gpustaermod:><=!-"., 0179e*_\n', max_size=40) | PLAIN)
@example(text="state:" + "x" * 200_000)
@example(text='"' * 100_001)
@example(text="a>" + "1" * 200_000)
@example(text="since:" + "9" * 100_000)
@example(text="mrr>" + ".." * 100_000)
@example(text=" ".join(f"key{n}:x" for n in range(2000)))
def test_any_filter_at_all_becomes_bound_conditions_or_troubles(conn: Any, text: str) -> None:
    for typing in (False, True):
        reading = filters.read(text, now=1.8e9, typing=typing)
        conditions.compiled(conn, reading.terms)
        assert all(trouble.message and len(trouble.message) < 1000 for trouble in reading.troubles)


# --- what goes to others and comes from them ------------------------------------------------------

ASKED = (
    ODD
    | PLAIN
    | st.sampled_from(["gpu:2", "01:30:00", "--comment=a b", "--comment='#'", '--x="\\', "٣", "4"])
)


@examples(150)
@given(
    asked=st.dictionaries(
        st.sampled_from(["partition", "time", "gres", "cpus", "memory", "account", "options"]),
        ASKED | st.lists(ASKED, max_size=3),
        max_size=3,
    )
)
@example(asked={"partition": "a\nrm -rf x"})
@example(asked={"options": ["--qos=a b", "--comment=it's #1"]})
def test_whatever_is_asked_of_slurm_is_one_option_on_one_line_or_refused(asked: dict[str, Any]) -> None:
    table = {"workload": "train", "train": {"dataset": "umls"}, "on": {"where": "slurm", **asked}}
    job = refused_or(lambda: read_job(table, "the job"), "the job")
    if job is None:
        return
    folder = Path("/a folder/of 'mine'")
    options = sbatch_options("kgops-1", job.on, folder)
    written = script("kgops-1", job.on, folder, "/", ["python"], {}).split("\n")
    lines = written[1 : len(options) + 1]
    assert [shlex.split(line.removeprefix("#SBATCH ")) for line in lines] == [[option] for option in options]
    assert not any(line.startswith("#SBATCH") for line in written[len(options) + 1 :])


EVENT_LINES = [
    events.write("metric", 1.5, name="loss", value=0.25, step=3),
    events.write(
        "attribution",
        1.5,
        test=1,
        triple=["a", "r", "b"],
        influences=[[1, "a", "r", "c", -0.5]],
        names={"a": "é"},
    ),
    events.write("memory", 1.5, mib={"device": 1.0}, more=[None, {"x": [True]}]),
]
EVENT_TOKENS = (
    *(
        b"[" * 2000,
        b'{"a":' * 2000,
        b"1" * 400,
        b"1" * 5000,
        b"1e999",
        b"NaN",
        b"-Infinity",
        b"null",
        b"true",
    ),
    *(
        b'"\\ud800"',
        b"\\udc00",
        b"\\u0000",
        b"\xff",
        b"\xed\xa0\x80",
        b'"at":"x",',
        b'"event":"note",',
        b"\n",
    ),
)


@examples(150)
@given(line=st.sampled_from(EVENT_LINES).flatmap(lambda line: damaged(line, EVENT_TOKENS)))
def test_an_event_that_is_read_is_written_and_read_again_as_it_is(line: bytes) -> None:
    event = events.read(line, 7.0)
    if event.kind == events.LOG:
        assert len(event.fields["text"]) <= events.LONGEST_LOG_LINE
    else:
        assert events.read(events.write(event.kind, event.at, **event.fields), 8.0) == event
