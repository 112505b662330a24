"""A well-formed request for every route: parameters of its path, and a body.

A route that is not listed here gets made-up parameters and an empty body.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from parley.evals.abuse.routes import TELEPHONE, Entry

# Values of path parameters; ``session_id`` is that of a session if there is one.
PARAMETERS: Mapping[str, str] = {
    "client_id": "adx_abuse",
    "name": "abuse",
    "token": "nosuchtoken",
    "ticket_id": "nosuchticket",
    "call_id": "rtc_nosuchcall",
    "app_id": "browser",
    "voice_id": "nosuchvoice",
    "mode": "omni",
    "preset_id": "nosuchpreset",
    "call_sid": "CA" + "0" * 32,
    "session_id": "nosuchsession",
    "share_id": "nosuchlink",
    "comment_id": "nosuchcomment",
    "file": "styles.css",
}
QUERIES: Mapping[str, str] = {
    "/v1/realtime": "model=parley-cascade",
    # As with ``OFFER_OF_NOTHING``.
    "/v1/realtime/calls": "session=nosuchsession",
    # A client that is let in gets 404, and no conversation begins.
    "/api/chat": "session=nosuchsession",
}
SDP = (
    "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n"
    "m=audio 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=rtpmap:96 opus/48000/2\r\na=sendrecv\r\n"
    "a=mid:0\r\na=rtcp-mux\r\na=ice-ufrag:abcd\r\na=ice-pwd:abcdefghijklmnopqrstuv\r\na=setup:actpass\r\n"
    f"a=fingerprint:sha-256 {':'.join(['AB'] * 32)}\r\n"
)
CANDIDATES = {
    "pc_id": "nosuchconnection",
    "candidates": [
        {"candidate": "candidate:1 1 udp 1 127.0.0.1 9 typ host", "sdp_mid": "0", "sdp_mline_index": 0}
    ],
}
OFFER = {"sdp": SDP, "type": "offer"}
# For a session that does not exist: a client that is let in gets 404, and no call begins.
OFFER_OF_NOTHING = {**OFFER, "requestData": {"session": "nosuchsession"}}
# JSON bodies by the name of the entry.
BODIES: Mapping[str, Any] = {
    "POST /api/admin/session": {"token": "wrong-token-of-an-attacker"},
    "POST /api/offer": OFFER_OF_NOTHING,
    "PATCH /api/offer": CANDIDATES,
    "POST /sessions/{session_id}/api/offer": OFFER_OF_NOTHING,
    "PATCH /sessions/{session_id}/api/offer": CANDIDATES,
    "POST /start": {"body": {}},
    "PUT /api/admin/apps/{app_id}": {"enabled": True},
    "PUT /api/config/eta": {},
    "POST /api/chat": {"messages": [{"role": "user", "content": "Hello."}]},
    "POST /api/sessions/{session_id}/messages": {"text": "Hello."},
    "POST /api/sessions/{session_id}/annotations": {
        "annotations": [{"stream": "vision", "age_ms": 100, "payload": {"gesture": "pointing"}}]
    },
    "POST /api/sessions/{session_id}/comment": {"comment": "Hello."},
    "POST /api/sessions/{session_id}/comments": {"at_us": 1, "text": "Hello."},
    "POST /api/sessions/{session_id}/shares": {"expires_s": 60},
    "POST /api/shared/{share_id}": {"secret": "nosuchsecret"},
    "PUT /api/sessions/{session_id}/caller": {"number": "+15550100"},
    "POST /twilio/calls": {"to": "+15550123"},
    "POST /v1/voices": {},
    "POST /v1/voice-donation": {},
    "POST /api/assets/ref_audio": {},
}
# Form of a telephone network.
FORM = {
    "AccountSid": "AC" + "1" * 32,
    "CallSid": "CA" + "2" * 32,
    "From": "+15550100",
    "To": "+15550199",
    "Direction": "inbound",
    "CallStatus": "ringing",
}
BOUNDARY = "abuse"
# Beginning of a WebM file.
UPLOAD = (
    (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="recording.webm"\r\n'
        "Content-Type: video/webm\r\n\r\n"
    ).encode()
    + bytes.fromhex("1a45dfa3844282847765626d")
    + f"\r\n--{BOUNDARY}--\r\n".encode()
)
PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


def path_of(entry: Entry, **given: str) -> str:
    """Return a path that the entry serves, with its query.

    Args:
        entry: the route.
        given: parameters that replace those of ``PARAMETERS``.
    """
    path = PARAMETER.sub(lambda match: given.get(match[1]) or PARAMETERS.get(match[1], "abuse"), entry.path)
    query = QUERIES.get(entry.path)
    return f"{path}?{query}" if query else path


def body_of(entry: Entry) -> tuple[bytes, str]:
    """Return a body that the entry accepts, and its content type; both empty when it accepts none."""
    if entry.method in ("", "GET", "HEAD", "DELETE"):
        return b"", ""
    if entry.path.startswith(TELEPHONE) and entry.path != "/twilio/calls":
        return "&".join(f"{name}={value.replace('+', '%2B')}" for name, value in FORM.items()).encode(), (
            "application/x-www-form-urlencoded"
        )
    if entry.path == "/v1/realtime/calls":
        return SDP.encode(), "application/sdp"
    if entry.path == "/api/sessions/import":
        return b"", "application/x-ndjson"
    if entry.path.endswith("/upload-recording"):
        return UPLOAD, f"multipart/form-data; boundary={BOUNDARY}"
    return json.dumps(BODIES.get(entry.name, {})).encode(), "application/json"
