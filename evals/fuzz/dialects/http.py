"""HTTP routes: changed bodies, paths, queries and headers, as a client and as the operator."""

import io
import wave
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import quote

import aiohttp

from parley.evals.abuse.attacks.requests import GONE, new_session
from parley.evals.abuse.mutations import STRANGE_TEXTS, mutated_bytes
from parley.evals.abuse.routes import TELEPHONE, Entry, entries
from parley.evals.abuse.samples import BODIES, OFFER, body_of, path_of
from parley.evals.fuzz.conversation import FuzzConversation
from parley.evals.fuzz.generate import Dice, payload

REQUESTS = 100
REQUEST_S = 5.0
LONGEST_READ_BYTES = 100_000
JSON = "application/json"
# They switch parts of the server off, or place calls; offers have a protocol of their own.
LEFT_OUT = frozenset({"/api/admin/apps/{app_id}", "/twilio/calls", "/api/offer"})
QUERIES = (
    "limit=-1",
    "limit=1e9",
    "limit=x",
    "limit=1000",
    "after=x",
    "after_seq=-1",
    "after_seq=" + "9" * 400,
    "after=%00",
    "before=\u00e9",
    "q=",
    "q=%25%27%22%3B",
    "q=" + "a%20" * 3_000,
    "desk=abcdefgh",
    "format=srt",
    "x=1&x=2&x=3",
    "session=nosuchsession",
    "mode=duplex",
    "offset=9223372036854775808",
    "kind=speech&kind=",
    "=&&=",
)
HEADERS = (
    ("Range", "bytes=0-"),
    ("Range", "bytes=-1,5-2"),
    ("Range", "bytes=99999999999999999999-"),
    ("Accept", "\u00e9"),
    ("Content-Encoding", "gzip"),
    ("Content-Type", "application/json; charset=utf-16"),
    ("Content-Type", "x/" + "y" * 500),
    ("Content-Type", "multipart/form-data"),
    ("Content-Type", "multipart/form-data; boundary="),
    ("If-None-Match", "*"),
    ("If-Modified-Since", "Thu, 99 Foo 0000 00:00:00 GMT"),
    ("Last-Event-ID", "-1"),
    ("Origin", "null"),
    ("Origin", "http://[::1"),
    ("X-Forwarded-For", "999.1.1.1, ::1"),
    ("Forwarded", 'for="_x'),
    ("Authorization", "Bearer"),
    ("Authorization", "Basic !!!"),
    ("Authorization", "Bearer \u00e9"),
    ("Cookie", "=;=;\x01=a"),
    ("Idempotency-Key", "k" * 2_000),
    ("Parley-Session", "../x"),
    ("Upgrade", "websocket"),
    ("Expect", "100-continue"),
    ("Host", ""),
    ("Host", "a:b:c"),
)
CHAT = {
    "model": "parley",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "What are your opening hours?"},
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 20,
    "temperature": 0.5,
    "n": 1,
    "metadata": {"session": "nosuchsession"},
}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}}
SEES = {"model": "parley", "messages": [{"role": "user", "content": [PICTURE]}], "stream": False}
SPEECH = {"model": "parley", "voice": "parley", "input": "Hello.", "response_format": "pcm", "speed": 1.0}
FORM = {
    "model": "parley",
    "response_format": "verbose_json",
    "timestamp_granularities[]": "word",
    "language": "en",
}
DESK = "desk-of-fuzz"
MORE_BODIES: dict[str, Any] = {
    "POST /v1/chat/completions": CHAT,
    "POST /v1/audio/speech": SPEECH,
    "POST /api/sessions": {},
    "POST /api/token": {"user": "fuzz", "max_requests": 3},
    "POST /v1/realtime/client_secrets": {"session": {"type": "realtime"}},
    "POST /api/desk/sessions/{session_id}/take": {"desk": DESK},
    "POST /api/desk/sessions/{session_id}/say": {"desk": DESK, "text": "Hello."},
    "POST /api/desk/sessions/{session_id}/whisper": {"text": "Be kind."},
    "POST /api/desk/sessions/{session_id}/return": {"desk": DESK, "note": "Done."},
    "POST /api/sessions/{session_id}/call-code": {},
    "POST /sessions/{session_id}/api/offer": OFFER,
}
IMPORTED = {"v": 1, "session": "s1", "seq": 1, "kind": "user_turn", "payload": {"text": "Hello."}}


@cache
def _entries() -> tuple[Entry, ...]:
    return tuple(
        entry
        for entry in entries()
        if entry.kind == "http" and entry.path not in LEFT_OUT and not entry.path.startswith(TELEPHONE)
    )


