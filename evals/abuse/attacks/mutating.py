"""Seeded mutations of every protocol: no message of a client may cause a failure of the server.

Each row holds a few conversations at a time, opens them again when the server ends them, and sends at a
bounded rate. The server's answers are read and not judged; its log, its memory and the control calls are.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import aiohttp
from websockets.asyncio.client import ClientConnection

from parley.core.errors import AgentError
from parley.evals.abuse.attacks.annotations import own_call, when_live
from parley.evals.abuse.attacks.floods import drain
from parley.evals.abuse.attacks.requests import GONE, new_session
from parley.evals.abuse.mutations import mutated, mutated_bytes, mutated_text
from parley.evals.abuse.protocols import ANNOTATIONS, PROTOCOLS, RTVI, Protocol, twilio_messages
from parley.evals.abuse.registry import Attack, AttackRun, Outcome, Run, add
from parley.evals.abuse.routes import TELEPHONE, Entry, entries
from parley.evals.abuse.samples import FORM, OFFER, body_of, path_of
from parley.evals.harness.phone_network import PUBLIC, Front, front_of
from parley.evals.harness.webrtc_caller import Line

CLIENTS, MESSAGES_A_S = 3, 40
# Messages in one conversation: with a server that accepts everything a new one begins now and then.
MESSAGES = 120
SERVER_FAULT = 500
UNAVAILABLE = (501, 503)

Tally = Counter[str]
# Webhooks of Twilio, below its prefix.
TWILIO_PATHS = (
    "voice",
    "reconnect",
    "stream-status",
    "call-status",
    "transfer/x/answer",
    "transfer/x/status",
)


async def _many(run: AttackRun, one: Callable[[int, Tally], Awaitable[None]]) -> Outcome:
    """Run several clients until the time is over; each counts its messages."""
    ends_s, tally = run.ends_at(), Tally()

    async def client(number: int) -> None:
        while asyncio.get_running_loop().time() < ends_s:
            with suppress(*GONE, AgentError):
                async with asyncio.timeout(max(0.1, ends_s - asyncio.get_running_loop().time())):
                    tally["conversations"] += 1
                    await one(number, tally)
            await asyncio.sleep(0.2)

    await asyncio.gather(*(client(number) for number in range(1, CLIENTS + 1)))
    return Outcome(tally["sent"], {"conversations": tally["conversations"]})


async def _socket(run: AttackRun, protocol: Protocol) -> Outcome:
    async def one(number: int, tally: Tally) -> None:
        async with await run.socket(protocol.path, number, subprotocols=protocol.subprotocols) as socket:
            for message in protocol.opening:
                await socket.send(json.dumps(message))
            await _send_mutated(run, socket, list(protocol.messages), tally)

    return await _many(run, one)


async def _send_mutated(
    run: AttackRun, socket: ClientConnection, messages: list[object], tally: Tally
) -> None:
    reading = asyncio.create_task(drain(socket), name="mutate.read")
    try:
        with suppress(*GONE):
            for _ in range(MESSAGES):
                message = run.dice.choice(messages)
                kind = run.dice.random()
                if kind < 0.3:
                    await socket.send(json.dumps(message))
                elif kind < 0.9:
                    await socket.send(mutated(message, run.dice))
                else:
                    await socket.send(mutated_bytes(json.dumps(message).encode(), run.dice))
                tally["sent"] += 1
                await asyncio.sleep(1 / MESSAGES_A_S)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _annotations(run: AttackRun) -> Outcome:
    """Report about a call of the attacker's own."""

    async def one(number: int, tally: Tally) -> None:
        async with own_call(run, number) as path, await when_live(run, path, number) as socket:
            await _send_mutated(run, socket, list(ANNOTATIONS.messages), tally)

    return await _many(run, one)


async def _twilio(run: AttackRun) -> Outcome:
    async with front_of(run.target.url) as front:

        async def one(number: int, tally: Tally) -> None:
            call_sid = f"CA{run.dice.getrandbits(128):032x}"
            stream, _ = await front.open(await front.answer(CallSid=call_sid))
            async with stream:
                connected, start, *rest = twilio_messages(call_sid)
                await stream.send(json.dumps(connected))
                await stream.send(json.dumps(start))
                await _send_mutated(run, stream, [connected, start, *rest], tally)

        return await _many(run, one)


