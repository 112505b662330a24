"""The attacks, grouped by kind. Each module adds its own to the list when it is imported."""

from importlib import import_module

# In the order of the report.
MODULES = (
    "floods", "annotations", "identity", "places", "engines", "ending", "sharing", "overload", "prompts",
    "addresses", "mutating", "readers", "storage",
)  # fmt: skip


def load() -> None:
    """Import all modules of attacks."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
