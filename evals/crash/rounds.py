"""Rounds of a run: a conversation, the kill of its server, a new server, and its state.

Each server resumes the conversation in which its predecessor died, and holds the next one until it is killed
itself. The last one checks all of them once more. The language model, the endpoints of the tools and the
client live in this process, and outlive every server.

Without calls a server loads no engine for sound, and is forked from a process that has imported the product,
so that thousands of kills are affordable. What it stores, and when it acknowledges that, is the same code as
in every server.
"""

import asyncio
import itertools
import json
import math
import os
import random
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp import web

from parley.core.errors import PeerError
from parley.evals.crash.conversation import (
    Talk,
    Voice,
    ask_for_code,
    dial,
    new_session,
    say,
    server_client,
)
from parley.evals.crash.findings import BY_CALL, BY_TEXT, Findings
from parley.evals.crash.model_peer import ModelPeer
from parley.evals.crash.outside import BOOKING, ORDER, PATHS, Outside
from parley.evals.crash.phases import Phase, Progress, draw
from parley.evals.crash.statements import Statement
from parley.evals.harness.forked_servers import forked
from parley.evals.harness.launcher import PRODUCT, Server, command, free_port, started
from parley.evals.harness.progress import Progress as LineProgress
from parley.evals.harness.sessions import operator_headers, timeline
from parley.evals.harness.webrtc_caller import Line
from parley.session_store.settings import StoreTuning

NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jasper")
QUESTION = "What is my code?"
GOODBYE = "Thank you, that was all."
MAX_MORE_LINES = 3
# Time into the answer that plays, or into the caller's own words, of the kill or of the turn before it.
LISTENS_S = 5.0
BESIDE_S = 1.2
AUDIBLE_US = 300_000
ANSWER_MS = 8_000
GONE_S = 10.0
# Parts of a deployment that is used by text alone: services have nothing to load.
WITHOUT_SOUND: Mapping[str, object] = {
    "hearing": {
        "stt": {"name": "soniox"},
        "echo": None,
        "turn": None,
        "own_process": False,
        "specialists": [],
    },
    "speaking": {"tts": {"name": "cartesia", "settings": {"voice": "none"}}},
    "server": {"admission": "off"},
}


@dataclass(slots=True)
class Round:
    """A conversation whose server was killed.

    Attributes:
        talk: its state at the client.
        earlier: number of statements at the kill.
    """

    talk: Talk
    earlier: int = 0


