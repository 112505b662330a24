"""The turn-based page of the MiniCPM-o server, and its streaming clients, against Parley's server."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from parley.evals.tiny_qwen3 import install_tiny_qwen3
from tests.peers.minicpm_page import Page, float32_base64, page, samples_in
from tests.peers.server import RunningServer, running_server
from tests.peers.test_half_duplex import ask, prepared
from tests.voices import bot_says, say, silence

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = "What are your opening hours on Saturday?"
SYSTEM = {
    "role": "system",
    "content": [{"type": "text", "text": "Be kind."}, {"type": "audio", "data": "AACAPw=="}],
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def body(*messages: dict[str, Any], streaming: bool = True, tts: bool = False) -> dict[str, Any]:
    """Return a request as the page builds it."""
    built: dict[str, Any] = {
        "messages": [SYSTEM, *messages],
        "streaming": streaming,
        "generation": {"max_new_tokens": 256, "do_sample": True, "length_penalty": 1.1},
        "image": {"max_slice_nums": 1},
        "omni_mode": False,
    }
    if tts:
        built |= {"tts": {"enabled": True, "mode": "audio_assistant"}, "use_tts_template": True}
    return built


def words_of(client: Page) -> str:
    return "".join(chunk.get("text_delta", "") for chunk in client.of("chunk")).strip()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    async with running_server() as running:
        yield running


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a deployment with a tiny model that has a prompt cache and writes long answers."""
    folder = tmp_path_factory.mktemp("tiny")
    model = install_tiny_qwen3(folder / "model", is_ascii=True)
    (folder / "own.yaml").write_text(
        "bot: {system_prompt: ''}\nserver: {clients: {anonymous: {instructions: true}}}\n"
        "thinking:\n  llm:\n    name: transformers\n    settings:\n"
        f"      lm: {{model: {model}, device: cpu, threads: 1, answer_tokens: 40, temperature: 1, seed: 3}}\n"
        f"remembering: {{store: {{url: 'sqlite:///{folder}/sessions.db'}}}}\n"
    )
    return folder / "own.yaml"


async def events(server: RunningServer, session: str, *kinds: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=server.url) as client:
        found = await client.get(f"/api/sessions/{session}/timeline", params={"limit": 1_000})
    return [each for each in found.json()["events"] if not kinds or each["kind"] in kinds]


async def view(server: RunningServer, session: str) -> list[tuple[str, str]]:
    async with httpx.AsyncClient(base_url=server.url) as client:
        found = (await client.get(f"/api/sessions/{session}/prompt")).json()
    return [(message["role"], message["content"]) for message in found["messages"]]


async def chat(
    server: RunningServer, request: dict[str, Any], *, session: str = ""
) -> tuple[Page, dict[str, Any]]:
    """Run one request of the page to its end."""
    async with page(server.url, f"/ws/chat{f'?session={session}' if session else ''}") as client:
        await client.send(**request)
        done = await client.until("done")
        assert await client.until_closed() == (1000, "")
    return client, done


# /ws/chat


async def test_a_request_of_the_page_is_answered_piece_by_piece(server: RunningServer):
    client, done = await chat(server, body(user(QUESTION)))
    assert client.kinds == ["prefill_done", "chunk", "done"]
    assert "ten until two" in done["text"]
    assert words_of(client) == done["text"]
    assert not any("audio_data" in chunk for chunk in client.of("chunk"))
    # The document engine counts no tokens, and none are invented.
    assert (done["generated_tokens"], done["input_tokens"]) == (None, None)
    assert client.of("prefill_done")[0]["unused"] == [
        "messages[0].content[1]: the bot speaks with the deployment's voice",
        "messages: those of the system; the prompt is the deployment's",
    ]
    turns = await events(server, done["session_id"], "user_turn", "bot_turn")
    assert [turn["payload"]["text"] for turn in turns] == [QUESTION, done["text"]]


async def test_the_answer_is_spoken_as_float32_of_24_khz(server: RunningServer):
    client, done = await chat(server, body(user(QUESTION), tts=True))
    audio = np.concatenate([samples_in(chunk) for chunk in client.of("chunk")])
    assert words_of(client) == done["text"]
    assert 0.05 < np.abs(audio).max() <= 1
    # The length is about that of the same words from the same voice.
    assert len(audio) / 24_000 == pytest.approx(len(bot_says(done["text"])) / 32_000, rel=0.3)


