"""Contents of the wheel: everything that the program reads, under one name."""

import zipfile
from email.parser import Parser
from importlib.metadata import PackagePath
from pathlib import Path

import pytest

from tests.wheel import build_wheel, packaged_folders, tracked

pytestmark = pytest.mark.packages


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


def metadata(wheel: zipfile.ZipFile, name: str) -> str:
    [path] = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def test_the_wheel_has_every_file_of_the_packaged_folders_and_no_other(wheel: zipfile.ZipFile):
    shipped = {f"parley/{name}" for name in tracked(*packaged_folders())}
    own = {name for name in tracked("parley") if name.endswith(".py")}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == shipped | own
    kinds = {Path(name).suffix for name in found}
    assert {".yaml", ".html", ".js", ".css", ".svg", ".npz", ".json", ".tsv", ".md", ".opus"} <= kinds


def test_its_only_top_level_package_is_parley(wheel: zipfile.ZipFile):
    tops = {PackagePath(name).parts[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"parley"}


def test_its_metadata_names_the_command_the_version_and_the_interpreters(wheel: zipfile.ZipFile):
    known = Parser().parsestr(metadata(wheel, "METADATA"))
    assert (known["Name"], known["Version"]) == ("parley", "0.2.0")
    assert set(known["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    assert "parley = parley.command.main:console_script" in metadata(wheel, "entry_points.txt")
    assert "Apache" in metadata(wheel, "licenses/LICENSE")
    assert metadata(wheel, "licenses/NOTICE")
