"""Handshakes of every socket: refused before a token is spent, and by the same rules."""

from queue import SimpleQueue
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pipecat.runner.types import RunnerArguments
from starlette.testclient import WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from parley.serving.gateway.admin.apps import Apps
from parley.serving.gateway.admin.operations import Operations
from parley.serving.gateway.app import create_app
from parley.serving.gateway.settings import ServerTuning
from parley.transports.webrtc.signaling import Signaling

KEY = "k" * 32
SESSION = "00000000-0000-4000-8000-000000000000"


class Gateway:
    """An application whose conversations end at once, or last until their client leaves.

    Attributes:
        begun: arguments of the conversations that began.
    """

    def __init__(self, operations: Operations | None = None, *, lasts: bool = False, **settings: Any) -> None:
        self.begun: SimpleQueue[RunnerArguments] = SimpleQueue()

        async def converse(arguments: Any) -> None:
            self.begun.put(arguments)
            while lasts and (await arguments.websocket.receive())["type"] != "websocket.disconnect":
                pass

        app = create_app(
            ServerTuning(**settings),
            run_call=converse,
            describe=dict,
            open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=0.2),
            modes=("cascade", "duplex"),
            operations=operations,
        )
        self.client = TestClient(app, base_url="http://localhost")

    def __enter__(self) -> "Gateway":
        self.client.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.client.__exit__(*error)

    def token(self, **body: Any) -> str:
        answer = self.client.post("/api/token", json=body, headers={"authorization": f"Bearer {KEY}"})
        return str(answer.json()["token"])

    def status(self, path: str, token: str = "") -> int:
        """Return the status of a handshake; 101 for one that passes."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            with self.client.websocket_connect(f"ws://localhost{path}", headers=headers):
                return 101
        except WebSocketDenialResponse as refused:
            return int(refused.status_code)
        except WebSocketDisconnect:
            # A close before the acceptance: servers answer 403.
            return 403


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)


@pytest.mark.parametrize("path", ["/ws/half_duplex/{}", "/ws/streaming/{}"])
def test_a_name_that_is_none_spends_no_token(keys: None, path: str):
    with Gateway() as gateway:
        token = gateway.token()
        assert gateway.status(path.format("a%20b%21"), token) == 400
        assert gateway.status(path.format("ann"), token) == 101


def test_the_evaluation_socket_is_closed_with_the_calls_of_browsers():
    with Gateway(Operations(apps=Apps({"browser": False}))) as gateway:
        assert gateway.status("/ws") == 403
    with Gateway() as gateway:
        assert gateway.status("/ws") == 101


def test_the_evaluation_socket_asks_for_the_surface_of_browsers(keys: None):
    with Gateway() as gateway:
        assert gateway.status("/ws", gateway.token(surfaces=["omni"])) == 403
        assert gateway.status("/ws", gateway.token(surfaces=["browser"])) == 101


@pytest.mark.parametrize("path", ["/ws", "/ws/chat", "/v1/realtime?model=parley"])
def test_a_token_that_names_sessions_opens_no_socket_without_one(keys: None, path: str):
    with Gateway() as gateway:
        assert gateway.status(path, gateway.token(sessions=[SESSION])) == 403


@pytest.mark.parametrize("path", ["/ws/chat", "/ws/streaming/ann", "/ws/duplex/ann"])
def test_the_next_token_of_a_socket_reaches_its_conversation(keys: None, path: str):
    with Gateway() as gateway:
        assert gateway.status(path, gateway.token()) == 101
        following = gateway.begun.get(timeout=5).body["next_token"]
        assert gateway.status(path, following) == 101


@pytest.mark.parametrize("path", ["/ws", "/ws/chat", "/v1/realtime?model=parley"])
def test_a_socket_that_is_refused_is_no_session_of_its_client(path: str):
    # Silent sockets of one address may hold two of eight lines.
    with Gateway(lasts=True, max_calls=8, sessions_per_minute=3) as gateway:
        address = f"ws://localhost{path}"
        with gateway.client.websocket_connect(address), gateway.client.websocket_connect(address):
            for _ in range(3):
                with pytest.raises((WebSocketDenialResponse, WebSocketDisconnect)) as refused:
                    with gateway.client.websocket_connect(address) as socket:
                        socket.receive_text()
                assert "minute" not in why(refused.value)
        # The third of this minute.
        assert gateway.status(path) == 101
        assert gateway.status(path) != 101


def why(refused: BaseException) -> str:
    """Return the reason of a refusal."""
    return refused.text if isinstance(refused, WebSocketDenialResponse) else refused.reason
