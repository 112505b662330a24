"""Print the size of what `make run` installs from nothing.

    .venv/bin/python -m scripts.installed_size

Counted are the files of the packages of ``requirements/run.lock`` and ``requirements/weights.lock``, by the
record that each installed package has of its own files, and the embedded recogniser's weights. Compiled
modules, which are written when they are first imported, and the system's packages are not.
"""

import re
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCKS = (ROOT / "requirements" / "run.lock", ROOT / "requirements" / "weights.lock")
WEIGHTS = ROOT / "models-cache" / "moonshine" / "tiny-en"
MEGABYTE = 1_000_000
# Largest packages that are printed.
LARGEST = 8
_PINNED = re.compile(r"[A-Za-z0-9._-]+(?:\[[^\]]*\])?==")


def pinned_names(locks: Iterable[Path] = LOCKS) -> list[str]:
    """Return the names of the packages that lock files pin for this platform and interpreter."""
    lines = (line for lock in locks for line in lock.read_text(encoding="utf-8").splitlines())
    pinned = (Requirement(_without_hash(line)) for line in lines if _PINNED.match(line))
    return sorted(
        {canonicalize_name(each.name) for each in pinned if each.marker is None or each.marker.evaluate()}
    )


def _without_hash(line: str) -> str:
    return line.partition(" --hash")[0].rstrip(" \\")


def size_of(name: str) -> int | None:
    """Return the bytes of an installed package's files by its record; None when it is not installed."""
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        return None
    return sum(file.size or 0 for file in files)


def size_of_weights(folder: Path = WEIGHTS) -> int:
    """Return the bytes of the recogniser's weights; 0 where they were not fetched."""
    return sum(file.stat().st_size for file in folder.glob("*") if file.is_file())


def main() -> int:
    """Print the sizes; return 1 when a package is missing, so that the sum is too small."""
    sizes = {name: size_of(name) for name in pinned_names()}
    missing = [name for name, size in sizes.items() if size is None]
    known = {name: size for name, size in sizes.items() if size is not None}
    packages, weights = sum(known.values()), size_of_weights()
    largest = sorted(known.items(), key=lambda each: -each[1])[:LARGEST]
    print(f"packages: {packages / MEGABYTE:.0f} MB in {len(known)}")
    print(f"weights of the recogniser: {weights / MEGABYTE:.0f} MB")
    print(f"together: {(packages + weights) / MEGABYTE:.0f} MB")
    print("largest: " + ", ".join(f"{name} {size / MEGABYTE:.0f} MB" for name, size in largest))
    if missing:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
