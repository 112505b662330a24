"""The official client of OpenAI at chat completions, speech and transcriptions, against a running server."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
import soundfile
from openai import (
    APIError,
    APIStatusError,
    AsyncOpenAI,
    AuthenticationError,
    BadRequestError,
    InternalServerError,
    NotFoundError,
    RateLimitError,
)

from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.server import RunningServer, running_server
from tests.peers.test_openai_realtime import serving
from tests.voices import say

pytestmark = pytest.mark.asyncio(loop_scope="module")

SENTENCE = "The museum is closed on Monday, but the garden is open every day."
HOURS = "What are your opening hours on Saturday?"


class Dialogue(OpenAiServer):
    """Model whose answer depends on the last message, and that fails in the middle where it is to."""

    async def stream(self, response: Any, turn: Turn) -> None:
        asked = str(self.requests[-1]["messages"][-1]["content"])
        if "fail" in asked:
            turn = Turn(("Well, ", "I "), error_after=1)
        elif "long" in asked:
            turn = Turn(["and on "] * 400, between_ms=50)
        await super().stream(response, turn)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llm() -> AsyncIterator[Dialogue]:
    async with Dialogue([Turn(("It costs ", "five ", "euros."), cached_tokens=3)]) as llm:
        yield llm


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(llm: Dialogue, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server with a language model of its own and the embedded voice and recogniser."""
    async with serving(llm, tmp_path_factory.mktemp("own")) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def openai(server: RunningServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="unused", base_url=f"{server.url}/v1", max_retries=0) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def bot(text: str) -> Any:
    return {"role": "assistant", "content": text}


async def view(server: RunningServer, session: str) -> list[tuple[str, str]]:
    async with httpx.AsyncClient(base_url=server.url) as client:
        found = (await client.get(f"/api/sessions/{session}/prompt")).json()
    return [(message["role"], message["content"]) for message in found["messages"]]


def as_wav(pcm: bytes) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.frombuffer(pcm, "<i2"), 16_000, format="WAV")
    return file.getvalue()


def words_of(text: str) -> list[str]:
    return "".join(each for each in text.lower() if each.isalpha() or each == " ").split()


# Chat completions.


async def test_a_question_is_answered_and_kept_in_a_session(server: RunningServer, openai: AsyncOpenAI):
    answer = await openai.chat.completions.create(model="parley", messages=[user("What is the price?")])
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("It costs five euros.", "stop")
    assert answer.object == "chat.completion" and answer.model == "parley"
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (15, 3)
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    session = answer.model_extra["parley"]["session"]
    assert await view(server, session) == [
        ("user", "What is the price?"),
        ("assistant", "It costs five euros."),
    ]