async def routes(conversation: FuzzConversation) -> None:
    """Request any route, with a session of the fuzzer's own where it needs one."""
    dice = conversation.dice
    everything = _entries()
    async with conversation.run.client(conversation.address) as client:
        session = await new_session(client)
        for _ in range(REQUESTS):
            await _request(conversation, client, dice.choice(everything), session)


async def _request(
    conversation: FuzzConversation, client: aiohttp.ClientSession, entry: Entry, session: str
) -> None:
    dice = conversation.dice
    body, kind = _body(entry, dice)
    path = path_of(entry, session_id=session)
    if dice.random() < 0.1:
        path = path_of(
            entry, session_id=_strange(dice), **{name: _strange(dice) for name in ("name", "file")}
        )
    if dice.random() < 0.3:
        path += ("&" if "?" in path else "?") + dice.choice(QUERIES)
    headers = {"Content-Type": kind} if kind else {}
    if dice.random() < 0.5:
        headers["Authorization"] = f"Bearer {conversation.target.operator_token}"
    if dice.random() < 0.2:
        name, value = dice.choice(HEADERS)
        headers[name] = value
    method = (
        dice.choice(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "X"))
        if dice.random() < 0.05
        else entry.method
    )
    await conversation.note(f"{method} {path} {headers if len(headers) > 1 else ''} ".encode() + body)
    await _exchange(conversation, client, method, path, entry.name, data=body or None, headers=headers)


async def _exchange(
    conversation: FuzzConversation,
    client: aiohttp.ClientSession,
    method: str,
    path: str,
    name: str,
    **given: Any,
) -> None:
    """Send a request and read its answer, or the beginning of one that does not end."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_S)
    try:
        async with client.request(method, path, timeout=timeout, allow_redirects=False, **given) as response:
            conversation.answered(response.status, name)
            if response.content_type == "text/event-stream" and method == "GET":
                return
            conversation.learn((await response.content.read(LONGEST_READ_BYTES)).decode(errors="replace"))
    except (*GONE, ValueError, UnicodeError) as error:
        conversation.tally[type(error).__name__] += 1


def _body(entry: Entry, dice: Dice) -> tuple[bytes, str]:
    body, kind = body_of(entry)
    if entry.method in ("GET", "HEAD", "DELETE"):
        return b"", ""
    if entry.path == "/api/sessions/import":
        lines = [_encoded([IMPORTED], dice) for _ in range(dice.randint(1, 4))]
        return b"\n".join(lines), kind
    if kind == JSON:
        return _encoded([MORE_BODIES.get(entry.name) or BODIES.get(entry.name, {})], dice), kind
    return (mutated_bytes(body, dice) if body else b""), kind


def _encoded(messages: Sequence[Any], dice: Dice) -> bytes:
    data = payload(messages, dice)
    return data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")


def _strange(dice: Dice) -> str:
    return quote(dice.choice(STRANGE_TEXTS).encode("utf-8", "surrogatepass")[:2_000], safe="") or "%20"


async def openai(conversation: FuzzConversation) -> None:
    """Use OpenAI's HTTP API."""
    dice = conversation.dice
    async with conversation.run.client(conversation.address) as client:
        for _ in range(REQUESTS):
            kind = dice.random()
            if kind < 0.6:
                path, given = "/v1/chat/completions", _json([CHAT, SEES], dice)
            elif kind < 0.8:
                path, given = "/v1/audio/speech", _json([SPEECH], dice)
            else:
                path, given = "/v1/audio/transcriptions", _form(dice)
            await conversation.note(f"POST {path} ".encode() + given["data"])
            await _exchange(conversation, client, "POST", path, path, **given)


def _json(messages: Sequence[Any], dice: Dice) -> dict[str, Any]:
    return {"data": _encoded(messages, dice), "headers": {"Content-Type": JSON}}


def _form(dice: Dice) -> dict[str, Any]:
    """Return a form with a recording: the fields, the file or the bytes of the form are changed."""
    change = dice.randrange(5)
    file = _recording()
    if change in (0, 1):
        file = mutated_bytes(file, dice) if change else dice.randbytes(dice.randrange(5_000))
    fields = dict(FORM)
    if change == 2:
        fields[dice.choice(list(fields))] = dice.choice(STRANGE_TEXTS).replace("\ud800", "?")
    boundary = "fuzz-boundary"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    data = b"".join((*parts, head.encode(), file, f"\r\n--{boundary}--\r\n".encode()))
    if change == 3:
        data = mutated_bytes(data, dice)
    if change == 4:
        data = data[: dice.randrange(len(data))]
    return {"data": data, "headers": {"Content-Type": f"multipart/form-data; boundary={boundary}"}}


def _recording() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(16_000)
        written.writeframes(bytes(3_200))
    return file.getvalue()
