import pytest

from parley.core.errors import ConfigError
from parley.core.yaml_text import parse_yaml_value


@pytest.mark.parametrize(
    ("text", "value"),
    [("on", "on"), ("no", "no"), ("true", True), ("3", 3), ("", None), ("[a, 1.5]", ["a", 1.5])],
)
def test_a_value_is_that_of_yaml_1_2(text: str, value: object) -> None:
    assert parse_yaml_value(text, where="x") == value


@pytest.mark.parametrize("text", ["[", "a: b: c", "2026-13-45", "[" * 5_000, "!!python/name:os.system"])
def test_what_is_no_yaml_is_a_config_error_that_names_the_place(text: str) -> None:
    with pytest.raises(ConfigError, match="the file is not YAML"):
        parse_yaml_value(text, where="the file")