async def test_a_streamed_answer_comes_piece_by_piece_with_its_usage(openai: AsyncOpenAI):
    stream = await openai.chat.completions.create(
        model="parley-cascade",
        messages=[user("What is the price?")],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(filter(None, pieces)) == "It costs five euros."
    assert len([piece for piece in pieces if piece]) >= 2
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 18
    assert len({chunk.id for chunk in chunks}) == 1


async def test_a_named_session_goes_on(server: RunningServer, openai: AsyncOpenAI):
    raw = await openai.chat.completions.with_raw_response.create(
        model="parley", messages=[user("What is the price?")]
    )
    session = raw.headers["parley-session"]
    # One message is the next one of the session, wherever the earlier ones came from.
    await openai.chat.completions.create(
        model="parley", messages=[user("And of two?")], extra_headers={"Parley-Session": session}
    )
    # A list of messages is what the client shows: what the session has is not written twice.
    answer = "It costs five euros."
    shown = [user("What is the price?"), bot(answer), user("And of two?"), bot(answer)]
    last = await openai.chat.completions.create(
        model="parley", messages=[*shown, user("And of three?")], metadata={"session": session}
    )
    assert last.model_extra["parley"]["session"] == session
    questions = ["What is the price?", "And of two?", "And of three?"]
    assert await view(server, session) == [
        turn for question in questions for turn in (("user", question), ("assistant", answer))
    ]
    # An edited message takes the place of what followed it.
    await openai.chat.completions.create(
        model="parley",
        messages=[shown[0], shown[1], user("And of four?")],
        metadata={"session": session},
    )
    assert [text for role, text in await view(server, session) if role == "user"] == [
        "What is the price?",
        "And of four?",
    ]


async def test_a_history_that_a_client_brings_is_part_of_a_new_session(
    server: RunningServer, openai: AsyncOpenAI, llm: Dialogue
):
    answer = await openai.chat.completions.create(
        model="parley",
        messages=[
            {"role": "system", "content": "Be brief."},
            user("My name is Ada."),
            bot("Hello Ada."),
            {"role": "user", "content": [{"type": "text", "text": "What is the price?"}]},
        ],
    )
    given = [(message["role"], message["content"]) for message in llm.requests[-1]["messages"]]
    assert given[0][0] == "system" and given[0][1].endswith("Be brief.")
    assert given[1:] == [
        ("user", "My name is Ada."),
        ("assistant", "Hello Ada."),
        ("user", "What is the price?"),
    ]
    assert "unused" not in answer.model_extra["parley"]


async def test_a_failure_in_the_middle_of_a_stream_is_an_error_of_the_client(openai: AsyncOpenAI):
    stream = await openai.chat.completions.create(
        model="parley", messages=[user("Please fail.")], stream=True
    )
    with pytest.raises(APIError, match="language model failed"):
        async for _ in stream:
            pass


async def test_an_answer_that_fails_as_a_whole_is_a_server_error(openai: AsyncOpenAI):
    with pytest.raises(InternalServerError, match="language model failed") as failed:
        await openai.chat.completions.create(model="parley", messages=[user("Please fail.")])
    assert failed.value.type == "server_error"


async def test_a_reader_that_leaves_ends_the_answer(server: RunningServer, openai: AsyncOpenAI):
    stream = await openai.chat.completions.create(
        model="parley", messages=[user("A long story.")], stream=True
    )
    seen = 0
    async for chunk in stream:
        session = chunk.model_extra["parley"]["session"]
        seen += bool(chunk.choices[0].delta.content)
        if seen == 3:
            break
    await stream.close()
    async with asyncio.timeout(60), httpx.AsyncClient(base_url=server.url) as client:
        async with client.stream("GET", f"/api/sessions/{session}/events", timeout=10) as events:
            async for line in events.aiter_lines():
                if line.startswith("data: ") and (event := json.loads(line[6:]))["kind"] == "bot_turn":
                    break
    assert event["payload"]["truncated"] and event["payload"]["text"].startswith("and on and on")


@pytest.mark.parametrize(
    ("more", "param", "code"),
    [
        ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        ({"n": 2}, "n", "unsupported_parameter"),
        ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
        ({"messages": [bot("Hello.")]}, "messages", "invalid_value"),
        (
            {"messages": [{"role": "tool", "tool_call_id": "c", "content": "1"}, user("And?")]},
            "messages[0]",
            "invalid_value",
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://a/b"}}]}
                ]
            },
            "messages[0].content[0]",
            "invalid_image_url",
        ),
    ],
)
async def test_what_is_not_supported_is_refused_by_its_name(
    openai: AsyncOpenAI, more: dict[str, Any], param: str, code: str
):
    with pytest.raises(BadRequestError) as refused:
        await openai.chat.completions.create(**{"model": "parley", "messages": [user("Hi")], **more})
    assert (refused.value.param, refused.value.code) == (param, code)
    assert refused.value.type == "invalid_request_error"


