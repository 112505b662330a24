"""A MiniCPM-o server on loopback: its protocol, with a stand-in for its model.

Each connection has one thread and is served serially, as in the real worker. Faults of the model are
requested from its stand-in (``tests.fakes.minicpm_duplex``); ``Faults`` are those of the server itself.

``minicpm_worker`` is one worker of the server: one conversation at a time, with its health at ``GET
/health``. It is busy from the handshake on and refuses a second client before that is accepted. A client sees
HTTP 403, as with the real one, which closes with 1013. ``python -m tests.peers.minicpm_server`` runs a worker
in a process, which can be stopped and killed.
"""

import base64
import io
import json
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from tests.fakes.minicpm_duplex import StandInDuplex

# The only fields of the message's config that the real worker passes to its model.
REACHES_THE_MODEL = (
    "decode_mode",
    "temperature",
    "top_k",
    "top_p",
    "listen_prob_scale",
    "listen_top_k",
    "text_repetition_penalty",
    "text_repetition_window_size",
    "length_penalty",
)


@dataclass(slots=True)
class Faults:
    """Faults of the server.

    Attributes:
        queue: queue messages that are sent before a worker is available.
        full: the queue is full.
        silent: the server never prepares.
        at: chunk, from 1, whose result is replaced by ``instead``; None closes the connection, an empty text
            sends nothing at all.
        until: the last such chunk; 0: only that one.
        but: chunk between them that is not affected.
        late_result: the result follows the error.
    """

    queue: tuple[dict[str, Any], ...] = ()
    full: bool = False
    silent: bool = False
    at: int = 0
    until: int = 0
    but: int = 0
    instead: str | None = None
    late_result: bool = False


@dataclass(slots=True)
class MiniCpmServer:
    """Server that records what it received.

    Attributes:
        url: URL of its socket.
        faults: faults of connections from now on.
        prepared: the fields of each prepare message.
        chunks: the fields of each chunk, without its audio.
        heard: the audio.
        stopped: number of connections that ended with a stop.
        paths: paths that were requested.
        late: set when a late result has arrived.
        config: config of the last conversation; the real server keeps it for the next one that sends none.
    """

    url: str = ""
    faults: Faults = field(default_factory=Faults)
    prepared: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    heard: list[np.ndarray] = field(default_factory=list)
    stopped: int = 0
    paths: list[str] = field(default_factory=list)
    late: threading.Event = field(default_factory=threading.Event)
    config: dict[str, Any] = field(default_factory=dict)

    def serve(self, connection: ServerConnection) -> None:
        """Serve one conversation."""
        faults = self.faults
        try:
            self._talk(connection, faults)
        except ConnectionClosed:
            return

    def _talk(self, connection: ServerConnection, faults: Faults) -> None:
        assert connection.request is not None
        self.paths.append(connection.request.path)
        if faults.full:
            connection.send(json.dumps({"type": "error", "error": "Queue full (1000 requests)"}))
            connection.close(1013, "Queue full")
            return
        for message in faults.queue:
            connection.send(json.dumps(message))
        duplex = StandInDuplex(force_listen_count=3)
        chunks = 0
        for data in connection:
            message = json.loads(data)
            kind = message["type"]
            if kind == "prepare":
                if faults.silent:
                    continue
                self._prepare(duplex, message)
                connection.send(
                    json.dumps({"type": "prepared", "prompt_length": len(message["system_prompt"])})
                )
            elif kind == "audio_chunk":
                chunks += 1
                if faults.at <= chunks <= (faults.until or faults.at) and chunks != faults.but:
                    if faults.instead is None:
                        connection.socket.close()
                        return
                    if faults.instead:
                        connection.send(faults.instead)
                    if faults.late_result:
                        connection.send(json.dumps(self._unit(duplex, message)))
                        duplex.finalize_unit()
                        # The pong follows everything that was sent before it.
                        connection.ping().wait(5)
                        self.late.set()
                    continue
                connection.send(json.dumps(self._unit(duplex, message)))
                duplex.finalize_unit()
            elif kind == "stop":
                self.stopped += 1
                connection.send(json.dumps({"type": "stopped"}))
                return
            else:
                connection.send(json.dumps({"type": "error", "error": f"Unknown message type: {kind}"}))

    def _prepare(self, duplex: StandInDuplex, message: dict[str, Any]) -> None:
        voice = message.get("ref_audio_base64")
        self.prepared.append(message | {"voice": None if voice is None else _floats(voice)})
        if "config" in message:
            self.config = message["config"]
        duplex.prepare(message["system_prompt"])
        # The real worker has a voice of its own.
        duplex._voice = True

    def _unit(self, duplex: StandInDuplex, message: dict[str, Any]) -> dict[str, Any]:
        audio = _floats(message["audio_base64"])
        frames = [
            Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
            for data in message.get("frame_base64_list", ())
        ]
        self.heard.append(audio)
        self.chunks.append(
            {name: value for name, value in message.items() if not name.endswith(("base64", "list"))}
            | {"frames": [frame.size for frame in frames]}
        )
        duplex.streaming_prefill(audio, frames, message.get("max_slice_nums", 1))
        options = {name: value for name, value in self.config.items() if name in REACHES_THE_MODEL}
        result = duplex.streaming_generate(
            **options, force_listen_override=message.get("force_listen", False)
        )
        sound = result["audio_waveform"].astype("<f4")
        return {
            "type": "result",
            "is_listen": result["is_listen"],
            "text": result["text"],
            "audio_data": base64.b64encode(sound.tobytes()).decode(),
            "end_of_turn": result["end_of_turn"],
            "current_time": result["current_time"],
            "cost_llm_ms": result["cost_llm"] * 1000,
            "cost_tts_prep_ms": None,
            "cost_tts_ms": result["cost_tts"] * 1000,
            "cost_token2wav_ms": None,
            "cost_all_ms": result["cost_all"] * 1000,
            "n_tokens": result["n_tokens"],
            "n_tts_tokens": result["n_tts_tokens"],
            "server_send_ts": 0.0,
            "wall_clock_ms": 3.0,
            "kv_cache_length": duplex.decoder.get_cache_length(),
            "vision_slices": 0,
            "vision_tokens": 0,
        }


