"""Options of the workload `regress`: cloud heights from windows of camera frames."""

from __future__ import annotations

from kgops.jobs.option import Flag, Option, above, at_least, below_one, defaults_of, one_of, share, size
from kgops.workloads.shared_options import (
    BATCH_SIZE,
    COMPILE,
    DEVICE,
    GRADIENT_CHECKPOINTING,
    LEARNING_RATE,
    MEMORY_CLEANUP,
    NUM_WORKERS,
    PRECISION,
    RESUME_EVERY,
    SCALE_GRADIENTS,
    SEED,
    grouped,
    number,
    switch,
)

# mse and mae are plain. huber has `huber_delta`. `weighted_` weighs heights predicted too low by `under_weight`.
# mse_mae mixes by `loss_alpha`. huber_mae and weighted_huber_mae mix with |error|^gamma by `loss_alpha`.
LOSSES = ("huber", "mse", "mae", "mse_mae", "huber_mae", "weighted_huber", "weighted_huber_mae")
OPTIMIZERS = ("adamw", "adam", "sgd")
SCHEDULES = ("plateau", "cosine", "constant")
ARCHITECTURES = ("transformer", "gnn", "ssm", "cnn")
ANGLES_MODES = ("both", "sza_only", "saa_only", "none")
FOLDERS = ("data_directory", "output_directory")


_DATA = grouped(
    "data",
    Option("data_directory", help="Folder of flights, one HDF5 or npz file each."),
    Option(
        "output_directory",
        help="Folder for a copy of the results once the run has succeeded.",
        flags=(Flag("--output-dir"), Flag("--output-directory", hidden=True)),
    ),
    Option("save_name", help="Name of the results in that folder."),
    Option("image_size", check=size, help="Height x width of frames, to plan without data."),
    Option("pretrain_flight", help="Flight to pretrain on; default: the one with most frames."),
    Option("validation_flight", help="Validation flight; default: the last by name."),
    Option("overweight_flight", help="Flight with a larger weight; default: the pretraining flight."),
    number("overweight_factor", 1.0, above(0), "Weight of that flight."),
    switch("augment", False, "Mirror training frames and shift their brightness."),
    switch("flat_field_correction", False, "Subtract the mean frame of the training flights."),
    switch(
        "zscore_normalize", True, "Normalize to mean 0 and standard deviation 1 over the training flights."
    ),
)
_MODEL = grouped(
    "model",
    Option(
        "architecture",
        default="transformer",
        check=one_of(*ARCHITECTURES),
        help=f"Network that combines the frames of a window: {', '.join(ARCHITECTURES)}.",
        flags=(Flag(""), Flag("--architecture-name", hidden=True)),
    ),
    Option(
        "angles_mode", default="both", check=one_of(*ANGLES_MODES), help="Sun angles given to the network."
    ),
    switch("use_spatial_attention", True, "Attention over the pixels of a frame."),
    switch("use_temporal_attention", True, "Attention over the frames of a window; transformer only."),
    number("dropout", 0.0, below_one, "Dropout in the output head."),
)
_TRAINING = grouped(
    "training",
    Option(
        "epochs",
        "int",
        50,
        check=at_least(1),
        help="Most epochs over the training windows.",
        flags=(Flag("--num-epochs"), Flag("--epochs", hidden=True)),
    ),
    switch("pretrain", True, "Pretrain on one flight."),
    switch("final", True, "Train on all flights but the validation flight, then evaluate."),
    switch("loo", False, "Leave-one-out: hold out each flight in turn."),
    Option("loo_epochs", "int", 30, check=at_least(1), help="Most epochs for each held-out flight."),
    Option("loss_type", default="huber", check=one_of(*LOSSES), help=f"Training loss: {', '.join(LOSSES)}."),
    number("loss_alpha", 0.5, share, "Share of the first term of a mixed loss."),
    number("huber_delta", 1.0, above(0), "Error above which the Huber loss is linear."),
    number("gamma", 1.5, above(0), "Exponent of the error in a mixed Huber loss."),
    number("under_weight", 1.0, above(0), "Weight of heights predicted too low."),
    Option(
        "optimizer", default="adamw", check=one_of(*OPTIMIZERS), help=f"Optimizer: {', '.join(OPTIMIZERS)}."
    ),
    Option(
        "scheduler",
        default="plateau",
        check=one_of(*SCHEDULES),
        help=f"Learning rate schedule: {', '.join(SCHEDULES)}.",
        flags=(Flag("--schedule"), Flag("--scheduler", hidden=True)),
    ),
    LEARNING_RATE.adapted(check=above(0)),
    number("weight_decay", 0.04, at_least(0), "Weight decay of the optimizer."),
    Option("warmup_steps", "int", 0, check=at_least(0), help="Steps of linear learning rate warmup."),
    Option(
        "early_stopping_patience",
        "int",
        15,
        check=at_least(0),
        help="Epochs without an improvement before stopping; 0: never.",
    ),
    number(
        "early_stopping_min_delta",
        0.0,
        at_least(0),
        "Least decrease of the loss that counts as an improvement.",
    ),
    SEED,
)
_SPEED = grouped(
    "memory and speed",
    PRECISION.adapted(flags=(Flag(""),)),
    BATCH_SIZE.adapted(
        default=16, help="Windows per optimizer step.", steps=tuple(1 << n for n in range(10))
    ),
    Option(
        "microbatch",
        "choice",
        "auto",
        choices=("auto", int),
        effect="rounding",
        summary="examples per pass; gradients add up",
        help="Windows per forward pass; gradients are accumulated over the batch.",
        steps=tuple(1 << n for n in range(10)),
        in_form=True,
    ),
    Option(
        "temporal_frames",
        "choice",
        5,
        choices=(int,),
        effect="changes results",
        summary="frames per window",
        help="Frames per window.",
        steps=(1, 3, 5, 7, 9),
        in_form=True,
    ),
    Option(
        "memory_optimized",
        "choice",
        False,
        choices=(True, False),
        effect="changes results",
        summary="half the channels of the image network",
        help="Smaller network with half the channels; changes results.",
        in_form=True,
    ),
    GRADIENT_CHECKPOINTING.adapted(flags=(Flag(""),)),
    COMPILE,
    MEMORY_CLEANUP.adapted(flags=(Flag(""),)),
    NUM_WORKERS,
    SCALE_GRADIENTS,
    DEVICE,
)

REGRESS_OPTIONS = (
    *_DATA,
    *_MODEL,
    *_TRAINING,
    *_SPEED,
    RESUME_EVERY,
    Option(
        "left_out",
        "strings",
        [],
        help="Configuration keys that kgops does not support; the run reports them.",
        flags=(),
    ),
)


_REGRESS = defaults_of(REGRESS_OPTIONS)

REGRESS_BATCH: int = _REGRESS["batch_size"]  # windows
REGRESS_FRAMES: int = _REGRESS["temporal_frames"]  # of a window
REGRESS_IMAGES = "224x224"  # of frames, in a plan without data; the project it comes from names no size
REGRESS_VALIDATION_SHARE = 0.15  # of a flight's windows, its last ones