class Rounds:
    """State that outlives the servers.

    Args:
        seed: of everything random.
        voice: speech of the client's calls. None without calls.
        findings: filled.
    """

    def __init__(self, seed: int, voice: Voice | None, findings: Findings) -> None:
        self._chance = random.Random(seed)
        self._seed = seed
        self._voice = voice
        self._findings = findings
        self._phases = draw(self._chance, voice=voice is not None)
        # Each tool is killed as often as the other.
        self._tools = {phase: itertools.cycle((ORDER, BOOKING)) for phase in (Phase.TOOL, Phase.RESULT)}
        self.progress = Progress()
        self.outside = Outside(self.progress, random.Random(f"{seed}.outside"))
        self.model = ModelPeer()
        self.rounds: list[Round] = []

    # A conversation and the end of its server

    async def talk_and_kill(self, server: Server) -> None:
        """Hold one conversation and kill its server in the middle."""
        number = len(self.rounds)
        code = f"{self._chance.choice(NAMES)}{self._chance.randrange(1000)}"
        async with server_client(server.url) as client:
            talk = Talk(await new_session(client), code)
            self.rounds.append(Round(talk))
            self._findings.rounds += 1
            self.progress.begin()
            try:
                await self._converse(client, server, talk, number)
            except (PeerError, aiohttp.ClientError, TimeoutError) as error:
                # The server failed without a kill.
                self._findings.refused.append(f"round {number}, before the kill: {error!r}")
            else:
                await _gone(server)
            finally:
                self.progress.end()
                await talk.over()
        self.rounds[-1].earlier = len(self._stated(talk))

    async def _converse(self, client: aiohttp.ClientSession, server: Server, talk: Talk, number: int) -> None:
        first, *more = self._lines(number)
        more = more[: self._chance.randrange(MAX_MORE_LINES)]
        for text in (f"My code is {talk.code}.", first, *more):
            await say(client, talk, text, progress=self.progress)
        phase = next(self._phases)
        self._findings.drawn[phase] += 1
        last = self._last_line(phase, number)
        if self._voice is None:
            await self._kill_in_turn(client, server, talk, phase, last)
            return
        line = await dial(client, server.url, talk)
        await ask_for_code(line, self._voice)
        if phase is Phase.AUDIO:
            await self._listen(line)
            await asyncio.sleep(self._chance.uniform(0, LISTENS_S))
            self._kill(server, Phase.AUDIO if _is_audible(line) else Phase.BETWEEN, line, speaks=False)
            return
        speaking: asyncio.Task[object] | None = None
        if self._chance.random() < 0.5:
            speaking = asyncio.create_task(line.microphone.speak(self._voice.long), name="crash.speaking")
        else:
            await self._listen(line)
        try:
            await asyncio.sleep(self._chance.uniform(0, BESIDE_S))
            await self._kill_in_turn(client, server, talk, phase, last, line=line, speaking=speaking)
        finally:
            if speaking is not None:
                speaking.cancel()
                await asyncio.wait({speaking})

    async def _kill_in_turn(
        self,
        client: aiohttp.ClientSession,
        server: Server,
        talk: Talk,
        phase: Phase,
        text: str,
        *,
        line: Line | None = None,
        speaking: "asyncio.Task[object] | None" = None,
    ) -> None:
        self.progress.expect(phase)
        turn = asyncio.create_task(say(client, talk, text, progress=self.progress), name="crash.turn")
        moment = asyncio.create_task(self.progress.moment(self._chance), name="crash.moment")
        try:
            await asyncio.wait({turn, moment}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done() or turn.exception() is None:
                await moment
                speaks = speaking is not None and not speaking.done()
                self._kill(server, self.progress.phase, line, speaks=speaks)
            else:
                turn.result()
            with suppress(aiohttp.ClientError):
                await turn
        finally:
            for task in (turn, moment):
                task.cancel()
            await asyncio.wait({turn, moment})

    def _kill(self, server: Server, phase: Phase, line: Line | None, *, speaks: bool) -> None:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        self._findings.kills += 1
        self._findings.killed_in[phase] += 1
        if line is not None:
            self._findings.caller[
                "speaks" if speaks else "listens" if _is_audible(line) else "is silent"
            ] += 1

    async def _listen(self, line: Line) -> None:
        """Have the bot speak at length."""
        assert self._voice is not None
        sent = await line.microphone.speak(self._voice.short)
        ended_us = line.microphone.at_us(sent.slot + len(sent.spoken.packets))
        if not await line.wait_bot_audible(ended_us, ANSWER_MS):
            raise PeerError("a spoken question is not answered")

    def _lines(self, number: int) -> list[str]:
        """Return the user's messages after the fact: first of all one with an effect."""
        lines = [self._request_text(number, 0, (ORDER, BOOKING)[number % 2])]
        lines += [
            self._request_text(number, 1, ORDER),
            self._request_text(number, 2, BOOKING),
            f"Thank you, number {number}.",
        ]
        return [lines[0], *self._chance.sample(lines[1:], k=3)]

    def _last_line(self, phase: Phase, number: int) -> str:
        """Return the message during whose turn the server is killed."""
        if phase in self._tools:
            return self._request_text(number, 3, next(self._tools[phase]))
        wish = self._request_text(number, 3, self._chance.choice((ORDER, BOOKING)))
        thanks = f"Thank you again, number {number}."
        return thanks if phase is Phase.ANSWERING else self._chance.choice((wish, thanks))

    def _request_text(self, number: int, item: int, tool: str) -> str:
        verb = "order" if tool == ORDER else "book"
        return f"Please {verb} item{self._seed}r{number}n{item}."

    # State of the next server

    async def look_back(self, server: Server, started_s: float) -> None:
        """Resume the conversation in which the previous server was killed."""
        number, talk = len(self.rounds) - 1, self.rounds[-1].talk
        try:
            async with server_client(server.url) as client:
                events = await timeline(server.url, talk.session_id)
                self._findings.after_the_kill(self._stated(talk), talk.unsettled, events)
                answer = None
                if talk.unanswered is not None:
                    text, key = talk.unanswered
                    answer = await say(client, talk, text, key=key)
                    self._findings.restarts_ms.append(_ms_since(started_s))
                code = await say(client, talk, QUESTION)
                if answer is None:
                    self._findings.restarts_ms.append(_ms_since(started_s))
                self._asked(BY_TEXT, talk, code)
                if self._voice is not None:
                    await self._call_back(client, server, talk, self._voice)
        except (PeerError, aiohttp.ClientError, TimeoutError) as error:
            self._findings.refused.append(f"round {number}, after the kill: {error!r}")
        finally:
            await talk.over()

    async def _call_back(
        self, client: aiohttp.ClientSession, server: Server, talk: Talk, voice: Voice
    ) -> None:
        line = await dial(client, server.url, talk)
        heard = await ask_for_code(line, voice)
        self._findings.not_understood += heard is None
        self._asked(BY_CALL, talk, heard or "")
        # Its acknowledgement settles the replies heard in the call.
        await say(client, talk, GOODBYE)

    def _asked(self, channel: str, talk: Talk, answer: str) -> None:
        self._findings.facts_asked[channel] += 1
        self._findings.facts_right[channel] += talk.code in answer
        if talk.code not in answer:
            self._findings.details.append(
                f"by {channel}: {talk.code} was asked for, the answer is {answer!r}"
            )

    async def look_at_all(self, server: Server) -> None:
        """Check every conversation once more; delete them when nothing is wrong."""
        async with server_client(server.url) as client:
            for one in self.rounds:
                talk = one.talk
                events = await timeline(server.url, talk.session_id)
                self._findings.in_the_end(self._stated(talk), one.earlier, events)
                self._findings.of_tools(talk.session_id, self.outside.requests, self.outside.effects, events)
            if self._findings.passed():
                for one in self.rounds:
                    path = f"/api/sessions/{one.talk.session_id}"
                    async with client.delete(path, headers=operator_headers()):
                        pass

    def _stated(self, talk: Talk) -> list[Statement]:
        """Return the statements of a session, including those implied by requests of tools and by the model's
        results.
        """
        mine = [request for request in self.outside.requests if request.key.startswith(f"{talk.session_id}.")]
        items = {request.item for request in mine}
        stated = list(talk.stated)
        for key in dict.fromkeys(request.key for request in mine):
            stated.append(Statement("request of a tool", "requests", "tool_call", {"effect_key": key}))
        for item in self.model.results:
            if item in items:
                fields = {"result": {"done": item}, "outcome": "done"}
                stated.append(Statement("result shown", "results", "tool_result", fields))
        return stated


async def run(
    kills: int,
    seed: int,
    *,
    store: str | None = None,
    voice: bool = False,
    within_s: float | None = None,
) -> Findings:
    """Run all rounds.

    Args:
        kills: number of kills.
        seed: of everything random.
        store: address of the session store. None for a new SQLite file.
        voice: true when a call of each session is under way.
        within_s: no conversation begins after this time. None for no limit.

    Raises:
        AgentError: the first server does not start, the address is wrong, or a voice is missing.
    """
    findings = Findings(voice=voice, store=_kind_of(store))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spoken = Voice(folder / "voices") if voice else None
        rounds = Rounds(seed, spoken, findings)
        async with _peers(rounds) as port:
            config, log = folder / "crash.yaml", folder / "server.log"
            config.write_text(json.dumps({**deployment(port), **({} if voice else WITHOUT_SOUND)}))
            environment = {
                "PARLEY_STORE_URL": store or f"sqlite:///{folder}/sessions.db",
                "OPENAI_API_KEY": "none",
                # Of services that are never called.
                "SONIOX_API_KEY": "none",
                "CARTESIA_API_KEY": "none",
            }
            start = _server if voice else _forked_server
            progress = LineProgress("kills", kills)
            loop = asyncio.get_running_loop()
            ends_s = math.inf if within_s is None else loop.time() + within_s
            for number in range(kills + 1):
                async with AsyncExitStack() as stack:
                    started_s = loop.time()
                    is_last = number == kills or (bool(number) and started_s > ends_s)
                    try:
                        server = await stack.enter_async_context(start(config, log, environment))
                    except PeerError as error:
                        if not number:
                            raise
                        findings.refused.append(f"the server does not start again: {error}")
                        return findings
                    if number:
                        await rounds.look_back(server, started_s)
                    if not is_last:
                        await rounds.talk_and_kill(server)
                    else:
                        await rounds.look_at_all(server)
                if is_last:
                    break
                progress.step()
    return findings


def deployment(port: int) -> dict[str, object]:
    """Return a deployment whose model and whose tools' endpoints live in this process."""
    base = f"http://127.0.0.1:{port}"

    def tool(name: str, description: str) -> dict[str, object]:
        parameters = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
        settings = {
            "name": name,
            "description": description,
            "parameters": parameters,
            "url": f"{base}{PATHS[name]}",
            "idempotent": name == BOOKING,
        }
        return {"name": "webhook", "settings": settings}

    model = {"base_url": f"{base}/v1", "model": "peer"}
    return {
        "name": "crash",
        "thinking": {
            "llm": {"name": "openai_compatible", "settings": model},
            "tools": [tool(ORDER, "Orders an item."), tool(BOOKING, "Books an item.")],
        },
    }


@asynccontextmanager
async def _peers(rounds: Rounds) -> AsyncIterator[int]:
    """Serve the model and the endpoints; yield their port."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", rounds.model.complete)
    rounds.outside.add_routes(app)
    # A real endpoint continues when its client is killed.
    runner = web.AppRunner(app, handler_cancellation=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _server(config: Path, log: Path, environment: dict[str, str]) -> AbstractAsyncContextManager[Server]:
    port = free_port()
    return started(command(PRODUCT, port, "--config", str(config)), port, log, environment=environment)


def _forked_server(
    config: Path, log: Path, environment: dict[str, str]
) -> AbstractAsyncContextManager[Server]:
    return forked(["--config", str(config)], free_port(), log, environment=environment)


def _kind_of(store: str | None) -> str:
    """Return the kind of database, without its address, which may hold a password.

    Raises:
        ConfigError: the address is wrong.
    """
    return "sqlite" if store is None else StoreTuning(url=store).address().get_backend_name()


async def _gone(server: Server) -> None:
    """Return when the killed process is gone, and its parent has noticed.

    Raises:
        PeerError: it outlives SIGKILL.
    """
    assert server.pid is not None
    try:
        async with asyncio.timeout(GONE_S):
            while True:
                os.kill(server.pid, 0)
                await asyncio.sleep(0.005)
    except ProcessLookupError:
        return
    except TimeoutError:
        raise PeerError(f"the server still runs {GONE_S:.0f} s after SIGKILL") from None


def _is_audible(line: Line) -> bool:
    quiet_us = line.bot_quiet_us()
    return quiet_us is not None and quiet_us < AUDIBLE_US


def _ms_since(started_s: float) -> int:
    return round((asyncio.get_running_loop().time() - started_s) * 1000)
