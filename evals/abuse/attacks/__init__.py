"""The attacks, by the kind of what they use. Each module puts its own on the list when it is imported."""

from importlib import import_module

# In the order of the report.
MODULES = (
    "floods", "identity", "places", "engines", "ending", "sharing", "overload", "prompts", "mutating",
    "readers", "storage",
)  # fmt: skip


def load() -> None:
    """Import all of them."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
