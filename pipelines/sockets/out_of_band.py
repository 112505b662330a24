"""Texts of the model outside of a call's conversation, for a client that requests one.

Such an answer is neither heard nor remembered: it is no turn of the session, has no tools and no voice, and
runs while the conversation goes on. It counts as a turn of its client all the same, because it costs one.

Owns one task for each answer, until ``close``; the protocol bounds how many a client waits for.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from loguru import logger

from parley.core.call_events import EngineUsed
from parley.core.client_rules import prompt_of
from parley.core.errors import AgentError
from parley.core.usage import Stage, Usage
from parley.pipelines.call import Call, client_prompt
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import OVER_LIMIT
from parley.processors.dialogue.counted_answers import CountedText
from parley.protocols.client_protocol import Happening, OutOfBandAnswer, OutOfBandRequest, ProtocolError

# Longest wait for the model.
ANSWER_S = 60.0
# Models answer a message. A client may send instructions alone.
NO_MESSAGE = "Do what the instructions say."


class OutOfBandAnswers:
    """Answers outside of one call's conversation.

    Args:
        engines: engines of the process.
        call: call of the client.
        report: reports an answer to the client; must not block.
    """

    def __init__(self, engines: Engines, call: Call, report: Callable[[Happening], None]) -> None:
        self._engines = engines
        self._call = call
        self._report = report
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, request: OutOfBandRequest) -> None:
        """Begin an answer, which is reported when it is complete.

        Raises:
            ProtocolError: the client has used up its turns.
        """
        if not await self._engines.answering.usage.try_take(self._call.rules.counted):
            raise ProtocolError(OVER_LIMIT, code="rate_limit_exceeded")
        task = asyncio.create_task(self._answer(request), name="answer.out_of_band")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all answers: the call is over."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, request: OutOfBandRequest) -> None:
        given = CountedText("")
        try:
            async with asyncio.timeout(ANSWER_S):
                given = await self._engines.answering.infer_counted(
                    self._instruction(request), self._messages(request), most_tokens=request.most_tokens
                )
        except TimeoutError:
            answer = OutOfBandAnswer(request.request_id, fault=f"no answer within {ANSWER_S:g} s")
        except AgentError as error:
            logger.warning(f"an answer outside of the conversation failed: {error}")
            answer = OutOfBandAnswer(request.request_id, fault=str(error))
        except Exception:
            # The client waits for an answer, and may wait for few.
            logger.exception("an answer outside of the conversation failed")
            answer = OutOfBandAnswer(request.request_id, fault="the answer failed")
        else:
            answer = OutOfBandAnswer(request.request_id, given.text, usage=given.usage)
        finally:
            # Also of an answer that the end of the call has cut: without a report its cost is unknown.
            events, spent = self._call.events, given.usage or Usage(unreported_requests=1)
            events.publish(EngineUsed(events.now_ms(), Stage.LLM, given.model, spent, is_out_of_band=True))
        self._report(answer)

    def _instruction(self, request: OutOfBandRequest) -> str:
        prompt = self._engines.deployment.bot.system_prompt
        if request.instructions is not None:
            return prompt_of(prompt, request.instructions)
        return client_prompt(self._call.client.requested(), prompt)

    def _messages(self, request: OutOfBandRequest) -> list[dict[str, Any]]:
        if request.lines is None:
            messages = list(self._call.conversation.view().messages)
        else:
            messages = [{"role": role, "content": text} for role, text in request.lines]
        return messages or [{"role": "user", "content": NO_MESSAGE}]
