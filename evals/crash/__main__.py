"""``python -m evals.crash --kills 50``: SIGKILL at random moments of typed conversations.

Each round holds a conversation over the sessions API (a fact, orders that call a tool with an effect outside,
small talk), kills the server in the middle, starts it again, and asks:

* is every event that was acknowledged (``turn`` and ``done`` of the stream) still in the timeline, as it was?
* was any order carried out twice, also when its message is sent again with the same key?
* does the reopened session know the fact that was acknowledged before the kill?
* is the timeline gapless, and is any turn in it twice?

The language model is ``model_peer``, the orders go to ``effects``; both outlive the server.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from core.errors import AgentError, PeerError
from evals.crash.model_peer import ModelPeer
from evals.latency.servers import Server, running

ORDERS = 4
REQUEST_S = 30.0
CONVERSATION_S = 2.0
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jasper")


@dataclass
class Effects:
    """The world outside: orders that were carried out, by item."""

    carried_out: Counter[str] = field(default_factory=Counter)

    async def take(self, request: web.Request) -> web.Response:
        """``POST /orders``."""
        item = str((await request.json())["item"])
        await asyncio.sleep(0.02)
        self.carried_out[item] += 1
        return web.json_response({"ordered": item})


@dataclass
class Conversation:
    """What the client knows of one session.

    Attributes:
        acknowledged: seq to text of what the server said is durable.
        code: the fact, once its turn was acknowledged.
        unanswered: the message under way at the kill, with its key.
    """

    session_id: str
    acknowledged: dict[int, str] = field(default_factory=dict)
    code: str | None = None
    unanswered: tuple[str, str] | None = None


@dataclass
class Findings:
    """What went wrong, and how much was looked at."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled_turns: int = 0
    gaps: int = 0
    doubled_effects: int = 0
    orders: int = 0
    facts_asked: int = 0
    facts_answered: int = 0
    killed_in: Counter[str] = field(default_factory=Counter)

    def passed(self) -> bool:
        """Nothing lost, nothing twice, every fact known."""
        wrong = self.lost + self.doubled_turns + self.gaps + self.doubled_effects
        looked_at = self.acknowledged and self.orders and self.facts_asked
        return bool(looked_at) and not wrong and self.facts_answered == self.facts_asked


async def say(client: aiohttp.ClientSession, talk: Conversation, text: str, *, key: str) -> str:
    """Send a typed turn; note what is acknowledged; the answer.

    Raises:
        aiohttp.ClientError: the server is gone.
        PeerError: it refused.
    """
    talk.unanswered = (text, key)
    answer = ""
    url = f"/api/sessions/{talk.session_id}/messages"
    async with client.post(url, json={"text": text}, headers={"Idempotency-Key": key}) as response:
        if response.status != 200:
            raise PeerError(f"{response.status}: {await response.text()}")
        name = ""
        async for raw in response.content:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                if name == "error":
                    raise PeerError(data["error"])
                if name in ("turn", "done"):
                    talk.acknowledged[data["seq"]] = data["text"]
                if name == "turn" and "My code is" in text:
                    talk.code = text.split()[3].strip(".")
                if name == "done":
                    answer = data["text"]
                    talk.unanswered = None
    if talk.unanswered is not None:
        raise aiohttp.ClientPayloadError("the stream ended early")
    return answer


async def converse(client: aiohttp.ClientSession, talk: Conversation, seed: int) -> None:
    """Talk until the server is gone."""
    chance = random.Random(seed)
    code = f"{chance.choice(WORDS)}{chance.randrange(1000)}"
    lines = [f"My code is {code}."]
    lines += [f"Please order item{seed}x{number}." for number in range(ORDERS)]
    lines.insert(chance.randrange(1, len(lines)), "Thank you for your help so far.")
    for thanks in itertools.count():
        for line in lines:
            await say(client, talk, line, key=uuid.uuid4().hex)
        lines = [f"Thank you, number {thanks}."]


async def kill_in_the_middle(server: Server, talk: Conversation, seed: int, findings: Findings) -> None:
    """One conversation and the end of its server."""
    assert server.pid is not None
    timeout = aiohttp.ClientTimeout(total=REQUEST_S)
    async with aiohttp.ClientSession(server.url, timeout=timeout) as client:
        talking = asyncio.create_task(converse(client, talk, seed), name="conversation")
        await asyncio.wait({talking}, timeout=random.Random(f"{seed}.kill").uniform(0.05, CONVERSATION_S))
        if talking.done():
            talking.result()
        os.kill(server.pid, signal.SIGKILL)
        with suppress(aiohttp.ClientError):
            await talking
    findings.kills += 1
    findings.killed_in["an answer" if talk.unanswered else "between turns"] += 1


