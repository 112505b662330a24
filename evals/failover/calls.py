"""Calls in which a stage fails at a random moment of the second of three turns.

A lane is a server of its own, with services of its own, and holds one call at a time: a failure opens the
circuit breaker of its row for the whole process, and would change the other calls of the server. Between two
calls a lane waits until its breakers let a probe pass. The first turn of a call is the normal one.
"""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parley.core.errors import PeerError
from parley.evals.abuse.footprint import RECOGNISER, engine_children, wakes
from parley.evals.failover.faults import Fault, Stage, faults_of
from parley.evals.failover.judge import HeardTurn, Turn, judge, repeated
from parley.evals.failover.realtime_service import SILENCE_MS as REALTIME_SILENCE_MS
from parley.evals.failover.replies import GREETING, REPLIES, REPLY_WORDS, words_of
from parley.evals.failover.sounds import WORD_MS, Sounding, recognised
from parley.evals.harness.forked_servers import forked
from parley.evals.harness.launcher import Server, child, free_port
from parley.evals.harness.playout import place
from parley.evals.harness.questions import Utterance
from parley.evals.harness.services.cartesia import KEY
from parley.evals.harness.sessions import newest
from parley.evals.harness.speech import RATE_HZ, TAIL_FRAMES, Speakers, Spoken
from parley.evals.harness.voices import pieces_of
from parley.evals.harness.webrtc_caller import Line, now_us
from parley.models.tts.flite import FliteSettings, FliteTts

QUESTIONS = (
    "what are your opening hours on saturday",
    "what does a replacement card cost",
    "how long does a transfer take",
)
VOICE = "rms"
EMBEDDED = "embedded"
# Lane whose calls begin with a realtime service.
REALTIME = "realtime"
KINDS = ("soniox", "deepgram", EMBEDDED)
DOCUMENT = """# Opening hours on Saturday

The branch is open from nine until five on Saturday.

# A replacement card

A replacement card costs five dollars.

# A transfer

A transfer takes two working days.
"""
FOLDER_OF_DOCUMENTS = "documents"
GREETED_MS, QUIET_MS, PAUSE_MS = 20_000, 600, 300
# The caller waits this long for more of an answer whose end has not been heard, and no longer than that for
# the whole of it.
GIVES_UP_US, ANSWER_US = 3_600_000, 25_000_000
LOOK_S = 0.1
# A breaker lets a probe pass after 5 s.
COOL_DOWN_S = 5.5
ORDER_S = 30.0
# A turn is at least as long as its question, its answer and the wait between them.
THOUGHT_MS = 800


