"""A conversation of LiveKit's ``AgentSession`` with its OpenAI plugin, in an environment of its own.

``python livekit_client.py URL QUESTION STOP`` takes the address and two WAVs of 24 kHz. QUESTION makes the
agent call its tool; STOP is spoken during the answer. The agent has a microphone that never stops and a
loudspeaker that plays in real time, and no room. The program prints what it has seen as one line of JSON. It
is run by ``evals.foreign`` and ``test_livekit_agents``, and imports nothing of Parley but ``player``, from
its own folder. A second player takes the audio where the plugin reads it from its socket: what the
loudspeaker gets later than that is the program's own delay.
"""

import asyncio
import base64
import json
import logging
import sys
import time
from typing import Any

from livekit import rtc
from livekit.agents import Agent, AgentSession, function_tool
from livekit.agents.voice import io
from livekit.plugins.openai import realtime
from player import LoopWatch, Player, keep_imports, pcm_of

RATE_HZ, PIECE_MS = 24_000, 40
called: list[str] = []


@function_tool
async def weather(city: str) -> str:
    """Return the weather.

    Args:
        city: name of the city.
    """
    called.append(city)
    return f"sunny in {city}"


class Microphone(io.AudioInput):
    """Microphone that sends queued speech, and silence when there is none."""

    def __init__(self) -> None:
        super().__init__(label="microphone")
        self.speech = bytearray()
        self._due_s = time.monotonic()

    async def __anext__(self) -> rtc.AudioFrame:
        samples = RATE_HZ * PIECE_MS // 1000
        self._due_s += PIECE_MS / 1000
        await asyncio.sleep(max(0.0, self._due_s - time.monotonic()))
        piece, self.speech = self.speech[: samples * 2], self.speech[samples * 2 :]
        return rtc.AudioFrame(bytes(piece.ljust(samples * 2, b"\0")), RATE_HZ, 1, samples)


class Loudspeaker(io.AudioOutput):
    """Loudspeaker that plays what it is given at the pace of sound."""

    def __init__(self) -> None:
        super().__init__(label="loudspeaker", capabilities=io.AudioOutputCapabilities(pause=False))
        self.played_s = 0.0
        self.player = Player()
        self._began_s: float | None = None
        self._length_s = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self.player.take("answer", frame.duration)
        if self._began_s is None:
            self._began_s = time.monotonic()
            self.on_playback_started(created_at=time.time())
        elif (gap_s := time.monotonic() - self._began_s - self._length_s) > 0:
            # Nothing was left to play: what follows is heard so much later.
            self._began_s += gap_s
        self._length_s += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._began_s is not None:
            left_s = self._began_s + self._length_s - time.monotonic()
            self._end = asyncio.get_running_loop().call_later(max(0.0, left_s), self._over, False)

    def clear_buffer(self) -> None:
        if self._end is not None:
            self._end.cancel()
        if self._began_s is not None:
            self._over(True)

    def _over(self, interrupted: bool) -> None:
        self.player.over()
        began_s, self._began_s, self._end = self._began_s, None, None
        length_s, self._length_s = self._length_s, 0.0
        assert began_s is not None
        position_s = min(length_s, time.monotonic() - began_s)
        self.played_s += position_s
        self.on_playback_finished(playback_position=position_s, interrupted=interrupted)


class Model(realtime.RealtimeModel):
    """The plugin's model, which shows the audio of its socket to a player."""

    player: Player

    def session(self, **options: Any) -> realtime.RealtimeSession:
        session = super().session(**options)
        session.on("openai_server_event_received", self._take)
        return session

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "response.output_audio.delta":
            self.player.take(event["item_id"], len(base64.b64decode(event["delta"])) / 2 / RATE_HZ)


async def main(url: str, question: bytes, stop: bytes) -> dict[str, Any]:
    seen: dict[str, Any] = {"errors": [], "heard": [], "said": [], "steps": {}}
    microphone, loudspeaker = Microphone(), Loudspeaker()
    model, watch = Model(base_url=url, model="parley", api_key="unused"), LoopWatch()
    model.player = Player()
    session: AgentSession[None] = AgentSession(llm=model)
    session.input.audio, session.output.audio = microphone, loudspeaker
    news = asyncio.Event()

    @session.on("conversation_item_added")
    def on_item(event: Any) -> None:
        item = event.item
        if item.type == "message":
            seen["said"].append([item.role, item.text_content, item.interrupted])
        news.set()

    @session.on("user_input_transcribed")
    def on_words(event: Any) -> None:
        if event.is_final:
            seen["heard"].append(event.transcript)

    @session.on("error")
    def on_error(event: Any) -> None:
        error = event.error
        seen["errors"].append(str(getattr(error, "error", error)))

    async def until_said(count: int, within_s: float = 60) -> None:
        """Wait for the ``count``-th message of the agent."""
        async with asyncio.timeout(within_s):
            while sum(role == "assistant" for role, *_ in seen["said"]) < count:
                news.clear()
                await news.wait()

    async def reply(step: str, **how: Any) -> None:
        """Request a reply, and record how long it took to begin and what was said."""
        since, began_s = len(seen["said"]), time.monotonic()
        handle = session.generate_reply(**how)
        try:
            async with asyncio.timeout(60):
                await handle.wait_for_playout()
        except TimeoutError:
            seen["errors"].append(f"{step} took too long")
        error = handle.exception() if handle.done() else None
        words = [text for role, text, _ in seen["said"][since:] if role == "assistant"]
        seen["steps"][step] = {"words": words, "s": time.monotonic() - began_s, "error": str(error or "")}

    await session.start(Agent(instructions="Be kind.", tools=[weather]))
    watch.begin()
    try:
        await reply("instructed", instructions="Name the price.")
        await reply("typed", user_input="What is the price?")
        count = sum(role == "assistant" for role, *_ in seen["said"])
        microphone.speech += bytes(9_600) + question
        async with asyncio.timeout(60):
            while loudspeaker._began_s is None or time.monotonic() - loudspeaker._began_s < 1.5:
                await asyncio.sleep(0.05)
        microphone.speech += stop
        await until_said(count + 2)
        await reply("after_barge_in", user_input="What is the price now?")
    except TimeoutError:
        seen["errors"].append("it took too long")
    finally:
        await watch.end()
        await session.aclose()
    seen.update(called=called, played_s=loudspeaker.played_s)
    # What had come by then is not the server's delay, whatever the program did with it.
    came = model.player.report(watch)
    return {**seen, **loudspeaker.player.report(watch), "came": came}


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    address, *files = sys.argv[1:]
    keep_imports()
    print(json.dumps(asyncio.run(main(address, *(pcm_of(file) for file in files)))))