async def look_back(
    server: Server, talk: Conversation, effects: Effects, seed: int, findings: Findings
) -> None:
    """What a new server knows of a conversation that its predecessor died in."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_S)
    async with aiohttp.ClientSession(server.url, timeout=timeout) as client:
        stored = await timeline(client, talk.session_id)
        findings.acknowledged += len(talk.acknowledged)
        for seq, text in talk.acknowledged.items():
            findings.lost += stored.get(seq, {}).get("payload", {}).get("text") != text
        if talk.unanswered is not None:
            text, key = talk.unanswered
            await say(client, talk, text, key=key)
        if talk.code is not None:
            findings.facts_asked += 1
            answer = await say(client, talk, "What is my code?", key=uuid.uuid4().hex)
            findings.facts_answered += talk.code in answer
        stored = await timeline(client, talk.session_id)
        findings.gaps += sorted(stored) != list(range(1, len(stored) + 1))
        turns = Counter(event["payload"]["text"] for event in stored.values() if event["kind"] == "user_turn")
        findings.doubled_turns += sum(count - 1 for text, count in turns.items() if count > 1)
    mine = {item: count for item, count in effects.carried_out.items() if item.startswith(f"item{seed}x")}
    findings.orders += len(mine)
    findings.doubled_effects += sum(count - 1 for count in mine.values())


async def timeline(client: aiohttp.ClientSession, session_id: str) -> dict[int, dict[str, Any]]:
    """Every event of a session, by seq."""
    events: dict[int, dict[str, Any]] = {}
    after = ""
    while True:
        query = {"limit": "500", **({"after": after} if after else {})}
        async with client.get(f"/api/sessions/{session_id}/timeline", params=query) as response:
            page = await response.json()
        events.update({event["seq"]: event for event in page["events"]})
        after = page["after"]
        if not after:
            return events


async def run(kills: int, seed: int, *, idempotent: bool) -> Findings:
    """All rounds.

    Raises:
        PeerError: the server does not start or refuses what it should take.
    """
    effects, findings = Effects(), Findings()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", ModelPeer().complete)
    app.router.add_post("/orders", effects.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "crash.yaml"
        config.write_text(json.dumps(deployment(port, idempotent=idempotent)))
        os.environ.setdefault("OPENAI_API_KEY", "none")
        before: tuple[Conversation, int] | None = None
        try:
            for number in range(kills + 1):
                round_seed = seed * 1_000 + number
                async with running("parley", config, Path(folder) / "server.log") as server:
                    if before is not None:
                        await look_back(server, before[0], effects, before[1], findings)
                    if number < kills:
                        talk = Conversation(await new_session(server))
                        await kill_in_the_middle(server, talk, round_seed, findings)
                        before = talk, round_seed
                print(f"{findings.kills} of {kills} kills", end="\r", file=sys.stderr, flush=True)
        finally:
            await runner.cleanup()
    return findings


async def new_session(server: Server) -> str:
    """A new session's id."""
    async with aiohttp.ClientSession(server.url) as client, client.post("/api/sessions") as response:
        return str((await response.json())["id"])


def deployment(port: int, *, idempotent: bool) -> dict[str, object]:
    """A deployment whose model and whose orders live in this process."""
    base = f"http://127.0.0.1:{port}"
    order = {
        "name": "place_order",
        "description": "Orders an item. Call it once for each item that the caller wants.",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
        "url": f"{base}/orders",
        "idempotent": idempotent,
    }
    return {
        "name": "crash",
        "thinking": {
            "llm": {"name": "openai_compatible", "settings": {"base_url": f"{base}/v1", "model": "peer"}},
            "tools": [{"name": "webhook", "settings": order}],
        },
    }


def main() -> int:
    """Run it, print the findings; 1 when something was lost or doubled."""
    parser = argparse.ArgumentParser(prog="python -m evals.crash", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the findings")
    options = parser.parse_args()
    try:
        findings = asyncio.run(run(options.kills, options.seed, idempotent=False))
    except AgentError as error:
        print(f"evals.crash: {error}", file=sys.stderr)
        return 2
    figures = {**vars(findings), "passed": findings.passed()}
    text = json.dumps(figures, indent=2)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)
    return 0 if findings.passed() else 1


if __name__ == "__main__":
    sys.exit(main())
