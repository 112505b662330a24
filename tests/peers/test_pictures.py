"""Pictures of clients and of a caller's camera: the requests that the real SDKs send to a model that sees."""

import asyncio
import base64
import io
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from PIL import Image
from playwright.async_api import async_playwright, expect
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.plain_text import PlainTextOutput

from parley.core.pictures import NO_LONGER_SHOWN
from parley.language import find_language
from parley.pipelines.text.console import Console
from tests.peers.llm_script import ModelServer, Turn
from tests.peers.minicpm_page import Page, page
from tests.peers.realtime_caller import calling
from tests.peers.server import RunningServer, running_server
from tests.peers.session_gateway import Turns, application, client_of
from tests.peers.test_browser import OFFLINE
from tests.peers.test_summaries import LLM, conversation
from tests.system import missing

ANSWER = Turn(["A red ", "square."])
SEES = "sdk_retries: 0"
PROVIDERS = [
    name if name == "openai_compatible" else pytest.param(name, marks=pytest.mark.slow) for name in LLM
]


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")


def picture(colour: str = "red", format: str = "PNG", size: tuple[int, int] = (640, 480)) -> str:
    """Return a picture file in base64."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, format)
    return base64.b64encode(file.getvalue()).decode()


@dataclass(frozen=True)
class SeenPicture:
    """Picture in a recorded request."""

    media_type: str
    image: Image.Image

    @property
    def colour(self) -> str:
        red, green, blue = self.image.resize((1, 1)).getpixel((0, 0))  # type: ignore[misc]
        return {red: "red", green: "green", blue: "blue"}[max(red, green, blue)]


def parts(message: dict[str, Any]) -> list[str | SeenPicture]:
    """Return the content of a message of Claude's or OpenAI's form; anything else is an error."""
    content = message["content"]
    found: list[str | SeenPicture] = []
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if part["type"] == "text":
            found.append(part["text"])
            continue
        if part["type"] == "image":
            media_type, data = part["source"]["media_type"], part["source"]["data"]
            assert part["source"]["type"] == "base64"
        else:
            head, data = part["image_url"]["url"].split(",")
            media_type = head.removeprefix("data:").removesuffix(";base64")
        image = Image.open(io.BytesIO(base64.b64decode(data)))
        image.load()
        found.append(SeenPicture(media_type, image))
    return found


def asked(server: ModelServer, number: int = -1) -> list[tuple[str, list[str | SeenPicture]]]:
    """Return role and content of the messages of a request."""
    messages = server.requests[number]["messages"]
    return [(message["role"], parts(message)) for message in messages if message["role"] != "system"]


def shape(server: ModelServer, number: int = -1) -> list[list[str]]:
    """Return the messages of a request with the colour of each picture in place of it."""
    return [
        [part if isinstance(part, str) else f"<{part.colour}>" for part in content]
        for _, content in asked(server, number)
    ]


@dataclass
class Seeing:
    """A server of Parley with a model that sees, on loopback."""

    parley: RunningServer
    model: ModelServer


@asynccontextmanager
async def seeing(
    provider: str, folder: Path, *, vision: str = "{}", server: str = "{}"
) -> AsyncIterator[Seeing]:
    server_type, llm = LLM[provider]
    async with server_type([ANSWER]) as model:
        row = llm.format(url=model.url)
        if provider != "anthropic":
            row = row.replace(SEES, f"{SEES}, sees: true")
        config = folder / "own.yaml"
        config.write_text(
            f"thinking: {{llm: {row}, vision: {vision}}}\n"
            f"remembering: {{store: {{url: 'sqlite:///{folder}/sessions.db'}}}}\n"
            f"server: {server}\n"
        )
        async with running_server("--config", str(config), log=folder / "log.txt") as parley:
            yield Seeing(parley, model)


def user(*items: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(items)}


def image(data: str) -> dict[str, Any]:
    return {"type": "image", "data": data}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


async def chat(parley: RunningServer, *messages: dict[str, Any], session: str = "") -> tuple[Page, str]:
    """Run a request of ``/ws/chat``; return the client and the session."""
    async with page(parley.url, f"/ws/chat{f'?session={session}' if session else ''}") as client:
        await client.send(messages=list(messages))
        done = await client.until("done")
    return client, done["session_id"]


async def type_turn(
    parley: RunningServer, session: str, words: str, *pictures: dict[str, str]
) -> tuple[int, str]:
    """Send a typed turn; return the status and the body."""
    async with httpx.AsyncClient(base_url=parley.url, timeout=60) as client:
        body = {"text": words, "pictures": list(pictures)}
        answer = await client.post(f"/api/sessions/{session}/messages", json=body)
        return answer.status_code, answer.text


async def new_session(parley: RunningServer) -> str:
    async with httpx.AsyncClient(base_url=parley.url) as client:
        return (await client.post("/api/sessions")).json()["id"]


async def timeline(parley: RunningServer, session: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=parley.url) as client:
        found = await client.get(f"/api/sessions/{session}/timeline", params={"limit": 1_000})
    return found.json()["events"]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_picture_in_chat_reaches_the_model_and_later_questions_keep_it(provider: str, tmp_path: Path):
    async with seeing(provider, tmp_path) as served:
        question = user(image(picture("red", size=(3_000, 1_500))), text("What is this?"))
        _, session = await chat(served.parley, question)
        [(role, [shown, words])] = asked(served.model)
        assert (role, words) == ("user", "What is this?")
        assert isinstance(shown, SeenPicture) and shown.media_type == "image/jpeg"
        assert shown.image.size == (1_568, 784) and shown.colour == "red"

        # The page sends its whole history with every turn; the session has the picture once.
        answer = {"role": "assistant", "content": "A red square."}
        await chat(served.parley, question, answer, user(text("And what colour is it?")), session=session)
        assert shape(served.model) == [
            ["<red>", "What is this?"],
            ["A red square."],
            ["And what colour is it?"],
        ]
        events = await timeline(served.parley, session)
        assert [event["kind"] for event in events].count("picture") == 1
        assert [event["kind"] for event in events].count("user_turn") == 2


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_typed_turn_shows_pictures_which_a_restart_keeps(provider: str, tmp_path: Path):
    async with seeing(provider, tmp_path) as served:
        session = await new_session(served.parley)
        shown = [
            {"media_type": "image/png", "data": picture("red")},
            {"media_type": "image/webp", "data": picture("blue", "WEBP")},
        ]
        status, body = await type_turn(served.parley, session, "Which is larger?", *shown)
        assert status == 200 and "event: done" in body
        assert shape(served.model) == [["<red>", "<blue>", "Which is larger?"]]
    async with seeing(provider, tmp_path) as again:
        await type_turn(again.parley, session, "And what colours?")
        assert shape(again.model)[0] == ["<red>", "<blue>", "Which is larger?"]
        async with httpx.AsyncClient(base_url=again.parley.url) as client:
            view = (await client.get(f"/api/sessions/{session}/prompt")).json()
            # References: the prompt of a session with pictures stays readable.
            assert len(json.dumps(view)) < 3_000
            lines = (await client.get(f"/api/sessions/{session}/export")).text
        assert lines.count('"kind":"picture"') == 2


async def test_older_pictures_become_a_remark_and_stay_one(tmp_path: Path):
    async with seeing("openai_compatible", tmp_path, vision="{resent: 2}") as served:
        session = await new_session(served.parley)
        for colour in ("red", "blue", "green"):
            shown = {"media_type": "image/png", "data": picture(colour)}
            assert (await type_turn(served.parley, session, f"A {colour} one", shown))[0] == 200
        await type_turn(served.parley, session, "Which was the first?")
        users = [content for role, content in asked(served.model) if role == "user"]
        assert users[0] == [f"{NO_LONGER_SHOWN} A red one"]
        assert shape(served.model)[2] == ["<blue>", "A blue one"]
        assert shape(served.model)[4] == ["<green>", "A green one"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Seeing]:
    async with seeing("openai_compatible", tmp_path_factory.mktemp("seeing")) as served:
        yield served


CUT = base64.b64encode(base64.b64decode(picture("red", "JPEG"))[:-400]).decode()
HUGE = picture("black", "PNG", (10_000, 5_001))


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"media_type": "image/jpeg", "data": picture("red", "PNG")}, "its content is image/png"),
        ({"media_type": "image/jpeg", "data": CUT}, "not a whole picture"),
        ({"media_type": "image/png", "data": HUGE}, "too large"),
        ({"media_type": "image/png", "data": base64.b64encode(b"<svg/>").decode()}, "not a whole picture"),
        ({"media_type": "image/png", "data": "no base64!"}, "not base64"),
    ],
    ids=["wrong type", "truncated", "50 megapixels", "no picture", "no base64"],
)
async def test_a_picture_that_cannot_be_used_is_refused_before_anything_is_written(
    sent: dict[str, str], reason: str, shared: Seeing
):
    session = await new_session(shared.parley)
    requests = len(shared.model.requests)
    status, body = await type_turn(shared.parley, session, "What is this?", sent)
    assert status == 400 and reason in json.loads(body)["error"]
    async with page(shared.parley.url, "/ws/chat") as client:
        await client.send(messages=[user(image(sent["data"]), text("What is this?"))])
        if "its content" not in reason:  # /ws/chat states no type
            refused = await client.until("error")
            assert refused["code"] == "invalid_payload"
            assert refused["error"].startswith("messages[0].content[0]: ") and reason in refused["error"]
            assert len(shared.model.requests) == requests
    assert not await timeline(shared.parley, session)


async def test_a_model_that_does_not_see_refuses_a_picture_and_says_so(tmp_path: Path):
    async with running_server() as parley:
        session = await new_session(parley)
        sent = {"media_type": "image/png", "data": picture()}
        status, body = await type_turn(parley, session, "What is this?", sent)
        assert status == 400 and "language model sees none" in json.loads(body)["error"]
        assert not await timeline(parley, session)


async def test_the_fallback_says_that_it_sees_nothing(tmp_path: Path):
    server_type, llm = LLM["openai_compatible"]
    async with server_type([Turn(status=500)]) as model:
        row = llm.format(url=model.url).replace(SEES, f"{SEES}, sees: true")
        config = tmp_path / "own.yaml"
        config.write_text(f"thinking: {{llm: {row}, fallback: {{name: documents}}}}\n")
        async with running_server("--config", str(config), log=tmp_path / "log.txt") as parley:
            session = await new_session(parley)
            sent = {"media_type": "image/png", "data": picture()}
            _, body = await type_turn(parley, session, "What are your opening hours on Saturday?", sent)
            assert "I cannot see pictures." in body and "ten until two" in body


async def test_a_session_takes_only_so_many_pictures_a_minute(tmp_path: Path):
    async with seeing("openai_compatible", tmp_path, vision="{minute_bytes: 10000}") as served:
        session = await new_session(served.parley)
        noise = io.BytesIO()
        Image.effect_noise((640, 480), 80).save(noise, "PNG")
        sent = {"media_type": "image/png", "data": base64.b64encode(noise.getvalue()).decode()}
        assert (await type_turn(served.parley, session, "What is this?", sent))[0] == 200
        status, body = await type_turn(served.parley, session, "And now?", sent)
        assert status == 429 and "too many pictures" in json.loads(body)["error"]
        assert (await type_turn(served.parley, session, "Without one?"))[0] == 200


async def test_no_picture_is_decoded_for_a_client_without_turns(tmp_path: Path):
    limits = "{clients: {anonymous: {turns_per_minute: 1}}}"
    async with seeing("openai_compatible", tmp_path, server=limits) as served:
        session = await new_session(served.parley)
        assert (await type_turn(served.parley, session, "Hello?"))[0] == 200
        # A file that would be refused as soon as it is read.
        broken = {"media_type": "image/png", "data": base64.b64encode(b"no picture").decode()}
        status, body = await type_turn(served.parley, session, "What is this?", broken)
        assert status == 429 and "no picture" not in json.loads(body)["error"]
        async with page(served.parley.url, "/ws/chat") as client:
            await client.send(messages=[user(image(broken["data"]), text("What is this?"))])
            assert (await client.until("error"))["code"] == "rate_limit_exceeded"


async def test_a_long_body_needs_a_place_and_a_declared_length(tmp_path: Path):
    typed = Turns()
    async with application(tmp_path, typed, max_picture_bodies=1) as (app, store), client_of(app) as client:
        session = (await store.create()).id
        path = f"/api/sessions/{session}/messages"
        data = "A" * 300_000
        body = {"text": "What is this?", "pictures": [{"media_type": "image/png", "data": data}]}
        assert (await client.post("/api/sessions", json=body)).status_code == 413
        huge = {"text": "x" * 4_100_000}
        assert (await client.post(path, json=huge)).status_code == 413

        async def pieces() -> AsyncIterator[bytes]:
            yield json.dumps(body).encode()

        assert (await client.post(path, content=pieces())).status_code == 413
        first = asyncio.create_task(client.post(path, json=body))
        await typed.until(lambda: bool(typed.asked))
        full = await client.post(path, json=body)
        assert full.status_code == 503 and "long bodies" in full.json()["error"]
        typed.answer.set()
        assert (await first).status_code == 200
        assert (await client.post(path, json=body)).status_code == 200


async def test_a_person_adds_a_picture_on_the_page_which_shows_it(shared: Seeing, tmp_path: Path):
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("chromium")
    (tmp_path / "photo.png").write_bytes(base64.b64decode(picture("green", "PNG", (3_000, 2_000))))
    (tmp_path / "notes.txt").write_text("no picture")
    session = await new_session(shared.parley)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=list(OFFLINE))
        try:
            page = await browser.new_page()
            await page.goto(f"{shared.parley.url.replace('127.0.0.1', 'localhost')}/s/{session}")
            files = page.get_by_label("Add a picture")
            await files.set_input_files([tmp_path / "photo.png", tmp_path / "notes.txt"])
            await expect(page.get_by_text("notes.txt is no picture.")).to_be_visible()
            await expect(page.get_by_label("Pictures of this message").locator("img")).to_have_count(1)
            await page.get_by_label("Type to Parley").fill("What is this?")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_text("A red square.")).to_be_visible()
            assert shape(shared.model)[-1] == ["<green>", "What is this?"]
            [(_, content)] = asked(shared.model)
            assert isinstance(content[0], SeenPicture) and content[0].image.size == (1_568, 1_045)
            for _ in range(2):
                shown = page.locator(".turn.user img")
                await expect(shown).to_have_count(1)
                await expect(shown).to_have_js_property("naturalWidth", 1_568)
                await expect(page.get_by_label("Pictures of this message")).to_be_hidden()
                await page.reload()
        finally:
            await browser.close()


@pytest.mark.parametrize("spoken", [False, True])
async def test_a_picture_in_openais_realtime_dialect_belongs_to_the_next_turn(shared: Seeing, spoken: bool):
    question = "What is this?"
    item: list[dict[str, Any]] = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{picture('blue')}"}
    ]
    async with calling(shared.parley.url) as caller:
        if not spoken:
            item.append({"type": "input_text", "text": question})
        await caller.connection.conversation.item.create(
            item={"type": "message", "role": "user", "content": item}
        )
        await caller.until("conversation.item.done")
        if spoken:
            caller.say(question)
        else:
            await caller.connection.response.create()
        await caller.until("response.done")
        first = shape(shared.model)[-1]
        assert first[0].endswith("<blue>") and first[-1].lower().rstrip("?") == "what is this"
        await caller.connection.conversation.item.create(
            item={
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{HUGE}"}],
            }
        )
        assert "too large" in (await caller.until("error")).error.message
        caller.say("And what colour is it?")
        await caller.until("response.done", count=2)
        assert sum(part == "<blue>" for message in shape(shared.model) for part in message) == 1


async def test_the_console_shows_a_file_with_the_next_line(tmp_path: Path):
    server_type, llm = LLM["openai_compatible"]
    (tmp_path / "red.png").write_bytes(base64.b64decode(picture("red")))
    (tmp_path / "cut.jpg").write_bytes(base64.b64decode(CUT))
    screen = io.StringIO()
    async with server_type([ANSWER]) as model:
        row = llm.format(url=model.url).replace(SEES, f"{SEES}, sees: true")
        async with conversation(row, tmp_path) as (held, answering):
            with create_pipe_input() as keys:
                made = Console(
                    held,
                    answering,
                    answer_timeout_s=20,
                    source=keys,
                    output=PlainTextOutput(screen),
                    history=InMemoryHistory(),
                    intents=find_language("en").intents,
                )
                lines = ["/image red.png", f"/image {tmp_path}/cut.jpg", f"/image {tmp_path}/red.png"]
                keys.send_text("".join(f"{line}\r" for line in [*lines, "What is this?", "/quit"]))
                async with asyncio.timeout(60):
                    await made.converse()
    assert "red.png: No such file" in screen.getvalue() and "not a whole picture" in screen.getvalue()
    assert shape(model) == [["<red>", "What is this?"]]
