"""kgops: plan, supervise and measure knowledge-graph embedding runs on GPU servers."""

from importlib import import_module

__version__ = "0.1.0"

# Another distribution that owns `screens` or `storage` overwrites ours without a word
# (pip and uv both allow it); better to stop here than to write a record with foreign code.
for _name in ("screens", "storage"):
    _found = import_module(_name)
    if getattr(_found, "PART_OF", None) != "kgops":
        raise ImportError(f"kgops needs its own '{_name}' package; Python found {_found!r}.")
