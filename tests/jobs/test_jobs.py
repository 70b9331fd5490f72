"""A job is a value: written, read again and equal; and what is wrong with it is said all at once."""

import json
import math
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgops.errors import BadJob, Usage
from kgops.jobs.job import GpuRequest, Job, Limits
from kgops.jobs.text import attempt_settings, lines, one_line
from kgops.workloads.catalog import OPTIONS, effect_of
from kgops.workloads.job_files import LARGEST_JOB_FILE, read_job, read_job_file

TEXT = st.text(st.characters(codec="utf-8"))
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)

NAMES_OF_GPUS = st.text(st.characters(codec="utf-8", exclude_characters="\x00:"), min_size=1, max_size=20)


def problems_of(table: object) -> list[str]:
    with pytest.raises(BadJob) as caught:
        read_job(table, "job.toml")
    assert caught.value.exit_code == 2
    return caught.value.problems


def of_command(**settings_: Any) -> dict[str, Any]:
    return {"workload": "exec", "exec": {"command": ["echo"], **settings_}}


# --- TOML -----------------------------------------------------------------------------------------

PLAIN = st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT


JOBS = st.builds(
    lambda label, command, values, profile, options, gpu, limits, progress: Job(
        workload="exec",
        label=label,
        settings={
            "command": [*command, "{n}"],
            "cwd": None,
            "progress_regex": progress,
            "metric_regex": None,
            "on_oom": {"n": values} if values else {},
        },
        profile=profile,
        options=options,
        gpu=gpu,
        limits=limits,
    ),
    WORDS.filter(str.strip),
    st.lists(WORDS, min_size=1, max_size=4),
    st.lists(st.integers(1, 4096) | WORDS | st.floats(0, 1), max_size=3),
    st.none() | WORDS,
    st.fixed_dictionaries(
        {},
        optional={
            name: st.sampled_from([1 if value is int else value for value in option.choices or (0.5,)])
            for name, option in OPTIONS.items()
        },
    ),
    st.builds(GpuRequest, st.none() | NAMES_OF_GPUS, st.none() | st.integers(1, 10**6), st.booleans()),
    st.builds(Limits, st.integers(1, 9), st.floats(0, 1e6), st.floats(1, 1e6)),
    st.none() | st.just(r"(\d+) of (\d+)"),
)


@settings(deadline=None)
@given(job=JOBS)
def test_every_job_is_read_as_it_was_written_by_way_of_toml_and_of_json(job: Job) -> None:
    assert read_job(tomllib.loads(job.as_toml()), "again") == job
    assert read_job(json.loads(json.dumps(job.as_table())), "again") == job
    assert tomllib.loads(job.as_toml()) == job.as_table()


KEYS = "workload exec command on_oom options gpu limits grace_s label precision x"


@settings(deadline=None)
@given(
    table=st.recursive(
        st.none() | PLAIN | st.floats(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5)
        ),
    )
)
def test_anything_is_either_a_job_or_a_list_of_problems(table: object) -> None:
    for candidate in (
        table,
        {"workload": "exec", **table} if isinstance(table, dict) else {"workload": table},
    ):
        try:
            job = read_job(candidate, "x")
        except BadJob as error:
            assert error.problems
        else:
            json.dumps(job.as_table(), allow_nan=False)
            assert read_job(job.as_table(), "x") == job


# --- problems -------------------------------------------------------------------------------------


