"""One value and reason for an option of both stages of a pipeline."""

from __future__ import annotations

from kgops.jobs.on_device import Applied, ValueAndReason


def combined_option(first: Applied, then: Applied) -> ValueAndReason:
    """One option's value and reason for a pipeline: those of training and of TracIn, once where they agree."""
    value, reasons = then.value, [first.reason, then.reason]
    if first.option == "memory_cleanup" and then.reason and first.value == value != "off":
        return value, f"training: {first.reason}; TracIn: {then.reason}"
    if first.value != value:
        value = f"{first.value}, then {value}"
        reasons.insert(0, "first training, then TracIn")
    return value, "; ".join(dict.fromkeys(filter(None, reasons))) or None