def result_with(audio: np.ndarray | bytes | str | None, **fields: object) -> str:
    """Return a result that speaks, with this audio."""
    data = audio if isinstance(audio, str | None) else base64.b64encode(bytes(audio)).decode()
    return json.dumps(
        {"type": "result", "is_listen": False, "text": "no", "audio_data": data, "end_of_turn": False}
        | fields
    )


@contextmanager
def minicpm_server(
    faults: Faults | None = None, *, tls: ssl.SSLContext | None = None
) -> Iterator[MiniCpmServer]:
    """Run a server that listens on loopback."""
    made = MiniCpmServer(faults=faults or Faults())
    with serve(made.serve, "127.0.0.1", 0, compression=None, max_size=128 * 1024 * 1024, ssl=tls) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        scheme = "ws" if tls is None else "wss"
        made.url = f"{scheme}://127.0.0.1:{server.socket.getsockname()[1]}/ws/duplex/{{session}}"
        try:
            yield made
        finally:
            server.shutdown()
            thread.join(5)


@dataclass(slots=True)
class MiniCpmWorker(MiniCpmServer):
    """Worker of the server, whose health can be set.

    Attributes:
        status: status of its model.
        doing: what it does: ``worker_status``.
        model_loaded: as reported in its health.
        current: session that it reports.
        cleans_s: time for which it stays busy after a conversation.
        answers: whether it answers to ``GET /health`` at all.
        tells_nothing: it refuses conversations and reports itself idle.
        hook: called in place of ``ask``.
        asked: number of requests for its health.
    """

    status: str = "healthy"
    doing: str = "idle"
    model_loaded: bool = True
    current: str | None = None
    cleans_s: float = 0.0
    answers: bool = True
    tells_nothing: bool = False
    hook: Callable[[ServerConnection, Request], Response | None] | None = None
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    ends: threading.Event = field(default_factory=threading.Event)

    @property
    def base(self) -> str:
        """The address of the worker."""
        return self.url.partition("/ws/")[0].replace("ws", "http", 1)

    def ask(self, connection: ServerConnection, request: Request) -> Response | None:
        """Return the response before a conversation; None accepts it."""
        if request.path == "/health":
            self.asked += 1
            if not self.answers:
                self.ends.wait(30)
            return self._health()
        with self.lock:
            if self.doing != "idle" or not self.model_loaded or self.tells_nothing:
                return connection.respond(403, "")
            self.doing = "duplex_active"
            self.current = "20260101_000000_" + request.path.partition("session_id=")[2]
        return None

    def serve(self, connection: ServerConnection) -> None:
        """Serve one conversation."""
        try:
            # A zero-argument super() fails in a dataclass with slots.
            MiniCpmServer.serve(self, connection)
        finally:
            time.sleep(self.cleans_s)
            self.doing, self.current = "idle", None

    def _health(self) -> Response:
        body = json.dumps(
            {
                "status": self.status,
                "worker_status": self.doing,
                "gpu_id": 3,
                "model_loaded": self.model_loaded,
                "current_session_id": self.current,
                "total_requests": 7,
                "avg_inference_time_ms": 41.5,
                "kv_cache_length": 0,
            }
        ).encode()
        headers = Headers(
            {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
        )
        return Response(200, "OK", headers, body)


@contextmanager
def minicpm_worker(port: int = 0, **state: Any) -> Iterator[MiniCpmWorker]:
    """Run a worker that listens on loopback."""
    made = MiniCpmWorker(**state)
    with serve(
        made.serve,
        "127.0.0.1",
        port,
        process_request=lambda *asked: (made.hook or made.ask)(*asked),
        compression=None,
        max_size=128 * 1024 * 1024,
    ) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        made.url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}/ws/duplex?session_id={{session}}"
        try:
            yield made
        finally:
            made.ends.set()
            server.shutdown()
            thread.join(5)


@dataclass
class WorkerChild:
    """Worker in a process of its own.

    Attributes:
        base: its address.
        process: the process.
    """

    base: str
    process: "subprocess.Popen[bytes]"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: stop it, continue it, or kill it."""
        self.process.send_signal(number)


@contextmanager
def minicpm_worker_process(port: int = 0) -> Iterator[WorkerChild]:
    """Run a worker that can be killed."""
    command = [sys.executable, "-m", "tests.peers.minicpm_server", str(port)]
    process = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield WorkerChild(process.stdout.readline().decode().strip(), process)
    finally:
        process.kill()
        process.wait(5)
        process.stdout.close()


def _floats(data: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(data), dtype="<f4")


if __name__ == "__main__":
    with minicpm_worker(int(sys.argv[1])) as worker:
        print(worker.base, flush=True)
        signal.pause()