async def test_without_streaming_everything_is_in_done(server: RunningServer):
    client, done = await chat(server, body(user(QUESTION), streaming=False, tts=True))
    assert client.kinds == ["prefill_done", "done"]
    assert "ten until two" in done["text"]
    assert [each["heading"] for each in done["passages"]] == ["Branch opening hours"]
    assert len(samples_in(done)) > 24_000


async def test_a_recording_is_understood_and_answered(server: RunningServer):
    said = {"type": "audio", "data": float32_base64(silence(300) + say(QUESTION) + silence(300))}
    message = {"role": "user", "content": [said]}
    _, done = await chat(server, body(message))
    assert "ten until two" in done["text"]
    [turn] = await events(server, done["session_id"], "user_turn")
    assert "saturday" in turn["payload"]["text"]


async def test_what_was_said_before_is_brought_along(server: RunningServer):
    earlier = [user("My name is Ada."), {"role": "assistant", "content": "Hello, Ada."}]
    _, done = await chat(server, body(*earlier, user("What is my name?")))
    assert "Ada" in done["text"]
    turns = await events(server, done["session_id"], "user_turn", "bot_turn")
    assert [turn["payload"]["text"] for turn in turns][:3] == [
        "My name is Ada.",
        "Hello, Ada.",
        "What is my name?",
    ]


async def test_a_session_goes_on_without_being_said_twice(server: RunningServer):
    _, first = await chat(server, body(user(QUESTION)))
    session = first["session_id"]
    shown = [user(QUESTION), {"role": "assistant", "content": first["text"]}]
    _, second = await chat(server, body(*shown, user("And what about Sunday?")), session=session)
    assert second["session_id"] == session
    assert "closed" in second["text"]
    assert len(await events(server, session, "user_turn")) == 2
    # Another answer is requested: the old one no longer counts.
    _, third = await chat(server, body(*shown, user("And on Friday?")), session=session)
    assert [text for role, text in await view(server, session) if role == "user"][1:] == ["And on Friday?"]
    assert third["text"]


@pytest.mark.parametrize("kind", ["image", "video"])
async def test_what_the_model_cannot_see_is_an_error_that_names_it(server: RunningServer, kind: str):
    item = {"role": "user", "content": [{"type": kind, "data": "AAAA"}, {"type": "text", "text": "Well?"}]}
    async with page(server.url, "/ws/chat") as client:
        await client.send(**body(item))
        assert "messages[1].content[0]" in (await client.until("error"))["error"]
        assert (await client.until_closed())[0] == 1003
    assert client.kinds == ["error"]


async def test_what_is_no_request_is_answered_and_the_next_one_is_taken(server: RunningServer):
    async with page(server.url, "/ws/chat") as client:
        await client.socket.send("{no json")
        await client.until("error")
        await client.send(messages=[])
        await client.until("error", 2)
        await client.socket.send(b"\x00")
        await client.until("error", 3)
        await client.send(**body(user(QUESTION)))
        assert "ten until two" in (await client.until("done"))["text"]


async def test_a_message_that_is_too_large_closes_the_socket(server: RunningServer):
    async with page(server.url, "/ws/chat") as client:
        # The server need not have read all of it before it closes the socket.
        with suppress(ConnectionClosed):
            await client.send(**body(user("x" * 4_100_000)))
        assert (await client.until_closed())[0] == 1009


async def test_a_history_that_no_session_takes_is_refused_whole(server: RunningServer):
    # Each message is short enough; 210 kB together are more than a session takes in a minute.
    earlier = [user("x" * 30_000), {"role": "assistant", "content": "y" * 30_000}] * 3
    async with page(server.url, "/ws/chat") as client:
        await client.send(**body(*earlier, user("z" * 30_000)))
        refused = await client.until("error")
        assert refused["code"] == "too_large" and "210006 bytes" in refused["error"]
        assert await client.until_closed() == (1003, "too_large")
    async with page(server.url, "/ws/streaming/n") as client:
        read, _ = await turn(client, user(QUESTION))
        await client.send(type="prefill", messages=[*earlier, user("z" * 30_000)])
        await client.until("error")
        # Nothing of it is in the session, and the socket goes on.
        assert len(await events(server, read["session_id"], "user_turn")) == 1
        _, done = await turn(client, user("And what about Sunday?"))
        assert "closed" in done["text"]


