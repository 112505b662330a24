"""Servers of voices over HTTP that stream the audio of a text, with faults: each word is a tone."""

import asyncio
import io
import json
import socket
import wave
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from aiohttp import web

from parley.evals.harness.services.tone import tone
from tests.peers.http_peer import HttpPeer

KEY = "secret"
RATE_HZ = 24_000
WORD_MS = 250
PIECE_MS = 50
# Generation is four times as fast as speech.
PIECE_S = PIECE_MS / 4 / 1000


class SpeechFault(Enum):
    """Fault of a server."""

    NONE = auto()
    # Refuses the request with a status.
    UNAUTHORIZED = auto()
    TOO_MANY = auto()
    # Never answers.
    HANGS = auto()
    # Answers that audio follows, and sends none.
    HEADERS_ONLY = auto()
    # Drops the connection after ``cut_ms`` of audio.
    CUT = auto()
    # Sends nothing more after ``cut_ms`` of audio.
    STALLS = auto()
    # Answers with a page, with JSON, or with another audio format.
    GARBAGE = auto()
    JSON = auto()
    MP3 = auto()
    MULAW = auto()
    BIG_ENDIAN = auto()
    # Sends digital silence.
    SILENT = auto()
    # Ends the answer without audio.
    EMPTY = auto()
    # Closes the connection in place of an answer, once.
    DISCONNECTS_ONCE = auto()
    # Sends audio without an end, as fast as it can.
    ENDLESS = auto()
    # Refuses the text and quotes it; quotes its words as a synthesiser spells them; quotes it in a refusal
    # that every request gets.
    QUOTES = auto()
    SPELLS = auto()
    QUOTES_TOO_MANY = auto()