@dataclass(frozen=True, slots=True)
class Question:
    """Question of a caller.

    Attributes:
        spoken: its sound.
        words: its words, with the end of each after the first sound.
    """

    spoken: Spoken
    words: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of one call.

    Attributes:
        stage: the stage that fails.
        fault: the way in which it fails.
        at_ms: from the beginning of the second question.
    """

    stage: Stage
    fault: Fault
    at_ms: int


@dataclass
class CallRecord:
    """Result of one call.

    Attributes:
        kind: of the lane.
        failure: its failure.
        turns: of its caller.
        repeated: words that were heard again.
        caller_repeated: words of the caller that its session has again.
        failovers: stages with a failover, by the session's records.
        error: reason for which the call could not be held; empty when it was.
    """

    kind: str
    failure: Failure
    turns: list[HeardTurn] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    caller_repeated: list[str] = field(default_factory=list)
    failovers: list[str] = field(default_factory=list)
    error: str = ""


def questions(cache: Path) -> list[Question]:
    """Return the questions of every call. Blocks.

    Raises:
        AgentError: the voice is not installed.
    """
    speakers, voice = Speakers(cache), FliteTts(FliteSettings(voice=VOICE))
    made = []
    for text in QUESTIONS:
        times = [word for piece in pieces_of(voice, text) for word in piece.words]
        ends = tuple((word.text, word.end_ms - times[0].start_ms) for word in times)
        made.append(Question(speakers.speak(Utterance((text,), 0, "flite", VOICE, 0)), ends))
    return made


def draw(dice: random.Random, kind: str, stage: Stage, question: Question) -> Failure:
    """Return a failure of a stage at a random moment of a turn with this question."""
    spoken_ms = question.words[-1][1]
    fault = dice.choice(faults_of(stage, embedded_recogniser=kind == EMBEDDED))
    return Failure(stage, fault, dice.randrange(spoken_ms + THOUGHT_MS + REPLY_WORDS * WORD_MS))


class Lane:
    """Server with services of its own.

    Args:
        kind: recogniser: a service's protocol, or the embedded one.
        server: the server.
        services: process of the services.
        asked: questions of a call.
    """

    def __init__(
        self,
        kind: str,
        server: Server,
        services: asyncio.subprocess.Process,
        asked: Sequence[Question],
    ) -> None:
        self.kind = kind
        self._server = server
        self._services = services
        self._questions = asked

    async def hold(self, failure: Failure) -> CallRecord:
        """Hold one call."""
        record, line = CallRecord(self.kind, failure), Line(self._server.url)
        try:
            await self._talk(line, record)
            await self._look_back(record)
        except (PeerError, TimeoutError) as error:
            record.error = f"{type(error).__name__}: {error}"
        finally:
            # Closing a connection may take aiortc longer than the deadline.
            with suppress(TimeoutError):
                await line.hang_up()
        await self._order({"stage": failure.stage, "fault": None})
        await asyncio.sleep(COOL_DOWN_S)
        return record

    async def _talk(self, line: Line, record: CallRecord) -> None:
        await line.dial()
        if not await line.wait_bot_quiet(QUIET_MS, GREETED_MS):
            raise PeerError("the call has no greeting")
        begun_us, turns = line.connected_us, []
        for number, question in enumerate(self._questions):
            await self._order({"question": question.words})
            asked = asyncio.create_task(line.microphone.speak(question.spoken), name="failover.question")
            failing = self._fail_later(record.failure) if number == 1 else None
            try:
                sent = await asked
                ended_us = line.microphone.at_us(sent.slot + len(question.spoken.packets) - TAIL_FRAMES)
                await _answered(line, ended_us)
                if failing is not None:
                    # A failure that was drawn late in a turn that was short.
                    await failing
            finally:
                if failing is not None and not failing.done():
                    failing.cancel()
                    await asyncio.wait({failing})
            await asyncio.sleep(PAUSE_MS / 1000)
            turns.append(Turn((ended_us - begun_us) // 1000, (now_us() - begun_us) // 1000))
        heard = _heard(line, begun_us)
        record.turns = [judge(heard, turn) for turn in turns]
        record.repeated = repeated(heard)

    def _fail_later(self, failure: Failure) -> asyncio.Task[None]:
        async def fail() -> None:
            await asyncio.sleep(failure.at_ms / 1000)
            if failure.fault is Fault.CHILD_KILLED:
                self._kill_recogniser()
            else:
                await self._order({"stage": failure.stage, "fault": failure.fault})

        return asyncio.create_task(fail(), name="failover.fault")

    def _kill_recogniser(self) -> None:
        """Kill the process that transcribes: the one that has worked most."""
        assert self._server.pid is not None
        serving = max(engine_children(self._server.pid, RECOGNISER), key=wakes, default=None)
        if serving is None:
            raise PeerError("the server has no recogniser")
        os.kill(serving, signal.SIGKILL)

    async def _look_back(self, record: CallRecord) -> None:
        """Read the records of the call's session."""
        events = await newest(self._server.url)
        record.failovers = [str(e["payload"]["stage"]) for e in events if e["kind"] == "failover"]
        said = " ".join(str(e["payload"]["text"]) for e in events if e["kind"] == "user_turn").lower()
        known = " ".join(QUESTIONS).split()
        words = ["".join(char for char in word if char.isalnum()) for word in said.split()]
        record.caller_repeated = sorted(
            word for word in {*words} & {*known} if words.count(word) > known.count(word)
        )

    async def _order(self, order: Mapping[str, Any]) -> None:
        process = self._services
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        async with asyncio.timeout(ORDER_S):
            await process.stdin.drain()
            if not await process.stdout.readline():
                raise PeerError("the services have ended")


