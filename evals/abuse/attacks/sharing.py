"""Two sockets on one session: each client gets the answers to its own words, or is refused."""

import asyncio
import json
from contextlib import suppress

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from parley.evals.abuse.attacks.requests import GONE, new_session
from parley.evals.abuse.registry import AttackRun, Outcome, attack

QUESTIONS = ("What are your opening hours on Saturday?", "How do I report a lost card?")
ANSWER_S, ROUNDS = 10.0, 2
# Wait after an answer for one that belongs to the other socket.
MORE_S = 2.0
LOST = "session_lost"
UNAVAILABLE, AGAIN, AGAIN_S = 503, 5, 1.0


@attack(
    "two-sockets",
    "two sockets on one session in one server get each other's answers",
    controls=False,
    least_s=(2 + ROUNDS) * (ANSWER_S + MORE_S),
)
async def two_sockets(run: AttackRun) -> Outcome:
    """Open both, ask different questions at the same time, and compare the answers with those of one alone.

    The newer socket has the session and is answered; the older one is closed with the reason.
    """
    async with run.client() as client:
        session = await new_session(client)
        alone = [await new_session(client), await new_session(client)]
    right = await asyncio.gather(
        *(_alone(run, name, question) for name, question in zip(alone, QUESTIONS, strict=True))
    )
    first = await _open(run, session)
    try:
        second = await _open(run, session)
    except GONE as error:
        await first.close()
        return Outcome(1, faults=[f"the newer socket is refused: {error}"])
    foreign, responses = 0, [0, 0]
    try:
        for _ in range(ROUNDS):
            answers = await asyncio.gather(
                _asked(first, QUESTIONS[0]), _asked(second, QUESTIONS[1]), return_exceptions=True
            )
            for place, answer in enumerate(answers):
                if isinstance(answer, BaseException):
                    continue
                responses[place] += len(answer)
                foreign += sum(_is_answer(text, right[1 - place]) for text in answer)
    finally:
        await asyncio.gather(first.close(), second.close(), return_exceptions=True)
    close = first.protocol.close_rcvd
    reason = close.reason if close is not None else None
    faults = [f"{foreign} answers went to the other client"] if foreign else []
    if not responses[1]:
        faults.append("the newer socket is not answered")
    if not all(right):
        faults.append("a socket alone is not answered")
    if responses[0]:
        faults.append("both sockets hold the session and are answered")
    if reason != LOST:
        faults.append(f"the older socket is not closed with {LOST} ({reason})")
    did = {"responses": responses, "foreign": foreign, "right": right, "older": reason}
    return Outcome(2, dict(did), faults)


async def _open(run: AttackRun, session: str) -> ClientConnection:
    """Open a socket on a session; repeat when a busy machine refuses with 503."""
    for _ in range(AGAIN):
        try:
            return await run.socket(f"/v1/realtime?model=parley-cascade&session={session}")
        except InvalidStatus as error:
            if error.response.status_code != UNAVAILABLE:
                raise
        await asyncio.sleep(AGAIN_S)
    return await run.socket(f"/v1/realtime?model=parley-cascade&session={session}")


async def _alone(run: AttackRun, session: str, question: str) -> str:
    async with await _open(run, session) as socket:
        return " ".join(await _asked(socket, question))


async def _asked(socket: ClientConnection, question: str) -> list[str]:
    """Ask by text; return the transcripts of all answers until no more arrive."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}
    await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await socket.send(json.dumps({"type": "response.create"}))
    found: list[str] = []
    with suppress(TimeoutError, ConnectionClosed):
        async with asyncio.timeout(ANSWER_S) as deadline:
            async for text in socket:
                event = json.loads(text)
                if event["type"] == "response.output_audio_transcript.done":
                    found.append(str(event["transcript"]))
                if event["type"] == "response.done":
                    deadline.reschedule(asyncio.get_running_loop().time() + MORE_S)
    return found


def _is_answer(text: str, right: str) -> bool:
    words, known = set(text.lower().split()), set(right.lower().split())
    return bool(words) and len(words & known) > 0.7 * len(words)
