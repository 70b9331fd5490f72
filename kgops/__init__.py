"""kgops: plan, supervise and measure knowledge-graph embedding runs on GPU servers."""

from importlib import import_module

__version__ = "0.1.0"

# Another distribution that also ships `screens` or `storage` may overwrite ours: pip and uv both allow it.
# Stop here rather than write to the database with foreign code.
for _name in ("screens", "storage"):
    _module = import_module(_name)
    if getattr(_module, "PART_OF", None) != "kgops":
        raise ImportError(f"kgops needs its own '{_name}' package; Python found {_module!r}.")
