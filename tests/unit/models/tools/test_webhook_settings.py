"""Settings of webhooks in a deployment, and those that are refused before the server starts."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from parley.configs.deployment import Choice, Deployment
from parley.configs.load import parse_settings, parse_yaml
from parley.core.errors import ConfigError
from parley.models.tools.webhook import WebhookSettings
from parley.pipelines.engines.llm_runtime import plan_answering

BASE = {"name": "book_table", "description": "Books a table.", "url": "https://example.test/book"}


def settings(**changes: Any) -> WebhookSettings:
    return WebhookSettings(**{**BASE, **changes})


def test_the_smallest_tool_takes_no_arguments_and_is_not_taken_for_idempotent():
    smallest = settings()
    assert smallest.parameters == {"type": "object", "properties": {}}
    assert smallest.idempotent is False
    assert smallest.method == "POST"


@pytest.mark.parametrize(
    "url",
    [
        "https://example.test/book",
        "https://example.test:8443/book?shop=1",
        "http://localhost:8000/book",
        "http://127.0.0.1/book",
        "http://127.8.8.8/book",
        "http://[::1]:9/book",
    ],
)
def test_addresses_that_are_private_on_the_way_are_taken(url: str):
    assert settings(url=url).address() == url


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://example.test/book", "allow_plain_http"),
        ("http://10.0.0.1/book", "allow_plain_http"),
        ("http://localhost.example.test/book", "allow_plain_http"),
        ("http://2130706433/book", "allow_plain_http"),
        ("ftp://example.test/book", "must begin with https"),
        ("example.test/book", "must begin with https"),
        ("https:///book", "name a host"),
        ("https://user:secret@example.test/book", "contains a password"),
        ("https://example.test:port/", "not a valid URL"),
    ],
)
def test_other_addresses_are_refused(url: str, words: str):
    with pytest.raises(ValidationError, match=words) as caught:
        settings(url=url)
    assert "secret" not in caught.value.errors()[0]["msg"]


def test_plain_http_to_another_machine_has_to_be_asked_for():
    assert settings(url="http://10.0.0.1/book", allow_plain_http=True).address() == "http://10.0.0.1/book"


def test_there_is_one_address():
    with pytest.raises(ValidationError, match="either url or url_env"):
        settings(url=None)
    with pytest.raises(ValidationError, match="either url or url_env"):
        settings(url_env="BOOK_URL")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"headers": {"Authorization": "Bearer x"}}, "looks secret"),
        ({"headers": {"X-Api-Key": "x"}}, "looks secret"),
        ({"headers": {"Cookie": "x"}}, "looks secret"),
        ({"headers": {"X Shop": "1"}}, "is not a header name"),
        ({"headers": {"X-Shop": "1\r\nX-Evil: 2"}}, "that a header cannot"),
        ({"headers": {"idempotency-key": "1"}}, "set by the webhook itself"),
        ({"headers_env": {"Host": "BOOK_HOST"}}, "set by the webhook itself"),
        ({"headers": {"X-Shop": "1"}, "headers_env": {"x-shop": "SHOP"}}, "in headers and in headers_env"),
        ({"method": "GET"}, "POST"),
        ({"parameters": {"type": "object", "oneOf": []}}, "'oneOf' is not checked"),
        ({"parameters": {"type": "string"}}, "type: object"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, Any], words: str):
    with pytest.raises(ValidationError, match=words):
        settings(**changes)


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BOOK_URL", " https://example.test/from-env ")
    monkeypatch.setenv("BOOK_TOKEN", "Bearer abc")
    chosen = settings(
        url=None, url_env="BOOK_URL", headers={"X-Shop": "1"}, headers_env={"Authorization": "BOOK_TOKEN"}
    )
    chosen.check()
    assert chosen.address() == "https://example.test/from-env"
    assert chosen.all_headers() == {"X-Shop": "1", "Authorization": "Bearer abc"}
    assert "abc" not in repr(chosen)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "needs the environment variable BOOK_URL"),
        ("  ", "needs the environment variable BOOK_URL"),
        ("http://hidden.test/", "BOOK_URL: http to another machine"),
    ],
)
def test_an_address_in_the_environment_is_checked_like_one_in_the_file(
    monkeypatch: pytest.MonkeyPatch, value: str | None, words: str
):
    monkeypatch.delenv("BOOK_URL", raising=False)
    if value is not None:
        monkeypatch.setenv("BOOK_URL", value)
    with pytest.raises(ConfigError, match=words) as caught:
        settings(url=None, url_env="BOOK_URL").check()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "two\nlines"])
def test_a_secret_that_is_not_there_or_is_no_header_is_found_out_without_telling_it(
    monkeypatch: pytest.MonkeyPatch, value: str
):
    monkeypatch.setenv("BOOK_TOKEN", value)
    with pytest.raises(ConfigError, match="BOOK_TOKEN") as caught:
        settings(headers_env={"Authorization": "BOOK_TOKEN"}).check()
    assert "two" not in str(caught.value)


# In a deployment


def deployment(*tools: dict[str, Any], llm: str = "openai_compatible") -> Deployment:
    own = {"name": llm, "settings": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}}
    thinking = {"llm": own if llm == "openai_compatible" else {"name": llm}, "tools": list(tools)}
    return parse_settings(Deployment, {"thinking": thinking}, where="test.yaml")


def webhook(**changes: Any) -> dict[str, Any]:
    return Choice(name="webhook", settings={**BASE, **changes}).model_dump()


def test_tools_of_a_deployment_are_planned_in_their_order():
    planned = plan_answering(deployment(webhook(name="b"), webhook(name="a", idempotent=True))).tools
    assert [(row, chosen.name, chosen.idempotent) for row, chosen in planned] == [
        ("webhook", "b", False),
        ("webhook", "a", True),
    ]


def test_a_deployment_without_tools_has_none():
    assert plan_answering(deployment()).tools == ()


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ([{"name": "carrier_pigeon"}], r"unknown tool 'carrier_pigeon' \(known: mcp, webhook\)"),
        ([webhook(), webhook()], r"thinking.tools.1 \(webhook\): there is already a tool 'book_table'"),
        ([webhook(colour="red")], r"thinking.tools.0 \(webhook\): unknown field 'colour'"),
        ([webhook(url=None, url_env="NO_SUCH_VARIABLE")], "NO_SUCH_VARIABLE"),
        ([webhook(parameters={"type": "object", "oneOf": []})], "'oneOf' is not checked"),
    ],
)
def test_a_deployment_whose_tools_cannot_work_does_not_start(tools: list[dict[str, Any]], words: str):
    with pytest.raises(ConfigError, match=words):
        plan_answering(deployment(*tools))


def test_the_examples_of_the_document_work(monkeypatch: pytest.MonkeyPatch):
    for name in ("ANTHROPIC_API_KEY", "TABLES_TOKEN", "SHOP_TOKEN", "MAPS_TOKEN"):
        monkeypatch.setenv(name, "x")
    document = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "tools.md"
    examples = re.findall(r"```yaml\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    where = "docs/how-to/tools.md"
    planned = []
    for example in examples:
        deployment_of_example = parse_settings(Deployment, parse_yaml(example, where=where), where=where)
        planned.append([chosen for _row, chosen in plan_answering(deployment_of_example).tools])
    [[booking], [order, street]] = planned
    assert (booking.name, booking.idempotent) == ("book_table", True)
    assert (order.name, street.name) == ("order", "find_street")