async def test_an_unknown_session_is_refused_at_the_handshake(server: RunningServer):
    with pytest.raises(InvalidStatus) as refused:
        async with page(server.url, "/ws/chat?session=00000000-0000-0000-0000-000000000000"):
            pass
    assert refused.value.response.status_code == 404


async def test_a_page_of_another_origin_is_refused(server: RunningServer):
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"ws{server.url[4:]}/ws/chat", origin="http://example.org"):  # type: ignore[arg-type]
            pass
    assert refused.value.response.status_code == 403


# POST /api/chat


async def post(server: RunningServer, request: dict[str, Any], **params: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        return await client.post("/api/chat", json=request, params=params)


async def test_a_request_over_http_is_answered_whole_as_by_that_server(server: RunningServer):
    answer = await post(server, body(user(QUESTION), tts=True))
    found = answer.json()
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    assert "ten until two" in found["text"]
    assert (found["success"], found["error"], found["audio_sample_rate"]) == (True, None, 24_000)
    assert len(samples_in(found)) > 24_000
    # The document engine counts no tokens, and this deployment records nothing.
    assert [found[name] for name in ("tokens_generated", "token_stats", "recording_session_id")] == [None] * 3
    assert 0 <= found["queue_wait_ms"] < found["duration_ms"]
    assert found["estimated_queue_wait_s"] == 0
    assert [each["heading"] for each in found["passages"]] == ["Branch opening hours"]
    assert len(found["unused"]) == 2
    turns = await events(server, found["session_id"], "user_turn", "bot_turn")
    assert [turn["payload"]["text"] for turn in turns] == [QUESTION, found["text"]]


async def test_a_session_goes_on_between_the_socket_and_requests(server: RunningServer):
    _, first = await chat(server, body(user("My name is Ada.")))
    shown = [user("My name is Ada."), {"role": "assistant", "content": first["text"]}]
    answer = await post(server, body(*shown, user("What is my name?")), session=first["session_id"])
    assert answer.json()["session_id"] == first["session_id"]
    assert len(await events(server, first["session_id"], "user_turn")) == 2


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"{no json", 422, "JSON"),
        (b"\xff\xfe", 422, "UTF-8"),
        (b'{"type": "stop"}', 422, "messages"),
        (b'{"messages": []}', 422, "messages"),
        (b'{"messages": [{"role": "assistant", "content": "Hello."}]}', 422, "last message"),
        (
            b'{"messages": [{"role": "user", "content": [{"type": "video", "data": "AA=="}]}]}',
            422,
            "content[0]",
        ),
    ],
)
async def test_a_request_that_cannot_be_answered_is_refused_in_both_forms(
    server: RunningServer, content: bytes, status: int, says: str
):
    async with httpx.AsyncClient(base_url=server.url) as client:
        answer = await client.post("/api/chat", content=content)
    refused = answer.json()
    assert (answer.status_code, refused["detail"]) == (status, refused["error"])
    assert says in refused["error"]


async def test_a_request_of_an_unknown_session_or_another_origin_is_refused(server: RunningServer):
    unknown = await post(server, body(user("Hello.")), session="00000000-0000-4000-8000-000000000000")
    assert unknown.status_code == 404
    async with httpx.AsyncClient(base_url=server.url) as client:
        foreign = await client.post(
            "/api/chat", json=body(user("Hello.")), headers={"origin": "https://elsewhere.example"}
        )
    assert foreign.status_code == 403
    assert foreign.json()["detail"] == foreign.json()["error"]


# /ws/streaming


