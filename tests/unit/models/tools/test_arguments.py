"""Validation of arguments: the verdict follows the standard, the messages are written for a model."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.models.tools.arguments import MAX_FAULTS, argument_faults, schema_faults

TABLE = {
    "type": "object",
    "properties": {
        "day": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "description": "as 2026-11-21"},
        "people": {"type": "integer", "minimum": 1, "maximum": 12},
        "area": {"enum": ["inside", "terrace"]},
        "wishes": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 2},
        "contact": {
            "type": "object",
            "properties": {"phone": {"type": "string"}},
            "required": ["phone"],
            "additionalProperties": False,
        },
    },
    "required": ["day", "people"],
    "additionalProperties": False,
}
GOOD = {"day": "2026-11-21", "people": 2}


def test_what_fits_has_no_faults():
    full = {**GOOD, "area": "terrace", "wishes": ["quiet"], "contact": {"phone": "1"}}
    assert schema_faults(TABLE) == []
    assert argument_faults(TABLE, GOOD) == []
    assert argument_faults(TABLE, full) == []


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ({"day": "2026-11-21"}, ["people is missing"]),
        ({**GOOD, "people": "two"}, ["people must be a whole number"]),
        ({**GOOD, "people": True}, ["people must be a whole number"]),
        ({**GOOD, "people": 2.5}, ["people must be a whole number"]),
        ({**GOOD, "people": 0}, ["people must be at least 1"]),
        ({**GOOD, "people": 13}, ["people must be at most 12"]),
        ({**GOOD, "day": "tomorrow"}, [r"day must match the pattern ^\d{4}-\d{2}-\d{2}$"]),
        ({**GOOD, "area": "roof"}, ['area must be one of ["inside", "terrace"]']),
        ({**GOOD, "wishes": ["a", "b", "c"]}, ["wishes must be a list of at most 2"]),
        ({**GOOD, "wishes": ["quiet", 3]}, ["wishes[1] must be text"]),
        ({**GOOD, "contact": {}}, ["contact.phone is missing"]),
        ({**GOOD, "contact": {"phone": "1", "fax": "2"}}, ["contact.fax is not known"]),
        ({**GOOD, "smoking": True}, ["smoking is not known"]),
        ([], ["the arguments must be an object"]),
        (None, ["the arguments must be an object"]),
    ],
)
def test_what_does_not_fit_is_told_in_words(arguments: Any, faults: list[str]):
    assert argument_faults(TABLE, arguments) == faults


def test_a_value_itself_is_not_told():
    assert "4111" not in " ".join(argument_faults(TABLE, {**GOOD, "people": "4111 1111"}))


def test_many_faults_are_cut_short():
    schema = {"type": "object", "required": [f"p{n}" for n in range(50)]}
    assert len(argument_faults(schema, {})) == MAX_FAULTS


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "needs 'type: object'"),
        ([], "must be a schema, an object"),
        ({"type": "object", "$ref": "#/x"}, "'$ref' is not checked here"),
        ({"type": "object", "properties": {"a": {"oneOf": []}}}, "parameters.properties.a: 'oneOf'"),
        (
            {"type": "object", "properties": {"a": {"type": "str"}}},
            "properties.a.type: must be one",
        ),
        ({"type": "object", "properties": []}, "parameters.properties: must be schemas by name"),
        ({"type": "object", "required": "day"}, "parameters.required: must be a list of names"),
        (
            {"type": "object", "properties": {"a": {"pattern": "("}}},
            "a.pattern: must be a regular",
        ),
        ({"type": "object", "properties": {"a": {"minimum": "1"}}}, "a.minimum: must be a number"),
        ({"type": "object", "properties": {"a": {"maxLength": -1}}}, "a.maxLength: must be a whole number"),
        ({"type": "object", "properties": {"a": {"items": []}}}, "a.items: must be a schema"),
        ({"type": "object", "properties": {"a": {"enum": []}}}, "a.enum: must be a list of values"),
        ({"type": "object", "additionalProperties": {"allOf": []}}, "additionalProperties: 'allOf'"),
        ({"type": "object", "anyOf": [{"not": {}}]}, "parameters.anyOf.0: 'not' is not checked"),
        ({"type": []}, "parameters.type: must be one or several of"),
        ({"type": ["object", 3]}, "parameters.type: must be one or several of"),
        ({"type": [{"a": 1}, [1]]}, "parameters.type: must be one or several of"),
        ({"type": {"object": 1}}, "parameters.type: must be one or several of"),
    ],
)
def test_rules_that_no_one_checks_are_refused(schema: Any, words: str):
    assert words in "; ".join(schema_faults(schema))


# Values of few shapes, so that they often match the rules.
WORDS = st.sampled_from(["", "a", "ab", "abc", "1", "\u00e9"])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 0.5, 1.0, 2.0, 10**20, 1e300])
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=8,
)
TYPES = st.sampled_from(["object", "array", "string", "boolean", "null", "number", "integer"])


def _schemas(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    sizes = st.integers(0, 3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=2, unique=True)),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "required": st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True),
            "additionalProperties": st.one_of(st.booleans(), inner),
            "items": inner,
            "pattern": st.sampled_from(["a", "^a", "b$", "[0-9]", "^.{2}$"]),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "minimum": NUMBERS,
            "maximum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "minLength": sizes,
            "maxLength": sizes,
            "minItems": sizes,
            "maxItems": sizes,
            "description": WORDS,
        },
    )


SCHEMAS = st.recursive(st.just({}), _schemas, max_leaves=6)


@settings(max_examples=400, deadline=None)
@given(schema=SCHEMAS, value=VALUES)
def test_the_verdict_is_that_of_the_reference_implementation(schema: dict[str, Any], value: Any):
    validator = jsonschema.Draft202012Validator(schema)
    assert (argument_faults(schema, value) == []) == validator.is_valid(value)


def test_a_pattern_that_backtracking_takes_years_for_is_searched_in_linear_time():
    schema = {"type": "object", "properties": {"code": {"type": "string", "pattern": "^(a+)+$"}}}
    assert schema_faults(schema) == []
    assert argument_faults(schema, {"code": "a" * 900}) == []
    assert argument_faults(schema, {"code": "a" * 900 + "b"}) == ["code must match the pattern ^(a+)+$"]


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?=a)b",
        r"(a)\1",
        "((a{100}){100}){100}",
        r"\p{L}{1,1000}",
        "(?:" * 2_000 + "a" + ")" * 2_000,
        "\ud800",
    ],
)
def test_a_pattern_without_a_bound_in_time_or_size_is_refused(pattern: str):
    [fault] = schema_faults({"type": "object", "properties": {"a": {"pattern": pattern}}})
    assert "a.pattern: must be a regular expression as RE2 has it" in fault


def test_a_text_that_is_too_long_to_be_matched_does_not_fit():
    schema = {"type": "object", "properties": {"code": {"pattern": "a"}}}
    [fault] = argument_faults(schema, {"code": "a" * 1_001})
    assert "at most 1000 characters" in fault
    assert argument_faults(schema, {"code": "\ud800"}) == [fault]


def test_a_schema_has_bounds():
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(2_000):
        deep = {"type": "object", "properties": {"a": deep}}
    assert "schemas deep" in schema_faults(deep)[0]
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1_001)}}
    assert "over 1000 schemas" in schema_faults(wide)[0]
    assert "values in enums" in schema_faults({"type": "object", "enum": list(range(2_001))})[0]
    coded = {"type": "object", "properties": {f"p{n}": {"pattern": "a"} for n in range(65)}}
    assert "over 64 patterns" in schema_faults(coded)[0]


def test_arguments_that_take_too_many_steps_are_not_checked_to_their_end():
    choices = {"type": "array", "items": {"anyOf": [{"const": n} for n in range(900)]}}
    schema = {"type": "object", "properties": {"all": choices}}
    assert schema_faults(schema) == []
    assert argument_faults(schema, {"all": [899]}) == []
    assert argument_faults(schema, {"all": [899] * 10_000})[-1] == "the arguments are too large to be checked"


def test_searches_in_long_texts_are_counted_by_their_length():
    # 10 ms for a text of 1,000 characters: sixty of them blocked the event loop for 0.6 s.
    slow = {"type": "string", "pattern": r"[^\x00]{0,184}[^\x01]{0,184}z"}
    schema = {"type": "object", "properties": {"all": {"type": "array", "items": slow}}}
    assert schema_faults(schema) == []
    long = "ab" * 490 + "z"
    assert argument_faults(schema, {"all": [long] * 3}) == []
    assert argument_faults(schema, {"all": [long] * 4}) == ["the arguments are too large to be checked"]
    assert argument_faults(schema, {"all": [f"code {n} z" for n in range(60)]}) == []


def test_a_fault_shows_the_beginning_of_a_long_list_of_allowed_values():
    [fault] = argument_faults({"type": "object", "enum": ["x" * 2_000]}, {})
    assert len(fault) < 1_100 and fault.endswith("...")