async def test_wrong_bodies_names_and_sessions_have_the_form_of_openai(
    server: RunningServer, openai: AsyncOpenAI
):
    with pytest.raises(NotFoundError, match="parley-cascade") as refused:
        await openai.chat.completions.create(model="gpt-5", messages=[user("Hi")])
    assert refused.value.code == "model_not_found"
    unknown = "00000000-0000-4000-8000-000000000000"
    for session in (unknown, "x"):
        with pytest.raises(NotFoundError, match="no such session|there is no session"):
            await openai.chat.completions.create(
                model="parley", messages=[user("Hi")], metadata={"session": session}
            )
    with pytest.raises(BadRequestError, match="messages") as refused_list:
        await openai.chat.completions.create(model="parley", messages=[])
    assert refused_list.value.type == "invalid_request_error"
    async with httpx.AsyncClient(base_url=server.url) as client:
        broken = await client.post("/v1/chat/completions", content=b"{")
        foreign = await client.post(
            "/v1/chat/completions", json={}, headers={"Origin": "https://another.example"}
        )
    assert broken.status_code == 400 and broken.json()["error"]["type"] == "invalid_request_error"
    assert foreign.status_code in (400, 403)


# Speech and transcripts.


@pytest.mark.parametrize("form", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
async def test_a_spoken_sentence_is_transcribed_with_the_same_words(openai: AsyncOpenAI, form: Any):
    async with openai.audio.speech.with_streaming_response.create(
        model="parley", voice="parley", input=SENTENCE, response_format=form
    ) as response:
        pieces = [piece async for piece in response.iter_bytes()]
    data = b"".join(pieces)
    if form == "pcm":
        assert response.headers["content-type"] == "audio/pcm"
        file = io.BytesIO()
        soundfile.write(file, np.frombuffer(data, "<i2"), 24_000, format="WAV")
        data, form = file.getvalue(), "wav"
    heard = await openai.audio.transcriptions.create(model="parley", file=(f"speech.{form}", data))
    assert words_of(heard.text) == words_of(SENTENCE)


async def test_speech_is_sent_while_it_is_made(openai: AsyncOpenAI):
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    arrivals: list[float] = []
    async with openai.audio.speech.with_streaming_response.create(
        model="parley", voice="parley", input=" ".join([SENTENCE] * 20), response_format="pcm"
    ) as response:
        size = 0
        async for piece in response.iter_bytes():
            size += len(piece)
            arrivals.append(loop.time() - begun_s)
    assert size > 24_000 * 2 * 40
    assert arrivals[0] < arrivals[-1] / 2


async def test_captions_have_the_times_of_their_words(openai: AsyncOpenAI):
    pcm = say("what are your opening hours") + bytes(2 * 16_000 * 2) + say("where is the station")
    file = ("two.wav", as_wav(pcm))
    said = await openai.audio.transcriptions.create(
        model="parley",
        file=file,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert said.duration == pytest.approx(len(pcm) / 32_000, abs=0.05) and said.language == "en"
    assert said.words and said.segments and [each.word for each in said.words] == said.text.split()
    starts = [each.start for each in said.words]
    assert starts == sorted(starts) and all(each.start <= each.end for each in said.words)
    assert len(said.segments) == 2
    pause = len(say("what are your opening hours")) / 32_000
    assert said.segments[0].end <= pause + 0.3 and said.segments[1].start >= pause + 1.7
    srt = await openai.audio.transcriptions.create(model="parley", file=file, response_format="srt")
    assert "\n2\n00:00:0" in srt and " --> " in srt
    vtt = await openai.audio.transcriptions.create(model="parley", file=file, response_format="vtt")
    assert vtt.startswith("WEBVTT\n\n00:00:0")
    text = await openai.audio.transcriptions.create(model="parley", file=file, response_format="text")
    assert text.strip() == said.text


async def test_a_long_recording_is_transcribed_in_parts(openai: AsyncOpenAI):
    sentence = "what are your opening hours on saturday"
    pcm = (say(sentence) + bytes(16_000)) * 14
    heard = await openai.audio.transcriptions.create(
        model="parley",
        file=("long.wav", as_wav(pcm)),
        response_format="verbose_json",
        timestamp_granularities=["word"],
    )
    assert len(pcm) > 32_000 * 35
    # Nothing is lost or said twice where parts meet.
    assert heard.text.split().count("saturday") == 14
    assert heard.words and heard.words[-1].end > len(pcm) / 32_000 - 3


async def test_silence_has_no_words(openai: AsyncOpenAI):
    silence = ("silence.wav", as_wav(bytes(64_000)))
    assert (await openai.audio.transcriptions.create(model="parley", file=silence)).text == ""
    srt = await openai.audio.transcriptions.create(model="parley", file=silence, response_format="srt")
    assert srt.strip() == ""


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"voice": "alloy"}, "voice"),
        ({"model": "tts-1"}, "model"),
        ({"response_format": "midi"}, "response_format"),
        ({"speed": 2.0}, "speed"),
        ({"input": " "}, "input"),
        ({"stream_format": "sse"}, "stream_format"),
    ],
)
async def test_speech_that_the_voice_cannot_make_is_refused(
    openai: AsyncOpenAI, more: dict[str, Any], param: str
):
    with pytest.raises(APIStatusError) as refused:
        await openai.audio.speech.create(**{"model": "parley", "voice": "parley", "input": "Hi", **more})
    assert refused.value.status_code in (400, 404) and refused.value.param == param


