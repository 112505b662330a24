"""Two sockets on one session: each client gets the answers to its own words, or is refused."""

import asyncio
import json
from contextlib import suppress

from websockets.asyncio.client import ClientConnection

from evals.abuse.attacks.floods import GONE, new_session
from evals.abuse.registry import AttackRun, Outcome, attack

QUESTIONS = ("What are your opening hours on Saturday?", "How do I report a lost card?")
ANSWER_S, ROUNDS = 10.0, 2


@attack(
    "two-sockets",
    "two sockets on one session in one server get each other's answers",
    controls=False,
    least_s=(2 + ROUNDS) * ANSWER_S,
)
async def two_sockets(run: AttackRun) -> Outcome:
    """Open both, ask different things at the same time, and compare the answers with those of one alone."""
    async with run.client() as client:
        session = await new_session(client)
        alone = [await new_session(client), await new_session(client)]
    right = [await _alone(run, name, question) for name, question in zip(alone, QUESTIONS, strict=True)]
    first = await run.socket(f"/v1/realtime?model=parley-cascade&session={session}")
    try:
        second = await run.socket(f"/v1/realtime?model=parley-cascade&session={session}")
    except GONE as error:
        await first.close()
        return Outcome({"second": f"refused: {error}"})
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
    faults = [f"{foreign} answers went to the other client"] if foreign else []
    # One of both that is closed with a reason has lost the session to the other, which is an owner.
    if all(responses) and not faults:
        faults = ["both sockets hold the session and are answered"]
    return Outcome({"responses": responses, "foreign": foreign, "right": right}, faults)


async def _alone(run: AttackRun, session: str, question: str) -> str:
    async with await run.socket(f"/v1/realtime?model=parley-cascade&session={session}") as socket:
        return " ".join(await _asked(socket, question))


async def _asked(socket: ClientConnection, question: str) -> list[str]:
    """Ask by text; the transcripts of all answers that come, until nothing more does."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}
    await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await socket.send(json.dumps({"type": "response.create"}))
    found: list[str] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            async for text in socket:
                event = json.loads(text)
                if event["type"] == "response.output_audio_transcript.done":
                    found.append(str(event["transcript"]))
    return found


def _is_answer(text: str, right: str) -> bool:
    words, known = set(text.lower().split()), set(right.lower().split())
    return bool(words) and len(words & known) > 0.7 * len(words)
