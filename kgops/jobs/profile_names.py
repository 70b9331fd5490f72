"""Names of the profiles that are chosen where the GPU has none of its own."""

AUTO = "auto"  # for any machine
CPU = "cpu"  # without a GPU