async def turn(
    client: Page, *messages: dict[str, Any], **generate: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run prefill and generate; return both answers."""
    prefilled, answered = len(client.of("prefill_done")), len(client.of("done"))
    await client.send(type="prefill", messages=list(messages))
    read = await client.until("prefill_done", prefilled + 1)
    await client.send(type="generate", **generate)
    return read, await client.until("done", answered + 1)


def answer(done: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": done["text"]}


async def test_several_turns_on_one_socket_with_the_whole_history_each_time(server: RunningServer):
    async with page(server.url, "/ws/streaming/my-own-name") as client:
        first_read, first = await turn(client, SYSTEM, user(QUESTION))
        assert client.kinds == ["queue_done", "prefill_done", "chunk", "done"]
        assert "ten until two" in first["text"]
        shown = [SYSTEM, user(QUESTION), answer(first)]
        await client.send(type="complete_turn")
        _, second = await turn(client, *shown, user("And what about Sunday?"), generate_audio=True)
        assert "closed" in second["text"]
        assert any("audio_data" in chunk for chunk in client.of("chunk"))
        session = first_read["session_id"]
        assert len(await events(server, session, "user_turn")) == 2
        # The user edits their first message: the session follows.
        _, third = await turn(client, SYSTEM, user("What is the monthly fee?"))
        assert await view(server, session) == [
            ("user", "What is the monthly fee?"),
            ("assistant", third["text"]),
        ]
        await client.send(type="close")
        assert await client.until_closed() == (1000, "")
    assert session != "my-own-name"


async def test_a_client_that_sends_what_is_new_alone_goes_on(server: RunningServer):
    async with page(server.url, "/ws/streaming/n") as client:
        await turn(client, user(QUESTION))
        _, second = await turn(client, user("And what about Sunday?"))
    assert "closed" in second["text"]
    assert len(await events(server, second["session_id"], "user_turn")) == 2


async def test_two_clients_of_one_name_have_two_sessions(server: RunningServer):
    async with page(server.url, "/ws/streaming/same") as one, page(server.url, "/ws/streaming/same") as other:
        first, second = await one.until("queue_done"), await other.until("queue_done")
    assert first["session_id"] != second["session_id"]


async def test_generate_without_prefill_is_refused_and_the_conversation_goes_on(server: RunningServer):
    async with page(server.url, "/ws/streaming/n") as client:
        await client.send(type="generate")
        assert "prefill" in (await client.until("error"))["error"]
        await client.send(type="dance")
        await client.until("error", 2)
        _, done = await turn(client, user(QUESTION))
        assert "ten until two" in done["text"]


async def test_too_many_messages_are_refused_and_then_end_it(server: RunningServer):
    async with page(server.url, "/ws/streaming/n") as client:
        for _ in range(80):
            await client.send(type="complete_turn")
        assert any(each["code"] in ("rate_limited", "too_fast") for each in [await client.until("error")])
        assert (await client.until_closed())[0] == 1008


# A model with a prompt cache


async def test_what_was_read_stays_read_and_a_changed_history_is_not_believed(tiny: Path):
    async with running_server("--config", str(tiny)) as server, page(server.url, "/ws/streaming/n") as client:
        hello = user("Hello there, how are you today?")
        first_read, first = await turn(client, SYSTEM, hello)
        assert first_read["cached_tokens"] == 0
        assert first_read["input_tokens"] > 40
        assert first["token_stats"]["generated_tokens"] > 0
        assert first["token_stats"]["generated_tokens"] <= 40
        shown = [SYSTEM, hello, answer(first)]
        second_read, second = await turn(client, *shown, user("And now?"))
        # All of the first turn is in the cache; only the new words are read.
        assert second_read["cached_tokens"] >= first_read["input_tokens"]
        assert 0 < second_read["input_tokens"] < first_read["input_tokens"]
        # Another answer to the same words: the question is in the cache; the client's copy of its answer is
        # not trusted.
        third_read, third = await turn(client, *shown, user("And now?"))
        assert third_read["cached_tokens"] >= second_read["cached_tokens"]
        # The first user message has another text: only the cached text before it can be used.
        edited = user("Good day to you.")
        fourth_read, _ = await turn(client, SYSTEM, edited, answer(first), user("And now?"))
        # Counted in bytes, with one for each special token.
        assert fourth_read["cached_tokens"] == len("Ssystem\nBe kind.E\nSuser\n")
        other = {"role": "system", "content": "You are somebody else altogether."}
        fifth_read, _ = await turn(client, other, edited, answer(first), user("And now?"))
        assert fifth_read["cached_tokens"] == len("Ssystem\n")
        async with page(server.url, "/ws/streaming/n") as stranger:
            read, _ = await turn(stranger, SYSTEM, hello)
            assert read["cached_tokens"] == 0
        assert second["text"] and third["text"]


async def test_stop_ends_the_answer_and_the_session_has_what_was_handed_out(tiny: Path, tmp_path: Path):
    slow = tmp_path / "slow.yaml"
    # Long enough to be stopped in the middle, on any machine.
    slow.write_text(tiny.read_text().replace("answer_tokens: 40", "answer_tokens: 6000"))
    async with running_server("--config", str(slow)) as server:
        async with page(server.url, "/ws/streaming/n") as client:
            await client.send(type="prefill", messages=[user("Tell me all.")])
            session = (await client.until("prefill_done"))["session_id"]
            await client.send(type="generate")
            await client.until("chunk", 20)
            await client.send(type="stop")
            done = await client.until("done")
            assert done["stopped"]
            assert done["text"] == words_of(client)
            [reply] = await events(server, session, "bot_turn")
            assert (reply["payload"]["text"], reply["payload"]["truncated"]) == (done["text"], True)
        # On /ws/chat the same, with a client that leaves in the middle.
        async with page(server.url, "/ws/chat") as client:
            await client.send(**body(user("Tell me all.")))
            await client.until("chunk", 20)
            await client.send(type="stop")
            assert (await client.until("done"))["stopped"]
            assert await client.until_closed() == (1000, "")
        async with page(server.url, "/ws/chat") as client:
            await client.send(**body(user("Tell me all.")))
            session = (await client.until("prefill_done"))["session_id"]
            await client.until("chunk", 20)
            client.vanish()
            had = words_of(client)
        async with asyncio.timeout(60):
            while not (replies := await events(server, session, "bot_turn")):
                await asyncio.sleep(0.1)
        assert replies[0]["payload"]["truncated"]
        assert replies[0]["payload"]["text"].startswith(had[:20])
        # No abandoned answer holds the model: the next client is answered at once.
        async with page(server.url, "/ws/chat") as client, asyncio.timeout(60):
            await client.send(**body(user("Hello?")))
            await client.until("chunk", 3)


async def test_a_killed_server_is_gone_on_from_with_the_session_and_one_that_stops_ends_it_in_time(
    tmp_path: Path,
):
    config = tmp_path / "own.yaml"
    config.write_text(f"remembering: {{store: {{url: 'sqlite:///{tmp_path}/sessions.db'}}}}\n")
    async with running_server("--config", str(config)) as first:
        async with (
            page(first.url, "/ws/half_duplex/hdx_7") as spoken,
            page(first.url, "/ws/streaming/n") as client,
        ):
            call = (await prepared(spoken))["session_id"]
            await ask(spoken, QUESTION)
            await spoken.until("turn_done")
            _, done = await turn(client, SYSTEM, user(QUESTION))
            # In the middle of the next turn: committed, and not answered.
            shown = [SYSTEM, user(QUESTION), answer(done)]
            await client.send(type="prefill", messages=[*shown, user("And what about Sunday?")])
            await client.until("prefill_done", 2)
            os.kill(first.process.pid, signal.SIGKILL)
            assert (await client.until_closed())[0] == 1006
            assert (await spoken.until_closed())[0] == 1006
    session = done["session_id"]
    async with running_server("--config", str(config)) as second:
        async with page(second.url, f"/ws/half_duplex/hdx_7?session={call}") as spoken:
            assert (await prepared(spoken))["session_id"] == call
            await ask(spoken, "And what about Sunday?")
            assert "closed" in (await spoken.until("turn_done"))["text"]
        async with page(second.url, f"/ws/streaming/n?session={session}") as client:
            assert (await client.until("queue_done"))["session_id"] == session
            _, again = await turn(client, *shown, user("And what about Sunday?"))
            assert "closed" in again["text"]
            said = [text for role, text in await view(second, session) if role == "user"]
            assert said == [QUESTION, "And what about Sunday?"]
            second.process.terminate()
            assert (await client.until_closed(within_s=3))[0] == 1012
        async with asyncio.timeout(60):
            while second.process.is_running() and second.process.status() != "zombie":
                await asyncio.sleep(0.1)


async def test_clients_that_come_and_go_leave_nothing_behind(server: RunningServer):
    async with httpx.AsyncClient(base_url=server.url) as http:

        async def one(number: int) -> None:
            async with page(server.url, "/ws/chat") as client:
                if number % 4:
                    await client.send(**body(user(QUESTION), tts=True))
                if number % 4 == 2:
                    await client.until("chunk")
                if number % 4 == 3:
                    await client.until("done")
                client.vanish()

        before = (await http.get("/health")).json()["calls"]
        for start in range(0, 24, 4):
            await asyncio.gather(*(one(start + number) for number in range(4)))
        async with asyncio.timeout(60):
            while (await http.get("/health")).json()["calls"] != before:
                await asyncio.sleep(0.1)