@asynccontextmanager
async def lane(kind: str, folder: Path, asked: Sequence[Question]) -> AsyncIterator[Lane]:
    """Run a lane until the end of the context.

    Args:
        kind: of the lane.
        folder: for its files, absolute.
        asked: questions of a call.

    Raises:
        PeerError: its server or its services do not start.
    """
    documents = folder / FOLDER_OF_DOCUMENTS
    await asyncio.to_thread(_write_documents, documents)
    protocol = kind if kind in ("soniox", "deepgram") else "soniox"
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(child("parley.evals.failover.services", protocol))
        assert services.stdout is not None
        async with asyncio.timeout(60):
            line = await services.stdout.readline()
        if not line:
            raise PeerError("the services do not start")
        config = folder / "failover.yaml"
        config.write_text(json.dumps(deployment(kind, json.loads(line), documents)))
        environment = {
            "PARLEY_STORE_URL": f"sqlite:///{folder}/sessions.db",
            "SONIOX_API_KEY": KEY,
            "DEEPGRAM_API_KEY": KEY,
            "CARTESIA_API_KEY": KEY,
            "OPENAI_API_KEY": KEY,
        }
        mode = ["--mode", "duplex"] if kind == REALTIME else []
        arguments = ["--config", str(config), *mode]
        server = await stack.enter_async_context(
            forked(arguments, free_port(), folder / "server.log", environment=environment)
        )
        yield Lane(kind, server, services, asked)


def _write_documents(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "branch.md").write_text(DOCUMENT)


def deployment(kind: str, urls: Mapping[str, str], documents: Path) -> dict[str, Any]:
    """Return the deployment of a lane."""
    recogniser = urls[Stage.RECOGNISER]
    stt = {
        "soniox": {"name": "soniox", "settings": {"url": recogniser}},
        "deepgram": {"name": "deepgram", "settings": {"base_url": recogniser}},
        EMBEDDED: {"name": "moonshine_tiny"},
    }["soniox" if kind == REALTIME else kind]
    service = {"base_url": urls[Stage.REALTIME], "silence_ms": REALTIME_SILENCE_MS}
    duplex = {
        "engine": {"name": "openai_realtime", "settings": service},
        "fallback": [{"name": "cascade"}],
        "failover_ms": 1_000,
    }
    model = {"base_url": urls[Stage.MODEL], "model": "peer"}
    fallback = {} if kind == EMBEDDED else {"fallback": {"name": "moonshine_tiny"}}
    return {
        "name": "failover",
        "bot": {"greeting": GREETING, "knowledge": str(documents)},
        "hearing": {"stt": stt, **fallback, "specialists": []},
        "thinking": {
            "llm": {"name": "openai_compatible", "settings": model},
            "fallback": {"name": "documents"},
        },
        "speaking": {
            "tts": {"name": "cartesia", "settings": {"voice": "v", "url": urls[Stage.VOICE]}},
            "fallback": [{"name": "parley.evals.failover.voice:SoundingWordsTts"}],
        },
        "server": {"admission": "off"},
        **({"duplex": duplex} if kind == REALTIME else {}),
    }


async def _answered(line: Line, ended_us: int) -> None:
    """Wait until the last word of a reply has been heard, or nothing more comes."""
    last_words = {words_of(number)[-1] for number in range(REPLIES)}
    searched_us = ended_us
    while (waited_us := now_us() - ended_us) < ANSWER_US:
        await asyncio.sleep(LOOK_S)
        if not line.alive:
            raise PeerError("the call has ended")
        last_us = line.ears.last_audible_us or 0
        quiet_us = now_us() - max(last_us, ended_us)
        if quiet_us < QUIET_MS * 1000 or waited_us < QUIET_MS * 1000:
            continue
        if quiet_us >= GIVES_UP_US:
            return
        if last_us > searched_us:
            searched_us = last_us
            if any(each.word in last_words for each in _heard(line, ended_us)):
                return


def _heard(line: Line, from_us: int) -> list[Sounding]:
    """Return the sounds of a call from a moment on."""
    frames = [frame for frame in line.ears.frames if frame.release_us >= from_us]
    return recognised(place(frames, RATE_HZ, from_us, now_us()).pcm, RATE_HZ)
