"""Protocols of the server's sockets, each with the messages of a short conversation.

The messages are well-formed, and mutations start from them. ``opening`` has the messages that a conversation
needs first.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parley.evals.abuse.attacks.floods import SILENT_PACKET, page

SILENCE_16 = base64.b64encode(bytes(16_000 * 4 // 2)).decode()
SILENCE_24 = base64.b64encode(bytes(24_000 * 2 // 10)).decode()
OPUS = base64.b64encode(page((b"OpusHead\x01\x01\0\0\xc0\x5d\0\0\0\0\0",), 0, 0)).decode()
MORE_OPUS = base64.b64encode(page((SILENT_PACKET,), 960, 1)).decode()
TOOL = {
    "type": "function",
    "name": "look_up",
    "description": "Looks something up.",
    "parameters": {
        "type": "object",
        "properties": {"what": {"type": "string", "maxLength": 20}, "many": {"type": "integer"}},
        "required": ["what"],
    },
}
MCP = {
    "type": "mcp",
    "server_label": "shop",
    "server_url": "https://mcp.invalid/mcp",
    "headers": {"X-Shop": "12"},
    "allowed_tools": {"tool_names": ["look_up"], "read_only": True},
    "require_approval": {"never": {"tool_names": ["look_up"]}},
}
UPDATE = {
    "type": "realtime",
    "instructions": "Be brief.",
    "tools": [TOOL],
    "output_modalities": ["audio"],
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24_000},
            "turn_detection": {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 500},
        },
        "output": {"voice": "parley", "speed": 1.0},
    },
}
WORDS = {"type": "input_text", "text": "What are your opening hours?"}
ITEM = {"type": "message", "role": "user", "content": [WORDS]}


@dataclass(frozen=True, slots=True)
class Protocol:
    """Protocol of a socket, with messages.

    Attributes:
        name: of the protocol.
        path: of its socket.
        opening: messages that come first, unchanged.
        messages: source of the mutations.
        subprotocols: offered in the handshake.
    """

    name: str
    path: str
    opening: Sequence[Any]
    messages: Sequence[Any]
    subprotocols: tuple[str, ...] = ()


PROTOCOLS = (
    Protocol(
        "openai",
        "/v1/realtime?model=parley-cascade",
        ({"type": "session.update", "session": UPDATE},),
        (
            {"type": "session.update", "event_id": "e1", "session": UPDATE},
            {"type": "input_audio_buffer.append", "audio": SILENCE_24},
            {"type": "input_audio_buffer.commit"},
            {"type": "input_audio_buffer.clear"},
            {"type": "conversation.item.create", "previous_item_id": "root", "item": ITEM},
            {
                "type": "conversation.item.create",
                "item": {"type": "function_call_output", "call_id": "c1", "output": "{}"},
            },
            {"type": "session.update", "session": {"type": "realtime", "tools": [TOOL, MCP]}},
            {
                "type": "conversation.item.create",
                "item": {"type": "mcp_approval_response", "approval_request_id": "a1", "approve": True},
            },
            {"type": "conversation.item.truncate", "item_id": "i1", "content_index": 0, "audio_end_ms": 10},
            {"type": "conversation.item.retrieve", "item_id": "i1"},
            {"type": "conversation.item.delete", "item_id": "i1"},
            {"type": "response.create", "response": {"instructions": "Briefly.", "conversation": "auto"}},
            {"type": "response.cancel", "response_id": "r1"},
            {"type": "output_audio_buffer.clear"},
        ),
    ),
    Protocol(
        "unmute",
        "/v1/realtime",
        (
            {
                "type": "session.update",
                "session": {"instructions": None, "voice": None, "allow_recording": False},
            },
        ),
        (
            {
                "type": "session.update",
                "session": {
                    "instructions": {"type": "constant", "text": "Be brief.", "language": "en"},
                    "voice": "parley",
                    "allow_recording": False,
                },
            },
            {"type": "input_audio_buffer.append", "audio": OPUS},
            {"type": "input_audio_buffer.append", "audio": MORE_OPUS},
        ),
        ("realtime",),
    ),
    Protocol(
        "minicpm-realtime",
        "/v1/realtime?mode=video",
        (),
        (
            {"type": "session.update", "session": {"instructions": "Be brief.", "ref_audio": "", "x": [1]}},
            {"type": "input_audio_buffer.append", "audio": SILENCE_16, "video_frames": ["AAAA"]},
            {"type": "session.close"},
        ),
    ),
    Protocol(
        "minicpm-duplex",
        "/ws/duplex/adx_abuse",
        (),
        (
            {
                "type": "prepare",
                "system_prompt": "Be brief.",
                "config": {"temperature": 0.7, "top_k": 20, "max_slice_nums": 1},
                "deferred_finalize": True,
            },
            {"type": "audio_chunk", "audio_base64": SILENCE_16, "force_listen": False, "frames": ["AAAA"]},
            {"type": "pause"},
            {"type": "resume"},
            {"type": "interrupt"},
            {"type": "client_diagnostic", "data": {"a": 1}},
            {"type": "stop"},
        ),
    ),
    Protocol(
        "half-duplex",
        "/ws/half_duplex/abuse",
        (),
        (
            {
                "type": "prepare",
                "system_content": [{"type": "text", "text": "Be brief."}],
                "config": {
                    "vad": {"threshold": 0.5, "min_silence_duration_ms": 500},
                    "generation": {"max_new_tokens": 100, "temperature": 0.7},
                    "tts": {"enabled": True},
                    "session": {"timeout_s": 30},
                },
            },
            {"type": "audio_chunk", "audio_base64": SILENCE_16},
            {"type": "stop"},
        ),
    ),
    Protocol(
        "half-duplex-omni",
        "/ws/half_duplex_omni/abuse",
        (),
        (
            {"type": "prepare", "system_content": [{"type": "text", "text": "Be brief."}]},
            {"type": "audio_chunk", "audio_base64": SILENCE_16, "frame_base64_list": ["AAAA"]},
            {"type": "stop"},
        ),
    ),
    Protocol(
        "chat",
        "/ws/chat",
        (),
        (
            {
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
                    {
                        "role": "user",
                        "content": [{"type": "audio", "data": SILENCE_16, "sample_rate": 16_000}],
                    },
                ],
                "streaming": True,
                "generation": {"max_new_tokens": 20, "length_penalty": 1.0},
                "tts": {"enabled": False},
                "image": {"max_slice_nums": 1},
            },
        ),
    ),
    Protocol(
        "streaming",
        "/ws/streaming/abuse",
        (),
        (
            {
                "type": "prefill",
                "messages": [{"role": "user", "content": "Hello."}],
                "tts": {"enabled": False},
            },
            {"type": "generate", "generate_audio": False, "generation": {"max_new_tokens": 20}},
            {"type": "stop"},
            {"type": "close"},
        ),
    ),
    Protocol(
        "eval",
        "/ws",
        (),
        (
            {"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {"version": "1.0.0"}},
            {"type": "eval-connect"},
        ),
    ),
)
# Of a session with a live call.
ANNOTATIONS = Protocol(
    "annotations",
    "/api/sessions/{session_id}/annotations/socket",
    (),
    (
        {
            "annotations": [
                {
                    "stream": "vision",
                    "age_ms": 100,
                    "duration_ms": 500,
                    "payload": {"gesture": "pointing", "ref": "the fee", "facial_affect": "calm"},
                    "confidence": 0.9,
                    "speaker": "ann",
                    "identity": "g1",
                    "revision": 1,
                    "final": False,
                },
                {"stream": "prosody", "age_ms": 0, "payload": {"stress": 0.9, "pitch_hz": 180.0}},
                {"stream": "diar", "age_ms": 0, "payload": {"speaker_id": "ann", "embedding": [0.1, -0.1]}},
            ]
        },
        {"annotations": [{"stream": "vision", "age_ms": 0}]},
        {"annotations": [{"stream": "vision", "event_us": 1_700_000_000_000_000}]},
    ),
)
# Messages of the data channel of a WebRTC call.
RTVI = (
    {
        "label": "rtvi-ai",
        "type": "client-ready",
        "id": "1",
        "data": {"version": "1.0.0", "about": {"library": "abuse"}},
    },
    {"label": "rtvi-ai", "type": "client-message", "id": "2", "data": {"t": "gain", "d": {"value": 1}}},
    {"label": "rtvi-ai", "type": "send-text", "id": "3", "data": {"content": "Hello.", "options": {}}},
    {"label": "rtvi-ai", "type": "disconnect-bot-not", "id": "4", "data": {}},
    {"type": "signalling", "message": {"type": "renegotiate"}},
)
CALL = {"accountSid": "AC" + "1" * 32, "callSid": "CA" + "2" * 32}
STREAM = "MZ" + "3" * 32


def twilio_messages(call_sid: str, *, first: int = 1) -> list[dict[str, Any]]:
    """Return the messages of a media stream, from ``connected`` to ``stop``."""
    facts = {
        **CALL,
        "callSid": call_sid,
        "streamSid": STREAM,
        "tracks": ["inbound"],
        "customParameters": {},
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8_000, "channels": 1},
    }
    media = {
        "track": "inbound",
        "chunk": "1",
        "timestamp": "20",
        "payload": base64.b64encode(b"\xff" * 160).decode(),
    }
    parts: list[tuple[str, dict[str, Any]]] = [
        ("start", facts),
        ("media", media),
        ("dtmf", {"track": "inbound_track", "digit": "1"}),
        ("mark", {"name": "m1"}),
        ("stop", {"accountSid": CALL["accountSid"], "callSid": call_sid}),
    ]
    return [
        {"event": "connected", "protocol": "Call", "version": "1.0.0"},
        *(
            {"event": kind, "sequenceNumber": str(first + place), "streamSid": STREAM, kind: part}
            for place, (kind, part) in enumerate(parts)
        ),
    ]
