"""Rules correct what fails or lies, say why and who found out, and leave everything else alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgops.errors import Usage
from kgops.gpus.facts import GpuFacts, TorchBuild, facts_of_known
from kgops.gpus.known import known_by_short_name, short_names
from kgops.jobs.job import Job
from kgops.planning import resolve, rules
from kgops.planning.rules import Correction, Work
from kgops.workloads.catalog import OPTIONS
from kgops.workloads.job_files import read_job

TRAIN = Work("train", trains=True)


def gpu(name: str) -> GpuFacts:
    known = known_by_short_name(name)
    assert known is not None
    return facts_of_known(known)


def settled(options: dict[str, Any], on: GpuFacts | None = None, work: Work = TRAIN) -> dict[str, Any]:
    return rules.apply(options, on, work)[0]


def only(options: dict[str, Any], on: GpuFacts | None = None, work: Work = TRAIN) -> Correction:
    _, made = rules.apply(options, on, work)
    (correction,) = made
    assert correction.reason
    assert correction.source
    return correction


# ---- number formats ----


@pytest.mark.parametrize(
    ("on", "instead"), [("t4", "fp16"), ("v100", "fp16"), ("p100", "fp32"), ("gtx-1080ti", "fp32")]
)
def test_bf16_below_capability_8_becomes_the_best_format_the_gpu_has(on: str, instead: str) -> None:
    made = only({"precision": "bf16"}, gpu(on))
    assert (made.option, made.requested, made.applied) == ("precision", "bf16", instead)
    assert "8.0" in made.reason


@pytest.mark.parametrize("on", ["a100-40", "a10", "l4", "rtx-4090", "h200", "b200"])
@pytest.mark.parametrize("precision", ["bf16", "tf32", "fp16", "fp32"])
def test_every_format_stands_from_capability_8_on(on: str, precision: str) -> None:
    assert settled({"precision": precision}, gpu(on)) == {"precision": precision}


def test_tf32_becomes_float32_on_a_t4() -> None:
    assert only({"precision": "tf32"}, gpu("t4")).applied == "fp32"


@pytest.mark.parametrize(
    ("options", "on"),
    [
        ({"precision": "fp16"}, None),
        ({"precision": "auto"}, "t4"),
        ({"precision": "auto"}, None),  # it may become fp16: whoever switches scaling off must know the GPU
    ],
)
def test_training_in_fp16_scales_its_gradients_whatever_was_asked(
    options: dict[str, Any], on: str | None
) -> None:
    made = only({**options, "scale_gradients": False}, gpu(on) if on else None)
    assert (made.option, made.applied) == ("scale_gradients", True)


# ---- compiling ----


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_below_capability_7_nothing_is_compiled(mode: str) -> None:
    assert only({"compile": mode}, gpu("p100")).applied == "off"
    assert settled({"compile": "off"}, gpu("p100")) == {"compile": "off"}
    assert settled({"compile": "default"}, gpu("v100")) == {"compile": "default"}


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
@pytest.mark.parametrize(
    ("options", "work"),
    [
        ({"gradient_checkpointing": True}, TRAIN),
        ({}, Work("tracin", moves_parameters=True)),
    ],
    ids=["checkpointing", "moving weights"],
)
def test_cuda_graphs_are_kept_from_what_changes_addresses(
    mode: str, options: dict[str, Any], work: Work
) -> None:
    for on in (None, gpu("t4"), gpu("h100")):
        made = only({**options, "compile": mode}, on, work)
        assert (made.option, made.requested, made.applied) == ("compile", mode, "default")
        assert only({**options, "cuda_graphs": True}, on, work).applied is False


# ---- the GPU and its driver ----


@pytest.mark.parametrize(
    ("on", "torch", "cuda", "runs"),
    [
        ("v100", (2, 11), (13, 0), False),
        ("v100", (2, 11), (12, 8), False),
        ("v100", (2, 10), (12, 8), True),
        ("v100", (2, 11), (12, 6), True),
        ("p100", (2, 10), (12, 8), False),
        ("t4", (2, 13), (13, 0), True),
        ("h200", (2, 13), (13, 0), True),
    ],
)
def test_a_gpu_that_the_wheel_has_no_kernels_for_is_left_alone(
    on: str, torch: tuple[int, int], cuda: tuple[int, int], runs: bool
) -> None:
    here = GpuFacts(on, gpu(on).compute_capability, torch=TorchBuild(torch, cuda))
    found, made = rules.apply({"device": "auto"}, here, TRAIN)
    assert found == {"device": "auto" if runs else "cpu"}
    assert [correction.option for correction in made] == ([] if runs else ["device"])
    assert settled({"device": "cpu"}, here) == {"device": "cpu"}


@pytest.mark.parametrize(
    "here", [GpuFacts("H200", (9, 0), is_slice=True), GpuFacts("RTX 4090", (8, 9), is_wsl=True)]
)
def test_segments_do_not_grow_on_slices_and_under_wsl2(here: GpuFacts) -> None:
    made = only({"expandable_segments": True}, here)
    assert (made.option, made.applied) == ("expandable_segments", False)
    assert settled({"expandable_segments": True}, GpuFacts("H200", (9, 0))) == {"expandable_segments": True}


# ---- all together ----

OPTION_TABLES = st.fixed_dictionaries(
    {},
    optional={
        **{
            name: st.sampled_from([8 if value is int else value for value in option.choices or (0.5,)])
            for name, option in OPTIONS.items()
        },
        "device": st.sampled_from(["auto", "cuda", "cpu"]),
        "expandable_segments": st.booleans(),
    },
)
WORKS = st.builds(Work, st.just("some"), *(st.booleans() for _ in range(2)))
GPUS = st.none() | st.builds(
    GpuFacts,
    st.just("some GPU"),
    st.none() | st.sampled_from([(6, 0), (6, 1), (7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (12, 0)]),
    st.booleans(),
    st.booleans(),
    st.none()
    | st.builds(
        TorchBuild, st.sampled_from([(2, 10), (2, 11)]), st.sampled_from([None, (12, 6), (12, 8), (13, 0)])
    ),
)


@given(OPTION_TABLES, GPUS, WORKS)
def test_what_rules_let_pass_they_let_pass_again_and_every_change_is_told(
    options: dict[str, Any], on: GpuFacts | None, work: Work
) -> None:
    asked = dict(options)
    found, made = rules.apply(options, on, work)
    assert options == asked  # what was asked for is nobody's to change
    assert found.keys() == asked.keys()
    told = {correction.option for correction in made}
    assert {name for name in asked if found[name] is not asked[name]} <= told
    assert rules.apply(found, on, work) == (found, [])


@pytest.mark.parametrize("name", short_names())
def test_defaults_conflict_with_no_rule_on_any_gpu(name: str) -> None:
    assert rules.apply({}, gpu(name), TRAIN) == ({}, [])


# ---- of a job ----


def job(options: dict[str, Any], **more: Any) -> Job:
    table = {
        "workload": "train",
        "train": {"dataset": "nations", **more.pop("train", {})},
        "options": options,
    }
    return read_job({**table, **more}, "a test")


def test_a_job_keeps_who_chose_what_and_what_became_of_it() -> None:
    found = resolve.resolve(job({"precision": "bf16"}, profile="a100-40"), lambda _: gpu("t4"))
    assert found.job.options["precision"] == "fp16"
    told = {choice.option: choice for choice in found.choices}
    assert told["precision"].requested == "bf16"
    assert told["precision"].applied == "fp16"
    assert told["precision"].chosen_by == "person"
    assert told["precision"].reason
    assert told["compile"].chosen_by == "profile a100-40"
    assert told["compile"].reason is None
    assert [choice.option for choice in found.corrected] == ["precision"]


def test_a_job_on_the_cpu_is_measured_by_no_gpu() -> None:
    def no_gpu(gpu: str | None) -> GpuFacts | None:
        raise AssertionError("nobody asked for a GPU")

    found = resolve.resolve(job({"precision": "bf16"}, train={"device": "cpu"}), no_gpu)
    assert found.job.options["precision"] == "bf16"


def test_what_traces_keeps_few_kernels_and_a_training_those_it_has() -> None:
    tracin = read_job({"workload": "tracin", "tracin": {"run": 1, "test_triples": "test.txt"}}, "a test")
    assert resolve.resolve(tracin, lambda _: None).environment == resolve.TRACIN_KERNELS
    both = read_job({"workload": "pipeline", "pipeline": {"train": {"dataset": "nations"}}}, "a test")
    assert resolve.resolve(both, lambda _: None).environment == resolve.TRACIN_KERNELS
    assert resolve.resolve(job({}), lambda _: None).environment == {}


def test_large_blocks_of_pykeen_have_pages_of_their_own_unless_a_person_says_otherwise() -> None:
    theirs = job({}, train={"engine": "pykeen", "model": "TransE"})
    found = resolve.resolve(theirs, lambda _: None).environment
    assert found == {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=8388608:glibc.malloc.hugetlb=1"}
    assert resolve.for_worker(found, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"}) == {}


def test_growing_segments_are_taken_from_the_environment_of_a_slice_and_other_settings_stay() -> None:
    mig = GpuFacts("H200 MIG 1g.18gb", (9, 0), is_slice=True)
    found = resolve.resolve(job({}, profile="h200"), lambda gpu: mig)
    assert found.environment == {}
    assert [choice.option for choice in found.corrected] == ["expandable_segments"]
    whole = resolve.resolve(job({}, profile="h200"), lambda _: gpu("h200"))
    assert whole.environment == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert whole.corrected == []


@pytest.mark.parametrize("own", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_an_allocator_that_a_person_has_set_up_is_not_overruled_by_a_profile(own: str) -> None:
    of_profile = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "OTHER": "1"}
    assert resolve.for_worker(of_profile, {own: "max_split_size_mb:64"}) == {"OTHER": "1"}
    assert resolve.for_worker(of_profile, {}) == of_profile


OLD = GpuFacts("Tesla V100", (7, 0), torch=TorchBuild((2, 11), (13, 0)))


def test_a_gpu_without_kernels_is_an_error_for_who_insists_and_the_cpu_for_who_does_not() -> None:
    found = resolve.resolve(job({}), lambda gpu: OLD)
    assert found.job.settings["device"] == "cpu"
    assert [choice.option for choice in found.corrected] == ["device"]
    for insisting in (job({}, train={"device": "cuda"}), job({}, gpu={"wanted": "0"})):
        with pytest.raises(Usage, match=r"no kernels below compute capability 7\.5"):
            resolve.resolve(insisting, lambda gpu: OLD)


def test_both_stages_of_a_pipeline_go_where_the_gpu_lets_them() -> None:
    table = {"workload": "pipeline", "pipeline": {"train": {"dataset": "nations"}}}
    found = resolve.resolve(read_job(table, "a test"), lambda gpu: OLD)
    assert found.job.settings["train"]["device"] == found.job.settings["tracin"]["device"] == "cpu"
    read_job(found.job.as_table(), "the same job")
