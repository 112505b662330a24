"""A MiniCPM-o server on loopback: its protocol, with the stand-in for its model.

One thread for each connection, serial within it, as the real worker is. What goes wrong is asked for by the
model's stand-in (see there), or by ``Faults`` for what the server itself does.
"""

import base64
import io
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from tests.fakes.minicpm_duplex import StandInDuplex

# The only fields of the wire's config that the real worker hands to its model.
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
    """What the server does wrong.

    Attributes:
        queue: messages before a worker is there.
        full: the queue is full.
        silent: never prepares.
        at: chunk, from 1, in place of whose result ``instead`` is sent; None closes the connection, an empty
            text sends nothing at all.
        until: the last such chunk; 0: only that one.
        but: not this one of them.
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
    """What it was sent.

    Attributes:
        url: its socket.
        faults: see there; for connections from now on.
        prepared: the fields of each prepare.
        chunks: the fields of each chunk, without its sound.
        heard: the sound.
        stopped: connections that ended with a stop.
        paths: that were asked for.
        late: a late result has arrived.
        config: of the last conversation; the real one keeps it for the next that sends none.
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
        """One conversation."""
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
                        # Answered behind what was sent before it.
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
    """A result that speaks, with this sound."""
    data = audio if isinstance(audio, str | None) else base64.b64encode(bytes(audio)).decode()
    return json.dumps(
        {"type": "result", "is_listen": False, "text": "no", "audio_data": data, "end_of_turn": False}
        | fields
    )


@contextmanager
def minicpm_server(
    faults: Faults | None = None, *, tls: ssl.SSLContext | None = None
) -> Iterator[MiniCpmServer]:
    """One that listens on loopback."""
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


def _floats(data: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(data), dtype="<f4")
