"""Packages that a server imports, against those that an installation of the wheel brings.

The environment of the tests has the packages of every extra, so an import that ``pyproject.toml`` does not
declare would only fail at a user's.
"""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
# What ``parley serve`` imports before it reads a deployment.
SERVER = """
import json, sys
import parley.command.main, parley.command.run, parley.command.server, parley.serving.gateway.app
import parley.pipelines.dispatch
print(json.dumps([module.__file__ for name, module in sys.modules.items()
                  if name.split(".")[0] == "parley" and getattr(module, "__file__", None)]))
"""


def plain_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_with(requirements: list[str]) -> set[str]:
    """Return the packages that these requirements bring, with those that they require in turn."""
    found: set[tuple[str, tuple[str, ...]]] = set()
    open_requirements = [(Requirement(each), ("",)) for each in requirements]
    while open_requirements:
        requirement, extras = open_requirements.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        key = plain_name(requirement.name), tuple(sorted(requirement.extras))
        if key in found:
            continue
        found.add(key)
        try:
            following = requires(requirement.name) or []
        except PackageNotFoundError:  # of another platform or interpreter
            continue
        open_requirements += [(Requirement(each), ("", *requirement.extras)) for each in following]
    return {name for name, _ in found}


def imported_by(file: Path) -> Iterator[str]:
    """Yield the foreign modules that a file imports when it is loaded."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module]
        yield from (name.split(".")[0] for name in names)


def test_a_server_imports_only_declared_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = installed_with(project["dependencies"])
    done = subprocess.run(
        [sys.executable, "-c", SERVER], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    files = [Path(each) for each in json.loads(done.stdout.splitlines()[-1])]
    assert len(files) > 300
    packages = packages_distributions()
    imported = {name for file in files for name in imported_by(file)}
    undeclared = {
        name
        for name in imported - sys.stdlib_module_names - {"parley"}
        if not {plain_name(each) for each in packages.get(name, [])} & declared
    }
    assert undeclared == set()
