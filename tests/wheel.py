"""The wheel of this checkout, as a user builds it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD_S = 180
WITH_IT = ("pyproject.toml", "README.md", "LICENSE", "NOTICE")


def packaged_folders() -> list[str]:
    """Return the names of the folders that are linked into the import package."""
    return sorted(path.name for path in (ROOT / "parley").iterdir() if path.is_symlink())


def tracked(*paths: str) -> list[str]:
    """Return the files of the repository below some paths. A link is one of them, and not followed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in listed.stdout.split("\0") if name and os.path.lexists(ROOT / name)]


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy, because building leaves files next to the sources; return its path."""
    source = folder / "source"
    for name in tracked("parley", *packaged_folders(), *WITH_IT):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([*pip, "-w", str(folder / "built"), str(source)], check=True, timeout=BUILD_S)
    [wheel] = (folder / "built").glob("*.whl")
    return wheel
