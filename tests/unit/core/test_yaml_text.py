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


def test_a_key_that_a_mapping_has_twice_is_refused():
    text = "bot:\n  name: Anna\nserver: {port: 1}\nbot:\n  greeting: Hello\n"
    with pytest.raises(ConfigError) as refused:
        parse_yaml_value(text, where="own.yaml")
    assert str(refused.value) == "own.yaml: line 4: the key 'bot' is there already, in line 1"


def test_a_key_twice_in_one_line_is_refused():
    with pytest.raises(ConfigError, match="line 1: the key 'a' is there already, in line 1"):
        parse_yaml_value("{a: 1, b: 2, a: 3}", where="own.yaml")


def test_keys_that_a_mapping_merges_may_be_its_own_too():
    text = "base: &base {a: 1, b: 2}\nown: {<<: *base, a: 3}\n"
    assert parse_yaml_value(text, where="own.yaml")["own"] == {"a": 3, "b": 2}
