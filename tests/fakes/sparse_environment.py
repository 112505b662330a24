"""A Python environment with few packages, made of one with many: only named packages can be imported.

``python -m tests.fakes.sparse_environment ALLOWED PROGRAM ARGUMENT...`` runs PROGRAM; ALLOWED are names of
top-level modules, separated by commas. The project's own modules and the standard library are always there.
"""

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


class Sparse(MetaPathFinder):
    """Import finder that refuses modules of site-packages that are not allowed."""

    def __init__(self, allowed: set[str]) -> None:
        self._allowed = allowed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = fullname.partition(".")[0]
        if name in self._allowed or "." in fullname:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and "site-packages" in str(spec.origin or spec.submodule_search_locations):
            raise ModuleNotFoundError(f"No module named {name!r} (not in this environment)", name=name)
        return None


def main() -> None:
    """Run a program with the allowed packages."""
    allowed, program, *arguments = sys.argv[1:]
    sys.meta_path.insert(0, Sparse(set(allowed.split(","))))
    sys.path.insert(0, str(ROOT))
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
