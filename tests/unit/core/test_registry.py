import pytest

from core.errors import ConfigError
from core.registry import Registry, Row


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