async def test_a_text_over_the_limit_is_refused(openai: AsyncOpenAI):
    with pytest.raises(BadRequestError, match="4096"):
        await openai.audio.speech.create(model="parley", voice="parley", input="a" * 4_097)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"file": ("a.wav", b"this is no sound")}, "file"),
        ({"file": ("a.wav", b"")}, "file"),
        ({"model": "whisper-1"}, "model"),
        ({"language": "de"}, "language"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities"),
    ],
)
async def test_recordings_that_cannot_be_transcribed_are_refused(
    openai: AsyncOpenAI, more: dict[str, Any], param: str
):
    given = {"model": "parley", "file": ("a.wav", as_wav(bytes(16_000)))}
    with pytest.raises(APIStatusError) as refused:
        await openai.audio.transcriptions.create(**{**given, **more})
    assert refused.value.status_code in (400, 404) and refused.value.param == param


async def test_a_recording_over_the_limits_is_refused(server: RunningServer, openai: AsyncOpenAI):
    # A minute of silence takes a kilobyte in FLAC.
    hour = io.BytesIO()
    soundfile.write(hour, np.zeros(16_000 * 660, np.int16), 16_000, format="FLAC")
    with pytest.raises(APIStatusError, match="longer than 600 s") as refused:
        await openai.audio.transcriptions.create(model="parley", file=("long.flac", hour.getvalue()))
    assert (refused.value.status_code, refused.value.param) == (413, "file")
    with pytest.raises((APIStatusError, httpx.HTTPError, APIError)) as large:
        await openai.audio.transcriptions.create(model="parley", file=("large.wav", bytes(26_000_000)))
    if isinstance(large.value, APIStatusError):
        assert large.value.status_code == 413
    async with httpx.AsyncClient(base_url=server.url) as client:
        many = {f"field{number}": "a" for number in range(40)}
        assert (
            await client.post("/v1/audio/transcriptions", data=many, files={"file": b"a"})
        ).status_code == 400
        assert (await client.post("/v1/audio/transcriptions", json={"model": "parley"})).status_code == 400


async def test_one_client_has_one_request_at_a_time(openai: AsyncOpenAI):
    async def speak(sentences: int) -> int:
        try:
            text = " ".join([SENTENCE] * sentences)
            await openai.audio.speech.create(model="parley", voice="parley", input=text)
        except RateLimitError as refused:
            assert refused.code == "rate_limit_exceeded"
            return 429
        return 200

    assert sorted(await asyncio.gather(*(speak(60) for _ in range(3)))) == [200, 429, 429]
    # The place is free again.
    assert await speak(1) == 200