@dataclass
class SpeechServer(HttpPeer):
    """Server of one protocol; a test may change the fault at any time.

    Attributes:
        fault: present fault.
        cut_ms: audio of a text before a fault in its middle.
        odd: pieces have odd lengths.
        wav: the audio comes with a WAV header, with its length or without.
        texts: texts that were asked for, in order.
        left: number of answers that the client has ended.
        connections: number of connections that were opened.
    """

    fault: SpeechFault = SpeechFault.NONE
    cut_ms: int = 0
    odd: bool = False
    wav: bool = False
    texts: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0
    connections: int = 0
    _seen: set[int] = field(default_factory=set)

    @abstractmethod
    def check(self, request: web.Request, fields: dict[str, Any]) -> web.Response | None:
        """Return the refusal of a wrong request; None for a right one."""

    @abstractmethod
    def text_of(self, fields: dict[str, Any]) -> str:
        """Return the text of a request."""

    def error(self, status: int, message: str) -> web.Response:
        """Return an error in the protocol's form."""
        return web.json_response({"detail": message}, status=status)

    def kind(self) -> str:
        """Return the content type of the audio."""
        return "audio/wav" if self.wav else "audio/pcm"

    async def speak(self, request: web.Request) -> web.StreamResponse:
        """Answer one request for speech."""
        if id(request.transport) not in self._seen:
            self._seen.add(id(request.transport))
            self.connections += 1
        try:
            return await self._speak(request)
        except asyncio.CancelledError:
            self.left += 1
            raise

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        fields = await request.json()
        self.requests.append(fields)
        match self.fault:
            case SpeechFault.DISCONNECTS_ONCE:
                self.fault = SpeechFault.NONE
                _transport(request).abort()
                return web.Response()
            case SpeechFault.UNAUTHORIZED:
                return self.error(401, "Incorrect API key provided")
            case SpeechFault.TOO_MANY:
                return self.error(429, "Rate limit reached")
            case SpeechFault.HANGS:
                await asyncio.Event().wait()
            case SpeechFault.GARBAGE:
                return web.Response(text="<html>502 Bad Gateway</html>", content_type="text/html")
            case SpeechFault.JSON:
                return web.json_response({"audio": "UklGRg=="})
            case SpeechFault.MP3:
                return web.Response(body=b"ID3\x04" + bytes(4_000), content_type="audio/mpeg")
            case SpeechFault.MULAW:
                return web.Response(body=b"\xff" * 4_000, content_type="audio/basic")
            case SpeechFault.BIG_ENDIAN:
                return web.Response(body=bytes(4_000), content_type="audio/L16")
        if (refusal := self.check(request, fields)) is not None:
            return refusal
        text = self.text_of(fields)
        match self.fault:
            case SpeechFault.QUOTES:
                return self.error(400, f"cannot speak {text!r}")
            case SpeechFault.SPELLS:
                return self.error(500, "no phoneme in 'mˈaɪ nˈʌmbɚ wˈʌn tˈuː'")
            case SpeechFault.QUOTES_TOO_MANY:
                return self.error(429, f"wait with {text!r}")
        self.texts.append(text)
        return await self._send(request, len(text.split()) * WORD_MS)

    async def _send(self, request: web.Request, whole_ms: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": self.kind()})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if self.fault is SpeechFault.HEADERS_ONLY:
            await asyncio.Event().wait()
        rest = self.header() if self.wav else b""
        start_ms = 0
        while start_ms < whole_ms and self.fault is not SpeechFault.EMPTY:
            if self.fault in (SpeechFault.CUT, SpeechFault.STALLS) and start_ms >= self.cut_ms:
                if rest:
                    await response.write(rest)
                if self.fault is SpeechFault.STALLS:
                    await asyncio.Event().wait()
                _transport(request).abort()
                return response
            pcm = tone(start_ms, PIECE_MS, RATE_HZ)
            rest += bytes(len(pcm)) if self.fault is SpeechFault.SILENT else pcm
            # The last byte waits for the next piece.
            cut = len(rest) - 1 if self.odd else len(rest)
            await response.write(rest[:cut])
            rest = rest[cut:]
            if self.fault is not SpeechFault.ENDLESS:
                start_ms += PIECE_MS
                await asyncio.sleep(PIECE_S)
        if rest:
            await response.write(rest)
        await response.write_eof()
        return response

    def header(self) -> bytes:
        """Return a WAV header that is written before the length of the audio is known."""
        written = io.BytesIO()
        with wave.open(written, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE_HZ)
            file.writeframes(b"")
        return written.getvalue()


@dataclass
class OpenAiSpeechServer(SpeechServer):
    """OpenAI's speech endpoint.

    Attributes:
        key: the key that a client needs; None for a server without keys.
    """

    key: str | None = KEY

    @property
    def url(self) -> str:
        """Address of the server, up to and including ``/v1``."""
        return f"http://127.0.0.1:{self.port}/v1"

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/audio/speech", self.speak)]

    def check(self, request: web.Request, fields: dict[str, Any]) -> web.Response | None:
        wanted = None if self.key is None else f"Bearer {self.key}"
        if request.headers.get("Authorization") != wanted:
            return self.error(401, "Incorrect API key provided")
        missing = [name for name in ("model", "input", "voice") if name not in fields]
        if missing or fields.get("response_format") != "pcm":
            return self.error(400, f"missing {missing}, or not PCM")
        if fields["voice"] == "unknown":
            return self.error(400, f"no voice {fields['voice']!r} for {fields['input']!r}")
        if fields["voice"] == "unlisted":
            # As FastAPI does, it repeats the request.
            return web.json_response({"detail": [{"loc": ["voice"], "input": fields}]}, status=422)
        return None

    def text_of(self, fields: dict[str, Any]) -> str:
        return str(fields["input"])

    def error(self, status: int, message: str) -> web.Response:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        return web.json_response({"error": error}, status=status)


def _transport(request: web.Request) -> asyncio.Transport:
    transport = request.transport
    assert isinstance(transport, asyncio.Transport)
    return transport


def closed_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


# Rows and columns of XTTS' arrays; the real ones have 32 rows of 1,024 and 512 numbers.
LATENT_ROWS, LATENT_COLUMNS, EMBEDDING = 3, 1_024, 64


def _open() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


class CloneFault(Enum):
    """Fault of ``/clone_speaker`` and ``/studio_speakers``."""

    NONE = auto()
    # Fails inside, as the real server does for a file that is no audio.
    BROKEN = auto()
    # Never answers.
    HANGS = auto()
    # Answers with a page, with an object without arrays, and with numbers that are none.
    GARBAGE = auto()
    OTHER_JSON = auto()
    NOT_FINITE = auto()
    # Answers with JSON that is nested too deeply, as an error too, and with an integer beyond every float.
    DEEP = auto()
    DEEP_ERROR = auto()
    HUGE = auto()


@dataclass
class XttsServer(SpeechServer):
    """Coqui's XTTS streaming server.

    Attributes:
        speakers: names of its own speakers.
        clone_fault: fault of requests for speakers.
        may_clone: such a request is answered once this is set.
        cloned: recordings that it was given, in order.
        studio_requests: number of requests for its own speakers.
        spoken_with: first number of the speaker of each text: of its own ones their place, of a recording
            100 and its place in ``cloned``.
    """

    speakers: tuple[str, ...] = ("Claribel Dervla", "Luís Moray")
    clone_fault: CloneFault = CloneFault.NONE
    may_clone: asyncio.Event = field(default_factory=_open)
    cloned: list[bytes] = field(default_factory=list)
    studio_requests: int = 0
    spoken_with: list[float] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/tts_stream", self.speak),
            web.post("/clone_speaker", self._clone),
            web.get("/studio_speakers", self._studio),
        ]

    def kind(self) -> str:
        # Whatever was asked for.
        return "audio/wav"

    def check(self, request: web.Request, fields: dict[str, Any]) -> web.Response | None:
        embedding, latent = fields["speaker_embedding"], fields["gpt_cond_latent"]
        shapes = len(embedding), len(latent), {len(row) for row in latent}
        if shapes != (EMBEDDING, LATENT_ROWS, {LATENT_COLUMNS}):
            return web.json_response({"detail": [{"loc": ["body"], "input": fields["text"]}]}, status=422)
        if not isinstance(fields["stream_chunk_size"], str) or fields["add_wav_header"]:
            return web.json_response({"detail": [{"loc": ["body"]}]}, status=422)
        self.spoken_with.append(embedding[0])
        return None

    def text_of(self, fields: dict[str, Any]) -> str:
        return str(fields["text"])

    async def _clone(self, request: web.Request) -> web.StreamResponse:
        posted = await request.post()
        recording = posted["wav_file"]
        assert isinstance(recording, web.FileField)
        self.cloned.append(recording.file.read())
        place = 100 + len(self.cloned) - 1
        return await self._answer(lambda: _speaker(place))

    async def _studio(self, request: web.Request) -> web.StreamResponse:
        self.studio_requests += 1
        return await self._answer(lambda: {name: _speaker(place) for place, name in enumerate(self.speakers)})

    async def _answer(self, found: Callable[[], Any]) -> web.StreamResponse:
        await self.may_clone.wait()
        match self.clone_fault:
            case CloneFault.BROKEN:
                return web.Response(status=500, text="Internal Server Error")
            case CloneFault.HANGS:
                await asyncio.Event().wait()
            case CloneFault.GARBAGE:
                return web.Response(text="<html>502 Bad Gateway</html>", content_type="text/html")
            case CloneFault.OTHER_JSON:
                return web.json_response({"Claribel Dervla": {"embedding": [1.0]}})
            case CloneFault.DEEP | CloneFault.DEEP_ERROR:
                status = 200 if self.clone_fault is CloneFault.DEEP else 500
                return web.Response(status=status, text="[" * 100_000, content_type="application/json")
        text = json.dumps(found(), ensure_ascii=False, separators=(",", ":"))
        if self.clone_fault is CloneFault.NOT_FINITE:
            text = text.replace("0.1234", "NaN")
        if self.clone_fault is CloneFault.HUGE:
            text = text.replace("0.1234", str(10**400))
        return web.Response(text=text, content_type="application/json")


def _speaker(place: int) -> dict[str, Any]:
    row = [0.1234, *([0.25] * (LATENT_COLUMNS - 1))]
    return {
        "gpt_cond_latent": [row] * LATENT_ROWS,
        "speaker_embedding": [float(place), *([0.012345678] * (EMBEDDING - 1))],
    }
