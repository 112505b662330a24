"""Words of an MCP server about a failure, as a model may read them."""

import pytest

from parley.models.tools.mcp_reasons import MOST_CHARS, REMOVED, secrets_among, shown_reason


def test_a_long_text_is_cut_and_on_one_line():
    said = shown_reason("out of\n\tstock \x1b[31m\u202e" + "and more " * 1_000_000)
    assert said.startswith("out of stock [31m and more") and said.endswith("...") and len(said) == MOST_CHARS


def test_secrets_of_the_deployment_are_removed_wherever_they_stand():
    secrets = secrets_among(["Bearer sesame-opens-it", "eu-1", "key.with.dots"])
    # A short value is a word like any other.
    assert secrets == ("Bearer sesame-opens-it", "sesame-opens-it", "key.with.dots")
    said = shown_reason("in eu-1: 'sesame-opens-it', Bearer sesame-opens-it, key.with.dots!", secrets)
    assert said == f"in eu-1: '{REMOVED}', {REMOVED}, {REMOVED}!"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("api_key=abc123, retry", f"api_key={REMOVED}, retry"),
        ('{"token": "abc"}', '{"token": [removed]'),
        ("Authorization: Basic dXNlcg== was refused", f"Authorization: {REMOVED} was refused"),
        ("used Bearer abc.def.ghi", f"used Bearer {REMOVED}"),
        ("GET https://a.example/b?key=1 failed", f"GET https://a.example/b?{REMOVED} failed"),
        ("see https://ada:pw@a.example/b", f"see https://{REMOVED}@a.example/b"),
        ("the token has expired", "the token has expired"),
    ],
)
def test_texts_that_look_like_credentials_are_removed(text: str, shown: str):
    assert shown_reason(text) == shown
