"""The wheel with its own dependencies, from the package index, on each interpreter of its metadata."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.test_installed_wheel import environment, run
from tests.wheel import build_wheel

pytestmark = [pytest.mark.packages, pytest.mark.slow]
INSTALL_S = 1_800


def interpreter(version: str) -> Path:
    """Return the interpreter of a minor version: of the system, of pyenv or of uv; skip without one."""
    commands = (
        (f"python{version}", "-c", "import sys; print(sys.executable)"),
        ("uv", "python", "find", version),
    )
    for command in commands:
        if shutil.which(command[0]):
            found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            if found.returncode == 0:
                return Path(found.stdout.strip())
    if shutil.which("pyenv"):
        latest = subprocess.run(["pyenv", "latest", version], capture_output=True, text=True, timeout=60)
        if latest.returncode == 0:
            prefix = subprocess.run(
                ["pyenv", "prefix", latest.stdout.strip()],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            return Path(prefix.stdout.strip()) / "bin" / "python"
    pytest.skip(f"neither the system nor pyenv nor uv has Python {version}")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(params=["3.11", "3.12", "3.13"])
def parley(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield the command ``parley`` in an environment that has the wheel and what it depends on."""
    folder = tmp_path / "environment"
    subprocess.run([interpreter(request.param), "-m", "venv", folder], check=True, timeout=300)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    done = subprocess.run(
        [*pip, str(wheel)], env=environment(), capture_output=True, text=True, timeout=INSTALL_S
    )
    assert done.returncode == 0, done.stderr
    yield folder / "bin" / "parley"
    # Half a gigabyte each.
    shutil.rmtree(folder)


def test_a_typed_conversation_is_held_from_the_index(parley: Path, tmp_path: Path):
    folder = tmp_path / "empty"
    folder.mkdir()
    made = run(parley, "init", folder=folder)
    assert made.returncode == 0, made.stderr
    checked = run(parley, "check", "--config", "parley.yaml", folder=folder)
    assert (checked.returncode, checked.stdout) == (0, "mine: nothing is missing\n"), checked.stderr
    said = subprocess.run(
        [parley, "text", "--config", "parley.yaml"],
        cwd=folder,
        env=environment(),
        input="What are your opening hours on Saturday?\n",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert said.returncode == 0, said.stderr
    assert "ten until two" in said.stdout
