"""The interpreter of which ``make`` creates its environment."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "python_venv.sh"


def add_interpreter(folder: Path, name: str, version: str) -> None:
    """Add a command that answers as that version of Python and creates an environment with its name in it."""
    major, minor = version.split(".")
    command = folder / name
    command.write_text(
        f"""#!/bin/sh
case "$1" in
  --version) echo "Python {version}.0" ;;
  -c) case "$2" in
        *version_info*) exec {sys.executable} -c "import sys; sys.version_info = ({major}, {minor}, 0); $2" ;;
      esac ;;
  -m) mkdir -p "$3" && echo {name} > "$3/made_by" ;;
esac
"""
    )
    command.chmod(0o755)


def create(folder: Path, python: str, found: dict[str, str]) -> subprocess.CompletedProcess[str]:
    commands = folder / "commands"
    commands.mkdir()
    for tool in ("sh", "mkdir", "dirname"):
        (commands / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    for name, version in found.items():
        add_interpreter(commands, name, version)
    return subprocess.run(
        ["sh", SCRIPT, python, folder / "environment"],
        env={"PATH": str(commands)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ({"python3.11": "3.11", "python3.13": "3.13", "python3": "3.13"}, "python3.11"),
        ({"python3.12": "3.12", "python3": "3.12"}, "python3.12"),
        ({"python3": "3.13"}, "python3"),
    ],
)
def test_the_oldest_supported_python_is_taken(tmp_path: Path, found: dict[str, str], chosen: str):
    done = create(tmp_path, "", found)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "environment" / "made_by").read_text().strip() == chosen


def test_a_named_python_is_taken_before_an_older_one(tmp_path: Path):
    done = create(tmp_path, "python3.13", {"python3.11": "3.11", "python3.13": "3.13"})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "environment" / "made_by").read_text().strip() == "python3.13"


@pytest.mark.parametrize(("name", "version"), [("python3", "3.10"), ("python3", "3.14")])
def test_another_version_is_refused_in_one_line(tmp_path: Path, name: str, version: str):
    done = create(tmp_path, "", {name: version})
    assert done.returncode == 1
    assert done.stderr == (
        f"Parley needs Python 3.11, 3.12 or 3.13 ({name} is Python {version}.0); "
        "set PYTHON=/path/to/python3.11\n"
    )
    assert not (tmp_path / "environment").exists()


def test_no_python_at_all_is_one_line(tmp_path: Path):
    done = create(tmp_path, "", {})
    assert done.returncode == 1
    assert done.stderr == (
        "Parley needs Python 3.11, 3.12 or 3.13 (python3 is not found); set PYTHON=/path/to/python3.11\n"
    )