def test_all_problems_are_told_at_once_with_path_and_nearest_key() -> None:
    found = problems_of(
        {
            "workload": "exec",
            "labl": "x",
            "exec": {"comand": ["echo"], "on_oom": {"n": []}, "metric_regex": "("},
            "gpu": {"wanted": 0, "memory_mib": 0, "exclusive": 1},
            "limits": {"attempts": 0, "grace_s": math.inf, "log_mib": math.nan},
            "options": {"batchsize": 3, "precision": {"a": 1}},
        }
    )
    assert found == [
        "labl: no such key; did you mean 'label'?",
        "exec.comand: no such key; did you mean 'command'?",
        "exec.command: missing; expected a list of texts",
        *[line for line in found if line.startswith("exec.metric_regex: not a regular expression")],
        "gpu.wanted: expected text, found the number 0",
        "gpu.memory_mib: must be at least 1, found 0",
        "gpu.exclusive: expected true or false, found the number 1",
        "limits.attempts: must be at least 1, found 0",
        "limits.grace_s: must be a finite number, found inf",
        "limits.log_mib: must be a finite number, found nan",
        "options.batchsize: no such option; did you mean 'batch_size'?",
        "options.precision: must be auto or fp32 or tf32 or fp16 or bf16; found {'a': 1}",
    ]
    assert len(found) == 12


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ([], "expected a table, found a list"),
        ({}, "workload: missing; expected text"),
        ({"workload": 3}, "workload: expected text, found the number 3"),
        ({"workload": "exce"}, "workload: there is no 'exce'; did you mean 'exec'?"),
        ({"workload": "exec"}, "exec.command: missing; expected a list of texts"),
        ({"workload": "exec", "exec": []}, "exec: expected a table, found a list"),
        (of_command(command="echo hi"), "exec.command: expected a list of texts, found the text 'echo hi'"),
        (of_command(command=[]), "exec.command: empty; name a program to run"),
        (of_command(command=["echo", 3]), "exec.command: expected a list of texts, found a list"),
        (
            of_command(on_oom={"n": [math.nan]}),
            "exec.on_oom.n: expected a list of values, the first to try first",
        ),
        ({**of_command(), "label": "\n"}, "label: must not be empty"),
        ({**of_command(), "label": "\ud800"}, "label: '\\ud800' is not UTF-8"),
        (
            {**of_command(), "gpu": {"memory_mib": True}},
            "gpu.memory_mib: expected a whole number, found true",
        ),
        ({**of_command(), "limits": {"grace_s": -1}}, "limits.grace_s: must be at least 0, found -1.0"),
        ({**of_command(), "a b\x1b": 1}, "'a b\\x1b': no such key; known here: "),
    ],
    ids=range(15),
)
def test_problem_names_its_key_and_what_was_found(table: object, said: str) -> None:
    assert any(line.startswith(said) for line in problems_of(table)), problems_of(table)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b'workload = "exec"\nlabel = "\xe9"', "not UTF-8 at byte 27"),
        (b"workload = exec", "not TOML: "),
        (b"{" * 100_000, "not TOML: "),
        (b"a = " + b"[" * 100_000, "not TOML: "),
        (b"#" * (LARGEST_JOB_FILE + 1), "larger than 4 MiB: this is no job file"),
        (b"", "workload: missing"),
        # A minute once: each unknown name was looked for among those that are known.
        (
            b"workload = 'exec'\n" + b"".join(b"k%d=1\n" % i for i in range(300_000)),
            "not TOML: more than 20,000 keys",
        ),
        (b"a = [" + b"1," * 300_000 + b"]", "not TOML: more than 100,000 values"),
    ],
    ids=range(9),
)
def test_file_that_holds_no_job_is_named_with_the_reason(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    with pytest.raises(BadJob) as caught:
        read_job_file(path)
    assert caught.value.message.startswith(f"{path} has a problem:\n  {said}")
    assert caught.value.exit_code == 2


def test_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "missing.toml", tmp_path, tmp_path / "pipe.toml"):
        with pytest.raises(Usage, match="cannot read the job file"):
            read_job_file(path)


def test_of_thousands_of_unknown_names_the_first_are_told_and_counted() -> None:
    options = {f"k{i}": 1 for i in range(19_000)}
    with pytest.raises(BadJob) as caught:
        read_job({"workload": "exec", "exec": {"command": ["true"]}, "options": options}, "job")
    assert caught.value.problems[0].startswith("options.k0: no such option")
    assert caught.value.problems[-1] == "options: 18,980 more options that are not known"


def test_fallbacks_of_a_command_are_bounded_in_all() -> None:
    names = [f"n{i}" for i in range(400)]
    on_oom = {name: list(range(300)) for name in names}
    with pytest.raises(BadJob, match=r"on_oom: more than 100,000 values"):
        read_job(
            {"workload": "exec", "exec": {"command": [f"{{{n}}}" for n in names], "on_oom": on_oom}}, "job"
        )


# --- options ---------------------------------------------------------------------------------------


def test_every_option_says_what_it_does_to_the_numbers() -> None:
    for name, option in OPTIONS.items():
        assert option.name == name
        assert option.effect in ("exact", "rounding", "changes results")
        assert option.summary
    kinds = {name: effect_of(name) for name in ("entity_chunk", "gradient_checkpointing", "memory_cleanup")}
    assert set(kinds.values()) == {"exact"}
    assert {effect_of(name) for name in ("precision", "compile")} == {"rounding"}
    assert {effect_of(name) for name in ("batch_size", "filtering", "last_layers", "nobody knows")} == {
        "changes results"
    }


# --- commands -------------------------------------------------------------------------------------


def test_fallbacks_go_down_together_and_the_shorter_list_stays_at_its_last() -> None:
    assert attempt_settings({"n": [4, 2, 1], "m": ["a", "b"]}) == [
        {"n": 4, "m": "a"},
        {"n": 2, "m": "b"},
        {"n": 1, "m": "b"},
    ]
    assert attempt_settings({}) == []


# --- text -----------------------------------------------------------------------------------------


@given(text=st.text())
def test_shown_text_has_no_control_and_no_direction_trick(text: str) -> None:
    shown = one_line(text)
    shown.encode()
    assert not set(shown) & {
        chr(c) for c in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    }
    assert "\n" not in shown
    assert len(one_line(text, 5)) <= 5
    assert lines(text).count("\n") <= text.count("\n")