async def test_a_server_without_room_for_a_call_has_none_for_speech(tmp_path: Path):
    (tmp_path / "small.yaml").write_text("server: {max_calls: 1}\n")
    async with running_server("--config", str(tmp_path / "small.yaml")) as server:
        async with AsyncOpenAI(api_key="unused", base_url=f"{server.url}/v1", max_retries=0) as openai:
            async with openai.realtime.connect(model="parley") as connection:
                assert (await connection.recv()).type == "session.created"
                with pytest.raises(InternalServerError, match="calls, which come first") as refused:
                    await openai.audio.speech.create(model="parley", voice="parley", input="Hi")
                assert refused.value.status_code == 503
                with pytest.raises(InternalServerError, match="calls, which come first"):
                    await openai.audio.transcriptions.create(
                        model="parley", file=("a.wav", as_wav(bytes(16_000)))
                    )


KEY = "an-application-key-of-32-letters"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyed() -> AsyncIterator[RunningServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLEY_CALL_KEYS", KEY)
        async with running_server() as server:
            yield server


async def statuses(server: RunningServer, key: str, session: str = "") -> Sequence[int]:
    """Return the statuses of the three routes for a key or a token."""
    found = []
    named = {"metadata": {"session": session}} if session else {}
    async with AsyncOpenAI(api_key=key, base_url=f"{server.url}/v1", max_retries=0) as openai:
        for work in (
            lambda: openai.chat.completions.create(model="parley", messages=[user(HOURS)], **named),
            lambda: openai.audio.speech.create(model="parley", voice="parley", input="Hi"),
            lambda: openai.audio.transcriptions.create(model="parley", file=("a.wav", as_wav(bytes(16_000)))),
        ):
            try:
                await work()
                found.append(200)
            except APIStatusError as refused:
                found.append(refused.status_code)
    return found


async def test_with_keys_a_credential_is_needed_and_a_session_is_its_owners(keyed: RunningServer):
    async with AsyncOpenAI(api_key="a-wrong-key-that-is-long-enough", base_url=f"{keyed.url}/v1") as wrong:
        with pytest.raises(AuthenticationError) as refused:
            await wrong.chat.completions.create(model="parley", messages=[user(HOURS)])
    assert refused.value.code == "invalid_api_key"
    assert await statuses(keyed, "a-wrong-key-that-is-long-enough") == [401, 401, 401]
    assert await statuses(keyed, KEY) == [200, 200, 200]
    async with httpx.AsyncClient(base_url=keyed.url, headers={"Authorization": f"Bearer {KEY}"}) as http:
        ada = (await http.post("/api/token", json={"user": "ada"})).json()["token"]
        bob = (await http.post("/api/token", json={"user": "bob"})).json()["token"]
        narrow = (await http.post("/api/token", json={"surfaces": ["browser"]})).json()["token"]
    async with AsyncOpenAI(api_key=ada, base_url=f"{keyed.url}/v1", max_retries=0) as openai:
        raw = await openai.chat.completions.with_raw_response.create(model="parley", messages=[user(HOURS)])
    session = raw.headers["parley-session"]
    assert raw.headers["parley-next-token"]
    assert await statuses(keyed, ada, session) == [200, 200, 200]
    assert (await statuses(keyed, bob, session))[0] == 403
    assert await statuses(keyed, narrow) == [403, 403, 403]
    # The instructions of a client without the grant have no effect, and the answer says so.
    async with AsyncOpenAI(api_key=KEY, base_url=f"{keyed.url}/v1") as openai:
        answer = await openai.chat.completions.create(
            model="parley", messages=[{"role": "system", "content": "Be rude."}, user(HOURS)]
        )
    assert "ten until two" in str(answer.choices[0].message.content)