async def _webhooks(run: AttackRun) -> Outcome:
    """Send Twilio's forms, signed and not."""
    statuses: Counter[int] = Counter()
    front = Front(run.target.url)

    async def one(number: int, tally: Tally) -> None:
        async with run.client(number) as client:
            for _ in range(MESSAGES):
                path = run.dice.choice(TWILIO_PATHS)
                form = {**FORM, "CallSid": f"CA{run.dice.getrandbits(128):032x}"}
                body = mutated_text("&".join(f"{name}={value}" for name, value in form.items()), run.dice)
                headers = {"Content-Type": "application/x-www-form-urlencoded", "Host": PUBLIC[8:]}
                if run.dice.random() < 0.5:
                    headers |= front.headers(f"{PUBLIC}/twilio/{path}", form)
                async with client.post(f"/twilio/{path}", data=body.encode(), headers=headers) as response:
                    statuses[response.status] += 1
                    tally["sent"] += 1
                await asyncio.sleep(1 / MESSAGES_A_S)

    return _judged(await _many(run, one), statuses)


async def _http(run: AttackRun) -> Outcome:
    """Send mutated bodies and paths to every HTTP route."""
    statuses: Counter[int] = Counter()
    routes = [entry for entry in entries() if entry.kind == "http" and not entry.path.startswith(TELEPHONE)]

    async def one(number: int, tally: Tally) -> None:
        async with run.client(number) as client:
            session = ""
            with suppress(*GONE):
                session = await new_session(client)
            for _ in range(MESSAGES):
                entry = run.dice.choice(routes)
                with suppress(ValueError, *GONE):
                    statuses[await _request(run, client, entry, session)] += 1
                    tally["sent"] += 1
                await asyncio.sleep(1 / MESSAGES_A_S)

    return _judged(await _many(run, one), statuses)


async def _request(run: AttackRun, client: aiohttp.ClientSession, entry: Entry, session: str) -> int:
    dice = run.dice
    body, kind = body_of(entry)
    path = path_of(entry, session_id=session)
    if kind == "application/json":
        body = mutated(json.loads(body), dice).encode("utf-8", "replace")
    elif body:
        body = mutated_bytes(body, dice)
    if dice.random() < 0.3:
        path += (
            f"?limit={dice.choice(('-1', '1e9', 'x', '1000'))}&after={dice.randrange(10**9)}.x&after_seq=-1"
        )
    timeout = aiohttp.ClientTimeout(total=2.0)
    headers = {"Content-Type": kind} if kind else {}
    async with client.request(
        entry.method, path, data=body or None, headers=headers, timeout=timeout
    ) as response:
        if response.content_type != "text/event-stream":
            await response.content.read(100_000)
        return response.status


async def _offers(run: AttackRun) -> Outcome:
    """Send SDP offers, and candidates for calls that may exist."""
    statuses: Counter[int] = Counter()

    async def one(number: int, tally: Tally) -> None:
        async with run.client(number) as client:
            for _ in range(MESSAGES):
                offer = dict(OFFER, sdp=mutated_text(OFFER["sdp"], run.dice))
                body = json.dumps(offer) if run.dice.random() < 0.7 else mutated(offer, run.dice)
                headers = {"Content-Type": "application/json"}
                data = body.encode("utf-8", "replace")
                async with client.post("/api/offer", data=data, headers=headers) as response:
                    await response.read()
                    statuses[response.status] += 1
                    tally["sent"] += 1
                await asyncio.sleep(2 / MESSAGES_A_S)

    return _judged(await _many(run, one), statuses)


async def _rtvi(run: AttackRun) -> Outcome:
    """Send messages over the data channel, each conversation in a WebRTC call of its own."""

    async def one(_number: int, tally: Tally) -> None:
        line = Line(run.target.url)
        try:
            await line.dial()
            await asyncio.sleep(1.0)
            for _ in range(MESSAGES):
                text = mutated(run.dice.choice(RTVI), run.dice)
                # Larger messages would break the negotiated message size, which a browser does not.
                tally["sent"] += len(text) < 60_000 and line.send(text)
                await asyncio.sleep(1 / MESSAGES_A_S)
        finally:
            await line.hang_up()

    return await _many(run, one)


def _judged(outcome: Outcome, statuses: Counter[int]) -> Outcome:
    broken = {
        status: n for status, n in statuses.items() if status >= SERVER_FAULT and status not in UNAVAILABLE
    }
    faults = [f"the server failed at {n} requests ({status})" for status, n in broken.items()]
    counts = {str(status): n for status, n in sorted(statuses.items())}
    return Outcome(outcome.sent, {**outcome.did, "statuses": counts}, faults)


_RUNS: dict[str, Run] = {
    **{protocol.name: partial(_socket, protocol=protocol) for protocol in PROTOCOLS},
    ANNOTATIONS.name: _annotations,
    "twilio": _twilio,
    "twilio-webhooks": _webhooks,
    "rtvi": _rtvi,
    "http": _http,
    "offers": _offers,
}
for _name, _run in _RUNS.items():
    add(Attack(f"mutate:{_name}", f"mutated messages ({_name}): failures, stalls, memory that stays", _run))
