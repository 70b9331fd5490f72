"""GPUs: what NVML says of them and what is known of their models.

Nothing is imported here: the supervisor loads `sampler` and `processes` alone and pays for every line.
"""
