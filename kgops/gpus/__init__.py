"""GPUs: readings from NVML and facts about known models.

Nothing is imported here: the supervisor loads `sampler` and `processes` alone and pays for every line.
"""
