"""Manners of a WebRTC caller: listen to the greeting, ask, listen to the answer to its end."""

import asyncio
from dataclasses import dataclass

from parley.evals.harness.speech import Spoken
from parley.evals.harness.webrtc_caller import Line, QueuedError, now_us


@dataclass(frozen=True, slots=True)
class Manners:
    """Waiting times of a caller.

    Attributes:
        greeting_ms: longest wait for the greeting before the caller speaks anyway.
        greeting_quiet_ms: bot silence after which the greeting is over.
        answer_ms: longest wait for an answer.
        reply_quiet_ms: bot silence after which the answer is over.
        reply_ms: the longest answer before the caller goes on.
    """

    greeting_ms: int = 10_000
    greeting_quiet_ms: int = 600
    answer_ms: int = 8_000
    reply_quiet_ms: int = 1_200
    reply_ms: int = 45_000


async def hear_greeting(line: Line, manners: Manners) -> None:
    """Wait for the end of the greeting, or for as long as one is expected.

    Raises:
        QueuedError: the server put the caller into its queue for a line.
    """
    if await line.wait_bot_audible(line.connected_us, manners.greeting_ms):
        await line.wait_bot_quiet(manners.greeting_quiet_ms, manners.reply_ms)
    elif line.queue_position:
        raise QueuedError(f"the server has no free line: number {line.queue_position} in its queue")


async def ask(line: Line, question: Spoken, manners: Manners) -> bool:
    """Ask and wait for the end of the answer; return False when none came."""
    await asyncio.sleep(question.gap_ms / 1000)
    await line.microphone.speak(question)
    ended_us = now_us()
    heard = await line.wait_bot_audible(ended_us, manners.answer_ms)
    if heard:
        await line.wait_bot_quiet(manners.reply_quiet_ms, manners.reply_ms)
    return heard
