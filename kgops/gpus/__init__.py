"""Cards: what NVML says of them (`nvml`) and what is known of their models (`known`).

Nothing is imported here: the supervisor loads `kgops.gpus.nvml` alone and pays for every line.
"""
