"""A conversation of LangWatch's Scenario: its simulated user speaks to an agent of the realtime protocol.

``python scenario_client.py URL QUESTION STOP``, in an environment with ``langwatch-scenario``, takes the
server; the WAVs are not used. The words of the user come from the model at ``PARLEY_MODEL_PEER``, and the
server speaks them as a service of its own: Scenario's default names a model of OpenAI's. Over the first
answer the user says other words. The program prints what it has seen as one line of JSON.
"""

import asyncio
import json
import os
import sys
from contextlib import redirect_stdout
from typing import Any

URL = sys.argv[1]
# All of it on this machine: OpenAI's services, the list of models and the reports of the runs.
os.environ |= {
    "OPENAI_BASE_URL": f"{URL}/v1",
    "OPENAI_API_KEY": "x",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "SCENARIO_DISABLE_SIMULATION_REPORT_INFO": "true",
}

import scenario  # noqa: E402, reads them
from openai import AsyncOpenAI  # noqa: E402
from player import RATE_HZ, LoopWatch, Player, keep_imports  # noqa: E402
from scenario.voice import AudioChunk, OpenAIRealtimeAgentAdapter, register_tts_provider  # noqa: E402

VOICE = "parley/parley"
STOP = "Stop, please tell me the price."


class Agent(OpenAIRealtimeAgentAdapter):
    """Agent at our server, with the times at which its audio came."""

    # Audio is sent up to 2 s ahead, and its transcript is whole when its sound is over. The default, 0.6 s
    # without audio, would end a reply before that.
    response_tail_silence = 2.5

    def __init__(self) -> None:
        super().__init__(model="parley-cascade", voice="alloy", instructions="Be kind.")
        self.player = Player()
        self.heard: list[str] = []
        self.said: list[str] = []

    @property
    def url(self) -> str:
        return f"{URL.replace('http', 'ws', 1)}/v1/realtime?model={self.model}"

    async def recv_audio(self, timeout: float) -> AudioChunk:  # noqa: ASYNC109, its name
        chunk = await super().recv_audio(timeout)
        if self.last_user_transcript:
            self.heard.append(self.last_user_transcript)
            self.last_user_transcript = None
        # That of a reply that was cut off comes before the next one's audio.
        self._note_said()
        if chunk.data:
            self.player.take("answer", len(chunk.data) / 2 / RATE_HZ)
        return chunk

    async def _drain_agent_response(self, on_first_chunk: Any = None) -> AudioChunk:
        self.player.over()
        whole = await super()._drain_agent_response(on_first_chunk=on_first_chunk)
        self._note_said()
        return whole

    def _note_said(self) -> None:
        said = self.last_agent_transcript
        if said and said not in self.said:
            self.said.append(said)


async def speak(text: str, voice: str) -> bytes:
    """Return speech as the samples that Scenario works with: of 24 kHz, 16 bit."""
    async with AsyncOpenAI() as client:
        answer = await client.audio.speech.create(
            model="parley", voice=voice, input=text, response_format="pcm"
        )
        return await answer.aread()


async def be_answered(state: Any) -> None:
    """Have the bot answer the interruption, unless it has.

    Scenario cancels the turn that it interrupts. Where audio has come in the same moment, ``wait_for`` of
    Python 3.11 may ignore that, and the turn goes on to the answer. Another would have the bot speak unasked.
    """
    if state.messages[-1]["role"] != "assistant":
        await scenario.agent()(state)


async def main() -> dict[str, Any]:
    """Hold the conversation; return what was seen of it."""
    agent, watch = Agent(), LoopWatch()
    register_tts_provider("parley", speak)
    user = scenario.UserSimulatorAgent(
        model="openai/peer", api_base=os.environ["PARLEY_MODEL_PEER"], api_key="x", voice=VOICE
    )
    watch.begin()
    result = await scenario.arun(
        name="opening hours",
        description="The user asks about a shop.",
        agents=[agent, user],
        script=[
            scenario.user(),
            scenario.interrupt(STOP),
            be_answered,
            scenario.user(),
            scenario.agent(),
            scenario.succeed(),
        ],
    )
    await watch.end()
    return {
        "errors": [] if result.success else [str(result.reasoning)],
        "heard": agent.heard,
        "said": agent.said,
        "messages": [[message["role"], _text(message)] for message in result.messages],
        **agent.player.report(watch),
    }


def _text(message: Any) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return " ".join(part["text"] for part in content or [] if part.get("type") == "text")


if __name__ == "__main__":
    keep_imports()
    # Its own progress is on standard output too.
    with redirect_stdout(sys.stderr):
        found = asyncio.run(main())
    print(json.dumps(found))
