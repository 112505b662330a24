"""Tools of a client in chat completions: the official client of OpenAI, unchanged, and its agents' loop."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml
from openai import AsyncOpenAI, BadRequestError

from tests.peers.llm_script import Turn
from tests.peers.test_tools import CallingOpenAi, Calls
from tests.peers.text_gateway import text_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Report the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class Forecast(CallingOpenAi):
    """Model that calls the client's tool for each city it is asked about, and repeats the results."""

    async def stream(self, response: Any, turn: Turn) -> None:
        messages = self.requests[-1]["messages"]
        results = [each["content"] for each in messages if each["role"] == "tool"]
        asked = str(messages[-1]["content"])
        cities = [city for city in ("Berlin", "Paris") if city in asked]
        if messages[-1]["role"] == "tool":
            await super().stream(response, Turn(("It says: ", *results)))
        elif cities and self.requests[-1].get("tools"):
            calls = [("weather", json.dumps({"city": city})) for city in cities]
            await super().stream(response, Calls(calls=calls))
        else:
            await super().stream(response, Turn(("Good morning.",)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llm() -> AsyncIterator[Forecast]:
    async with Forecast([Turn()]) as llm:
        yield llm


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(llm: Forecast, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("own")
    configuration = {
        "thinking": {
            "llm": {"name": "openai_compatible", "settings": {"base_url": f"{llm.url}/v1", "model": "m"}}
        },
        "server": {"clients": {"anonymous": {"instructions": True, "client_tools": True}}},
        "remembering": {"store": {"url": f"sqlite:///{folder}/sessions.db"}},
    }
    async with text_gateway(folder, yaml.safe_dump(configuration)) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def openai(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="unused", base_url=f"{url}/v1", max_retries=0) as client:
        yield client


async def kinds(url: str, session: str) -> list[str]:
    async with httpx.AsyncClient(base_url=url) as client:
        found = (await client.get(f"/api/sessions/{session}/timeline")).json()
    spoken = ("user_turn", "bot_turn", "tool_call", "tool_result")
    return [event["kind"] for event in found["events"] if event["kind"] in spoken]


async def test_a_tool_of_the_client_is_called_and_its_result_is_answered_in_one_session(
    url: str, openai: AsyncOpenAI, llm: Forecast
):
    messages: list[Any] = [{"role": "user", "content": "How is it in Berlin and in Paris?"}]
    first = await openai.chat.completions.create(model="parley", messages=messages, tools=[WEATHER])
    [choice] = first.choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    calls = choice.message.tool_calls or []
    asked = [(call.type, call.function.name, json.loads(call.function.arguments)) for call in calls]
    assert asked == [("function", "weather", {"city": city}) for city in ("Berlin", "Paris")]
    assert len({call.id for call in calls}) == 2
    offered = llm.requests[-1]["tools"][0]["function"]
    assert (offered["name"], offered["description"]) == ("weather", "Report the weather of a city.")
    # As every loop of an agent does: the message itself, then the results.
    messages.append(choice.message)
    for call, said in zip(calls, ("rain", "sun"), strict=True):
        messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
    second = await openai.chat.completions.create(model="parley", messages=messages, tools=[WEATHER])
    said = second.choices[0].message.content
    assert second.choices[0].finish_reason == "stop"
    assert said is not None and "rain" in said and "sun" in said
    # The request named no session: it went on where the calls are.
    session = first.model_extra["parley"]["session"]
    assert second.model_extra["parley"]["session"] == session
    expected = ["user_turn", "tool_call", "tool_call", "tool_result", "tool_result", "bot_turn"]
    assert await kinds(url, session) == expected
    # The next turn of the same loop, with everything before it.
    messages += [second.choices[0].message, {"role": "user", "content": "Thank you."}]
    third = await openai.chat.completions.create(
        model="parley", messages=messages, tools=[WEATHER], extra_headers={"Parley-Session": session}
    )
    assert third.choices[0].message.content == "Good morning."
    assert await kinds(url, session) == [*expected, "user_turn", "bot_turn"]


async def test_calls_are_streamed_as_openai_does(openai: AsyncOpenAI):
    messages: list[Any] = [{"role": "user", "content": "How is it in Berlin and in Paris?"}]
    async with openai.chat.completions.stream(model="parley", messages=messages, tools=[WEATHER]) as stream:
        seen = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in seen
    assert seen.count("tool_calls.function.arguments.done") == 2
    [choice] = final.choices
    assert choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls or []
    assert [call.function.parsed_arguments for call in calls] == [{"city": "Berlin"}, {"city": "Paris"}]


async def test_calls_and_results_that_a_client_brings_are_part_of_a_new_session(
    url: str, openai: AsyncOpenAI, llm: Forecast
):
    call = {"id": "call_of_another_server", "type": "function"}
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    messages: list[Any] = [
        {"role": "user", "content": "How is it in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [{**call, "function": function}]},
        {"role": "tool", "tool_call_id": call["id"], "content": '{"sky": "clear"}'},
    ]
    answer = await openai.chat.completions.create(model="parley", messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content is not None and "clear" in answer.choices[0].message.content
    shown = [each["role"] for each in llm.requests[-1]["messages"]]
    assert shown[-3:] == ["user", "assistant", "tool"]
    found = await kinds(url, answer.model_extra["parley"]["session"])
    assert found == ["user_turn", "tool_call", "tool_result", "bot_turn"]


async def test_a_choice_of_the_client_reaches_the_model(openai: AsyncOpenAI, llm: Forecast):
    messages: list[Any] = [{"role": "user", "content": "How is it in Berlin?"}]
    named: Any = {"type": "function", "function": {"name": "weather"}}
    for choice in ("required", named):
        await openai.chat.completions.create(
            model="parley", messages=messages, tools=[WEATHER], tool_choice=choice
        )
        assert llm.requests[-1]["tool_choice"] == choice
    none = await openai.chat.completions.create(
        model="parley", messages=messages, tools=[WEATHER], tool_choice="none"
    )
    assert none.choices[0].message.content == "Good morning." and not llm.requests[-1].get("tools")


async def test_what_cannot_be_offered_or_answered_is_refused_in_openais_words(openai: AsyncOpenAI):
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = {"role": "user", "content": "Hi"}
    calls = {"role": "assistant", "content": None, "tool_calls": [call]}
    odd = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "not": {}}}}
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"messages": [asked, calls, asked]}, "messages[2]", "did not have response messages: c"),
        (
            {"messages": [asked, {"role": "tool", "tool_call_id": "x", "content": "1"}]},
            "messages[1]",
            "must be a response to a preceeding message with 'tool_calls'",
        ),
        ({"tools": [odd]}, "tools[0].function.parameters", "Invalid schema for function 'f'"),
        ({"tools": [WEATHER, WEATHER]}, "tools", "same name"),
        ({"tool_choice": "required"}, "tool_choice", "only allowed when 'tools' are specified"),
        ({"tools": [WEATHER], "parallel_tool_calls": False}, "parallel_tool_calls", "Unsupported"),
    ]
    for more, param, words in cases:
        with pytest.raises(BadRequestError, match=words.replace("'", ".")) as refused:
            await openai.chat.completions.create(**{"model": "parley", "messages": [asked], **more})
        assert refused.value.param == param


async def test_a_model_that_calls_no_tools_refuses_them(tmp_path: Path):
    store = f"remembering: {{store: {{url: 'sqlite:///{tmp_path}/sessions.db'}}}}\n"
    async with (
        text_gateway(tmp_path, store) as url,
        AsyncOpenAI(api_key="unused", base_url=f"{url}/v1", max_retries=0) as openai,
    ):
        asked: list[Any] = [{"role": "user", "content": "Hi"}]
        with pytest.raises(BadRequestError, match="'tools' is not supported with this model") as refused:
            await openai.chat.completions.create(model="parley", messages=asked, tools=[WEATHER])
        assert (refused.value.param, refused.value.code) == ("tools", "unsupported_parameter")
