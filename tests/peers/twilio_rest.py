"""Twilio's REST interface on this machine: calls are placed, redirected and ended, and telephones answer.

Requests are checked as Twilio checks them (basic authentication, the fields of a call resource) and recorded.
A call that is placed rings; ``Phone`` sets how its telephone answers. The TwiML of the call is followed:
spoken words are recorded, and a pressed key is posted, signed, to the address of the TwiML.
"""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from twilio.request_validator import RequestValidator

from parley.evals.harness.phone_network import AUTH_TOKEN, PUBLIC
from tests.peers.server import free_port

ACCOUNT = "AC" + "1" * 32
# From the end of a stream to the answer to the request that has ended it.
ANSWERS_S = 0.5


@dataclass
class Phone:
    """Behaviour of a telephone that is called.

    Attributes:
        answers_s: time until it is answered; None: it is not answered.
        key: key that is pressed after the announcement; empty: the line is hung up.
    """

    answers_s: float | None = 0.2
    key: str = "1"


@dataclass
class RestServer:
    """Server of the REST interface.

    Attributes:
        url: its address.
        server: address of the product, which receives the webhooks.
        phone: telephone of the people who are called from now on.
        begun: forms of placed calls, by sid.
        updates: sid and form of updates, in order.
        said: words of TwiML that were spoken to a person.
        in_conference: names of conferences, in the order in which people joined.
        refuses: status and Twilio error number with which requests are refused.
        on_redirect: called with the sid of a call that continues elsewhere.
    """

    url: str = ""
    server: str = ""
    phone: Phone = field(default_factory=Phone)
    begun: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    updates: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    in_conference: list[str] = field(default_factory=list)
    refuses: tuple[int, int] | None = None
    on_redirect: Callable[[str], None] | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def _call(self, request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Basic ")
        if base64.b64decode(given).decode() != f"{ACCOUNT}:{AUTH_TOKEN}":
            return JSONResponse({"code": 20003, "message": "Authenticate"}, status_code=401)
        if self.refuses is not None:
            status, number = self.refuses
            return _in_pieces({"code": number, "message": "no"}, status)
        form = parse_qs((await request.body()).decode(), keep_blank_values=True)
        sid = request.path_params.get("sid")
        if sid is None:
            if not form.get("To") or not form.get("From") or not (form.get("Twiml") or form.get("Url")):
                return JSONResponse({"code": 21201, "message": "incomplete"}, status_code=400)
            sid = f"CA{secrets.token_hex(16)}"
            self.begun[sid] = form
            # The telephone of this moment: who sees the call has another one for the next call.
            task = asyncio.create_task(self._ring(sid, form, self.phone))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return _in_pieces({"sid": sid, "status": "queued"}, 201)
        self.updates.append((sid, form))
        if form.get("Twiml") and self.on_redirect is not None:
            self.on_redirect(sid)
        for twiml in form.get("Twiml", []):
            self._follow(ElementTree.fromstring(twiml))
            # The stream has ended before the answer.
            await asyncio.sleep(ANSWERS_S)
        return JSONResponse({"sid": sid, "status": "in-progress"})

    async def _ring(self, sid: str, form: dict[str, list[str]], phone: Phone) -> None:
        status = form.get("StatusCallback", [""])[0]
        if phone.answers_s is None:
            await asyncio.sleep(0.2)
            await self.post(status, {"CallSid": sid, "CallStatus": "no-answer"})
            return
        await asyncio.sleep(phone.answers_s)
        response = ElementTree.fromstring(form["Twiml"][0])
        gather = response.find("Gather")
        self._follow(response)
        if gather is not None and phone.key:
            answer = await self.post(gather.attrib["action"], {"CallSid": sid, "Digits": phone.key})
            self._follow(ElementTree.fromstring(answer.text))
        else:
            await self.post(status, {"CallSid": sid, "CallStatus": "completed"})

    def _follow(self, response: ElementTree.Element) -> None:
        self.said += [each.text or "" for each in response.iter("Say")]
        self.in_conference += [each.text or "" for each in response.iter("Conference")]

    async def post(self, address: str, form: dict[str, str]) -> httpx.Response:
        """Post a signed webhook."""
        signature = RequestValidator(AUTH_TOKEN).compute_signature(address, form)
        headers = {"X-Twilio-Signature": signature, "Host": urlsplit(PUBLIC).netloc}
        async with httpx.AsyncClient(timeout=60) as client:
            return await client.post(address.replace(PUBLIC, self.server), data=form, headers=headers)


def _in_pieces(answer: dict[str, object], status: int) -> Response:
    """Return an answer in pieces, as a network may deliver it."""

    async def pieces() -> AsyncIterator[bytes]:
        body = json.dumps(answer).encode()
        for piece in (body[:9], body[9:]):
            yield piece
            await asyncio.sleep(0.02)

    return StreamingResponse(pieces(), status_code=status, media_type="application/json")


@asynccontextmanager
async def twilio_rest() -> AsyncIterator[RestServer]:
    rest = RestServer()
    calls = f"/2010-04-01/Accounts/{ACCOUNT}/Calls"
    app = Starlette(
        routes=[
            Route(f"{calls}.json", rest._call, methods=["POST"]),
            Route(f"{calls}/{{sid}}.json", rest._call, methods=["POST"]),
        ]
    )
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    rest.url = f"http://127.0.0.1:{port}"
    try:
        yield rest
    finally:
        server.should_exit = True
        await serving
