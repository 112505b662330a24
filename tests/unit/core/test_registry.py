from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.core.registry import Registry, Row


def test_a_row_is_imported_when_it_is_asked_for():
    registry: Registry[object] = Registry("thing", {"decimal": "decimal:Decimal"})
    assert str(registry.create("decimal", "1.5")) == "1.5"


def test_an_unknown_name_lists_the_known_ones():
    registry: Registry[object] = Registry("thing", {"b": "x:y", "a": "x:y"})
    with pytest.raises(ConfigError, match=r"unknown thing 'c' \(known: a, b\)"):
        registry.create("c")


def test_a_missing_package_names_the_extra():
    registry: Registry[object] = Registry("thing", {"x": Row("no_such_package_here:Thing", extra="thing")})
    with pytest.raises(ConfigError, match=r"pip install -e '.\[thing\]'"):
        registry.create("x")


def test_a_broken_module_without_extra_is_not_disguised():
    registry: Registry[object] = Registry("thing", {"x": "no_such_package_here:Thing"})
    with pytest.raises(ImportError):
        registry.create("x")


def test_membership_and_order():
    registry: Registry[object] = Registry("thing", {"b": "x:y", "a": "x:y"})
    assert "a" in registry
    assert list(registry) == ["a", "b"]


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module that can be imported and is in no table."""
    (tmp_path / "parrot_engines.py").write_text("class Parrot:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "parrot_engines"


def test_a_module_of_the_deployments_own_is_taken_by_its_target(own_module: str):
    registry: Registry[object] = Registry("thing", {})
    assert f"{own_module}:Parrot" in registry
    assert type(registry.create(f"{own_module}:Parrot")).__name__ == "Parrot"


@pytest.mark.parametrize("target", ["no_such_module_here:Parrot", "parrot_engines:Cockatoo"])
def test_a_target_that_is_not_there_is_a_mistake_of_the_deployment(own_module: str, target: str):
    registry: Registry[object] = Registry("thing", {})
    with pytest.raises(ConfigError, match=f"thing '{target}' cannot be imported"):
        registry.create(target)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class Parrot(:\n", "SyntaxError: "),
        ("raise RuntimeError('no cage\\nin sight')\n", "RuntimeError: no cage in sight"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_mistake_of_the_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
):
    (tmp_path / "broken_parrot_engines.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry: Registry[object] = Registry("thing", {})
    with pytest.raises(ConfigError) as caught:
        registry.create("broken_parrot_engines:Parrot")
    text = str(caught.value)
    assert text.startswith(f"thing 'broken_parrot_engines:Parrot' cannot be imported: {message}")
    assert "\n" not in text


def test_what_cannot_be_called_is_no_factory():
    registry: Registry[object] = Registry("thing", {"own": "string:digits"})
    for name in ("own", "string:digits"):
        with pytest.raises(ConfigError, match=r"string:digits is neither .*, but of the type str"):
            registry.create(name)


@pytest.mark.parametrize("name", ["", ":", "a:", ":b", "a b:c", "a.:b", "a:b.c", "../a:b"])
def test_what_is_no_target_is_an_unknown_name(name: str):
    registry: Registry[object] = Registry("thing", {"a": "x:y"})
    assert name not in registry
    with pytest.raises(ConfigError, match="unknown thing"):
        registry.create(name)


def test_an_installed_package_adds_a_row_and_replaces_none(own_module: str, tmp_path: Path):
    metadata = tmp_path / "parrot-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[parley.small_thing]\nparrot = {own_module}:Parrot\ndecimal = {own_module}:Parrot\n"
    )
    registry: Registry[object] = Registry("small thing", {"decimal": "decimal:Decimal"})
    assert "parrot" in registry and registry.names() == ("decimal", "parrot")
    assert registry.row("parrot").summary == "of the package parrot"
    assert type(registry.create("parrot")).__name__ == "Parrot"
    assert str(registry.create("decimal", "1.5")) == "1.5"


def test_a_table_that_is_closed_takes_no_other_rows(own_module: str):
    registry: Registry[object] = Registry("thing", {"a": "x:y"}, is_extensible=False)
    assert f"{own_module}:Parrot" not in registry
    with pytest.raises(ConfigError, match="unknown thing"):
        registry.row(f"{own_module}:Parrot")
    assert registry.own_names() == registry.names() == ("a",)


def test_a_registry_without_rows_says_how_a_class_of_ones_own_is_named():
    with pytest.raises(ConfigError, match="unknown gadget 'x': no package registers one; name your own as "):
        Registry("gadget", {}).row("x")
