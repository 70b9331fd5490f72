"""The sample runs of a tour, oldest first: every workload, every end state, and pairs worth comparing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kgops.tour.curves import SampleCurve
from kgops.tour.parts import REGRESS, TRACIN, TRAIN, fallback, mib, traced, training, with_
from kgops.tour.story import OptionValue, SampleAttempt, SampleRun

__all__ = ["stories"]

_FB = {"dataset": "fb15k237", "num_epochs": 100}
_WN = {"dataset": "wn18rr", "num_epochs": 60}
_FP16 = OptionValue("precision", "fp16", "fp16", by="person")
_SMALLER_CHUNK = fallback("entity_chunk", 2048, 512, "fewer entities scored at a time")
_SMALLER_BATCH = fallback("batch_size", 512, 256, "fewer examples a step", _SMALLER_CHUNK)
_NO_ROOM = "Tried to allocate 2.31 GiB; 1.12 GiB were free"


def stories() -> Iterator[SampleRun]:
    yield from sorted((*_training(), *_tracing(), *_regression(), *_commands()), key=lambda one: -one.days)


def _training() -> Iterator[SampleRun]:
    base = SampleRun(
        *("train", "fb15k-237 baseline", _FB, 41.2, 148.0),
        options=TRAIN,
        curves=training(100, (0.0231, 0.0039), 0.318, epoch_s=87.5),
        metrics={"test_mrr": 0.3142, "test_hits_at_10": 0.4921, "best_valid_mrr": 0.3177, "train_s": 8790.0},
        parts_mib=mib(61, 2210, 1190, 94),
        took_mib=3744.0,
        progress=("train", 100.0, 100.0, "epochs"),
        tags=("paper",),
        notes=("The baseline of table 2. Compare with the fp16 run after it.",),
    )
    yield base
    yield replace(
        base,
        label="fb15k-237 fp16",
        days=40.9,
        minutes=81.0,
        options=with_(
            TRAIN, _FP16, OptionValue("scale_gradients", "auto", "on", "fp16 needs it", by="default")
        ),
        curves=training(100, (0.0231, 0.0040), 0.317, epoch_s=47.3),
        metrics={"test_mrr": 0.3139, "test_hits_at_10": 0.4917, "best_valid_mrr": 0.3171, "train_s": 4760.0},
        parts_mib=mib(61, 1180, 640, 94),
        took_mib=2236.0,
        notes=(),
    )
    wide = OptionValue("batch_size", "512", "512", by="person")
    yield replace(
        base,
        label="fb15k-237 batch 512",
        days=39.5,
        minutes=96.0,
        options=with_(TRAIN, wide),
        tries=(
            SampleAttempt("out_of_memory", 0.02, _NO_ROOM, _SMALLER_CHUNK, 0.97),
            SampleAttempt("out_of_memory", 0.03, _NO_ROOM, _SMALLER_BATCH, 0.98),
            SampleAttempt("succeeded", 0.95),
        ),
        curves=training(100, (0.0231, 0.0041), 0.315, epoch_s=54.6),
        parts_mib=mib(61, 9100, 4760, 94),
        metrics={"test_mrr": 0.3120, "test_hits_at_10": 0.4893, "best_valid_mrr": 0.3150, "train_s": 5490.0},
        took_mib=14210.0,
        tags=(),
        notes=("Two OOM fallbacks: the second changes results, which --allow-approximate permits.",),
    )
    yield SampleRun(
        *("train", "wn18rr wide", {**_WN, "embedding_dim": 1024}, 4.4, 6.0, "out_of_memory", _NO_ROOM),
        tries=(
            SampleAttempt("out_of_memory", 0.5, _NO_ROOM, _SMALLER_CHUNK, 0.99),
            SampleAttempt("out_of_memory", 0.5, _NO_ROOM),
        ),
        options=TRAIN,
        parts_mib=mib(165, 9420, 3310, 31),
        took_mib=14830.0,
        log=("try --allow-approximate, which may change results, or a smaller model (--embedding-dim)",),
    )
    yield SampleRun(
        *("train", "wn18rr", _WN, 4.2, 64.0),
        options=TRAIN,
        curves=training(60, (0.0118, 0.0006), 0.431, epoch_s=62.4),
        metrics={"test_mrr": 0.4263, "test_hits_at_10": 0.5007, "best_valid_mrr": 0.4312, "train_s": 3760.0},
        parts_mib=mib(33, 2310, 1340, 31),
        took_mib=3810.0,
        progress=("train", 60.0, 60.0, "epochs"),
    )
    yield from _seeds()
    yield from _models()
    yield SampleRun(
        *("train", "umls, lr 0.1", {"dataset": "umls", "learning_rate": 0.1}, 12.2, 1.5, "failed"),
        reason="the loss is NaN since epoch 7",
        options=TRAIN,
        curves=training(12, (0.21, 0.31), None, epoch_s=6.8, lost_at=0.55),
        took_mib=612.0,
        progress=("train", 7.0, 100.0, "epochs"),
    )
    yield SampleRun(
        *("train", "fb15k-237 overnight", _FB, 9.3, 51.0, "interrupted"),
        reason="the machine was restarted",
        tries=(
            SampleAttempt("interrupted", 0.4, "the worker was lost: SIGKILL, which kgops did not send"),
            SampleAttempt("interrupted", 0.6, "the machine was restarted"),
        ),
        options=TRAIN,
        curves=training(34, (0.0231, 0.0062), 0.264, epoch_s=88.0),
        parts_mib=mib(61, 2210, 1190, 94),
        took_mib=3740.0,
        progress=("train", 34.0, 100.0, "epochs"),
    )
    yield SampleRun(
        *("train", "fb15k-237 mis-split", _FB, 8.1, 4.0, "cancelled", "stopped by the person"),
        options=TRAIN,
        curves=training(4, (0.0231, 0.0170), None, epoch_s=58.0),
        took_mib=3702.0,
        progress=("train", 4.0, 100.0, "epochs"),
        notes=("Forgot --valid. Started again with it.",),
    )


def _seeds() -> Iterator[SampleRun]:
    for seed, mrr in enumerate((0.9041, 0.9118, 0.8987)):
        yield SampleRun(
            *("train", f"umls seed {seed}", {"dataset": "umls", "seed": seed, "num_epochs": 100}),
            *(21.0 - seed * 0.01, 3.1),
            options=TRAIN,
            curves=training(100, (0.214, 0.031), mrr, epoch_s=1.8),
            metrics={"test_mrr": mrr, "test_hits_at_10": 0.992, "best_valid_mrr": mrr + 0.004},
            parts_mib=mib(9, 140, 6, 1),
            took_mib=702.0,
            progress=("train", 100.0, 100.0, "epochs"),
            tags=("sweep",),
        )


def _models() -> Iterator[SampleRun]:
    for n, (model, mrr) in enumerate((("RotatE", 0.744), ("TransE", 0.512), ("ComplEx", 0.707))):
        settings = {"dataset": "kinships", "engine": "pykeen", "model": model, "num_epochs": 50}
        yield SampleRun(
            *("train", f"kinships {model}", settings, 18.0 - n * 0.05, 4.4),
            options=with_(TRAIN, OptionValue("cuda_graphs", "on", "off", "PyKEEN's own loop runs")),
            curves=training(50, (0.61, 0.12), mrr, epoch_s=5.2),
            metrics={"test_mrr": mrr - 0.006, "test_hits_at_10": min(0.99, mrr + 0.22)},
            took_mib=880.0,
            progress=("train", 50.0, 50.0, "epochs"),
            tags=("models",),
        )


def _tracing() -> Iterator[SampleRun]:
    folder = {"dataset": "fb15k237", "checkpoint_dir": "/made/up/checkpoints", "max_triples": 3}
    exact = SampleRun(
        *("tracin", "fb15k-237 traced", folder, 30.4, 22.0),
        options=TRACIN,
        curves=(SampleCurve("pairs_per_s", 41_000, 52_000, points=60, steps=60),),
        metrics={"tests": 3.0, "failed_tests": 0.0, "tracin_s": 1290.0},
        parts_mib={"weights": 61.0, "factors": 1630.0, "scores": 410.0, "data": 94.0},
        took_mib=2231.0,
        traced=traced(),
        progress=("tracin", 3.0, 3.0, "test triples"),
        tags=("paper",),
    )
    yield exact
    yield replace(
        exact,
        label="fp16 products",
        days=30.2,
        minutes=13.0,
        options=with_(TRACIN, OptionValue("gram_precision", "fp16", "fp16", by="person")),
        metrics={"tests": 3.0, "failed_tests": 0.0, "tracin_s": 771.0, "precision_top50": 0.98},
        traced=traced(1.0004),
        notes=("49 of the exact run's top 50 triples are in this run's top 50.",),
    )
    fewer = fallback("tests_at_once", 64, 8, "fewer test triples at a time")
    yield replace(
        exact,
        label="wn18rr, many tests",
        settings={**folder, "dataset": "wn18rr"},
        days=24.6,
        minutes=61.0,
        tries=(SampleAttempt("out_of_memory", 0.1, _NO_ROOM, fewer, 0.99), SampleAttempt("succeeded", 0.9)),
        parts_mib={"weights": 33.0, "factors": 13_900.0, "scores": 520.0, "data": 31.0},
        took_mib=14702.0,
        traced=traced(0.7, trouble_at=3),
        metrics={"tests": 3.0, "failed_tests": 1.0, "tracin_s": 3120.0},
        tags=(),
    )
    missing = "no checkpoints in /made/up/checkpoints: train with --checkpoint-frequency 2"
    yield SampleRun(
        *("tracin", "umls, no checkpoints", {**folder, "dataset": "umls"}, 11.9, 0.2, "failed", missing),
        options=TRACIN,
    )
    both = {"train": {"dataset": "umls", "num_epochs": 60}, "tracin": {"max_triples": 3, "top_k": 10}}
    yield SampleRun(
        *("pipeline", "umls train and trace", both, 1.2, 7.5),
        options=(*TRAIN, *(one for one in TRACIN if one.name not in {other.name for other in TRAIN})),
        curves=training(60, (0.214, 0.036), 0.897, epoch_s=5.7),
        metrics={"test_mrr": 0.8921, "tests": 3.0, "failed_tests": 0.0, "tracin_s": 96.0},
        parts_mib=mib(9, 820, 40, 1),
        took_mib=1004.0,
        traced=traced(0.4),
        progress=("tracin", 3.0, 3.0, "test triples"),
    )
    yield SampleRun(
        *("pipeline", "kinships, traced too", {**both, "train": {"dataset": "kinships"}}, 11.2, 2.0),
        *("interrupted", "the worker was lost: SIGKILL, which kgops did not send"),
        options=TRAIN,
        curves=training(20, (0.24, 0.09), 0.61, epoch_s=5.9),
        took_mib=655.0,
        progress=("train", 20.0, 100.0, "epochs"),
    )


def _regression() -> Iterator[SampleRun]:
    flights = {"data_directory": "/made/up/flights"}
    base = SampleRun(
        *("regress", "heights, small", flights, 15.3, 74.0),
        options=REGRESS,
        curves=(
            SampleCurve("loss", 1.42, 0.118, points=40, steps=40),
            SampleCurve("valid_mae", 1.1, 0.231, points=40, steps=40),
        ),
        metrics={"test_mae": 0.244, "test_loss": 0.121, "best_epoch": 37.0},
        parts_mib={
            "weights": 12.0,
            "gradients": 12.0,
            "optimizer": 24.0,
            "activations": 5120.0,
            "data": 640.0,
        },
        took_mib=5990.0,
        progress=("train", 40.0, 40.0, "epochs"),
    )
    yield base
    microbatches = fallback("microbatch", 8, 2, "smaller microbatches; the same step up to rounding")
    yield replace(
        base,
        label="heights, full frames",
        days=2.9,
        minutes=211.0,
        tries=(
            SampleAttempt("out_of_memory", 0.01, _NO_ROOM, microbatches, 0.99),
            SampleAttempt("succeeded", 0.99),
        ),
        metrics={"test_mae": 0.207, "test_loss": 0.098, "best_epoch": 39.0},
        parts_mib={
            "weights": 12.0,
            "gradients": 12.0,
            "optimizer": 24.0,
            "activations": 13_800.0,
            "data": 640.0,
        },
        took_mib=14650.0,
    )
    yield replace(
        base,
        label="heights, bad flight",
        days=7.7,
        minutes=0.4,
        state="failed",
        reason="flight_07.h5: frame 212 of 480 is missing",
        curves=(),
        metrics={},
        took_mib=None,
        progress=None,
    )


def _commands() -> Iterator[SampleRun]:
    def command(*words: str) -> dict[str, object]:
        return {"command": ["python", *words]}

    yield SampleRun(
        *("exec", "evaluate baseline", command("eval.py", "--run", "1"), 28.3, 3.4),
        curves=(SampleCurve("mrr", 0.05, 0.3142, points=20, steps=20),),
        took_mib=1410.0,
        on_gpu=False,
        tags=("paper",),
    )
    gone = "exit code 3"
    yield SampleRun(
        *("exec", "prepare triples", command("prepare.py"), 27.5, 0.3, "failed", gone),
        took_mib=210.0,
        on_gpu=False,
        log=("FileNotFoundError: [Errno 2] No such file or directory: 'raw/edges.tsv'",),
    )
    half = fallback("batch_size", 64, 32, "the command's own next value")
    yield SampleRun(
        *(
            "exec",
            "their train.py",
            {**command("train.py", "--batch-size", "{batch_size}"), "on_oom": {"batch_size": [64, 32]}},
        ),
        *(26.8, 42.0),
        tries=(SampleAttempt("out_of_memory", 0.1, _NO_ROOM, half, 0.99), SampleAttempt("succeeded", 0.9)),
        curves=(SampleCurve("loss", 2.3, 0.41, points=50, steps=5000),),
        took_mib=14400.0,
    )
    yield SampleRun(
        *("exec", "long export", command("export.py"), 5.2, 18.0, "cancelled", "stopped by the person"),
        took_mib=890.0,
        on_gpu=False,
    )
